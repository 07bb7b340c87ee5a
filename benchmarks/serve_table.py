"""A service under load as Markdown: the bars, and the cost of each part of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.figures import held, markdown, number
from benchmarks.lines import Line

__all__ = ["flattened", "serve_table"]

# The parts of a run that have requests, and the columns.
_PARTS = {
    "model/one_connection": "as fitted, one connection",
    "model/saturated_2": "as fitted, saturated",
    "model/steady": "as fitted, four fifths of capacity",
    "model/overload_narrowed": "as fitted, twice the capacity",
    "full/one_connection": "full beam, one connection",
    "full/beside_batch": "full beam, one connection beside a batch",
    "full/saturated_1": "full beam, saturated, one thread",
    "full/saturated_2": "full beam, saturated, two threads",
    "full/steady": "full beam, four fifths of capacity",
    "full/overload_narrowed": "full beam, twice the capacity",
    "full/overload_as_wide": "full beam, twice the capacity, beams as wide",
    "full/swaps": "full beam, models swapped",
    "rival/one_connection": "FastAPI, one connection",
    "rival/saturated": "FastAPI, saturated",
    "rival/steady": "FastAPI, four fifths of capacity",
}
_TOLD = {"a_second": 1, "p50_ms": 2, "p99_ms": 2, "server_cpu_ms": 3}
_HEADINGS = ("", "answers per second", "ms, median", "ms, 99th percentile", "processor ms per request")


def flattened(found: Mapping[str, Any], before: str = "") -> dict[str, float]:
    """Every number of a nested document, by its path."""
    figures: dict[str, float] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            figures |= flattened(value, f"{before}{name}/")
        elif isinstance(value, int | float):
            figures[before + name] = float(value)
    return figures


def serve_table(log: str, row: str, line: Line) -> str:
    """The bars and the parts of one run; `log` and `row`: their titles."""
    load = number(line.figures["load_average"], 1)
    threads = number(line.figures["threads"], 0)
    heading = (
        f"**{row}**, {log} (`{line.log}`): {line.data['items']:,} items; {line.date}, {line.machine['processor']}, "
        f"{threads} threads, load {load}"
    )
    bars = markdown(["bar", "measured", "bound", "holds"], list(_bars(line.figures)))
    return f"{heading}{_pace(line.figures)}\n\n{bars}\n\n{markdown(_HEADINGS, list(_rows(line.figures)))}"


def _pace(figures: Mapping[str, float]) -> str:
    share = figures.get("machine/slow_share")
    if share is None:
        return ""
    if share == 0:
        return ".\nBefore the run, no memory write was slow"
    return (
        f".\nBefore the run, {number(100 * share, 1)} % of memory writes were slow: they took "
        f"{number(figures['machine/slow_times'], 1)} times the median"
    )


def _bars(figures: Mapping[str, float]) -> Iterator[list[str]]:
    ends = "/value"
    for name in [key.removeprefix("bars/").removesuffix(ends) for key in figures if key.endswith(ends)]:
        value, bound, holds = (figures[f"bars/{name}/{part}"] for part in ("value", "bound", "holds"))
        yield [name.replace("_", " "), number(value, 3), number(bound, 3), held(holds)]


def _rows(figures: Mapping[str, float]) -> Iterator[list[str]]:
    for part, title in _PARTS.items():
        if f"{part}/a_second" in figures:
            cells = [figures.get(f"{part}/{name}") for name in _TOLD]
            digits = _TOLD.values()
            yield [title, *("" if v is None else number(v, d) for v, d in zip(cells, digits, strict=True))]
