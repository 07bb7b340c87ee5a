"""The bars of fast answers: bounds on the measured figures, for an idle machine without AVX-512."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Bar", "bars", "bars_of"]

# From this many items on, twice the nodes and the time are allowed.
_LARGE = 40_000
_MILLION = 900_000


@dataclass(frozen=True)
class Bar:
    """A value and its bound: the upper one if `most`, else the lower one."""

    value: float
    bound: float
    most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return bool(self.value <= self.bound if self.most else self.value >= self.bound)

    def as_dict(self) -> dict[str, float | bool]:
        """The bar as a JSON object."""
        return {"value": round(self.value, 5), "bound": self.bound, "holds": self.holds}

    def line(self, name: str) -> str:
        """For people."""
        return f"{'holds' if self.holds else 'FAILS'}  {name}: {self.value:.5g}, bound {self.bound:g}"


def bars(logs: Mapping[str, tuple[int, Mapping[str, float]]]) -> dict[str, Bar]:
    """Bars by name; `logs` gives for each log the number of items and the figures of its line."""
    return {f"{log}: {name}": bar for log, (items, own) in logs.items() for name, bar in bars_of(log, items, own)}


def bars_of(log: str, items: int, figures: Mapping[str, float]) -> Iterator[tuple[str, Bar]]:
    """The bars of one log; a bar without a figure there is left out."""
    large = items >= _LARGE
    known = {
        "nodes judged": ("tree/scored", 420 if large else 220),
        "ms": ("tree/ms/median", 2.0 if large else 1.0),
        "f@20 lost, seen kept, %": ("lost/kept", 0.5 if log == "ml1m" else 1.0),
        "f@20 lost, seen removed, %": ("lost/removed", 0.5 if log == "ml1m" else 1.0),
        "python by history, ms": ("python/history", 0.15),
        "python by user, ms": ("python/user", 0.15),
        "python with a kept filter, ms": ("python/filter .1 %", 0.15),
        "light head, share of the artefact": ("light/share", 1 / 3),
        "searches that one query waits for": ("threads/waits", 2.0),
    }
    if items >= _MILLION:
        known |= {
            "load, s": ("load/s", 0.5),
            "filter of .1 %, times native": ("filter/.1 %", 1.3),
            "filter of .01 %, times native": ("filter/.01 %", 2.0),
        }
    for name, (figure, bound) in known.items():
        if figure in figures:
            yield name, Bar(figures[figure], bound)
    if "load/private_mb" in figures:
        yield "private memory, MB", Bar(figures["load/private_mb"], 0.15 * figures["load/artefact_mb"] + 60)
    for name, figure, bound in (("two threads over one", "threads/2 over 1", 1.8), ("job, share", "job/share", 0.85)):
        if figure in figures:
            yield name, Bar(figures[figure], bound, most=False)
