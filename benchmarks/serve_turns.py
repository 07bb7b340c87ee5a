"""Measurement in turns, with medians over the turns, because the speed of a machine changes from minute to minute."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Turns", "flat", "middle", "together", "wrong"]

# Figures of the server's and the load generator's process.
_MORE = ("server_cpu_ms", "server_held_up_ms", "load_cpu_s", "late_p99_ms", "loop_lag_p99_ms", "after_p50_ms")
_TIMES = ("p50_ms", "p90_ms", "p99_ms")
_NOTHING = {"count": 0.0, "a_second": 0.0} | dict.fromkeys(_TIMES, float("nan"))


@dataclass(frozen=True)
class Turns:
    """The number of turns of a part, and its total seconds."""

    count: int
    seconds: float

    def __iter__(self) -> Iterator[float]:
        """The seconds of each turn."""
        return iter([self.seconds / self.count] * self.count)


def middle(values: Sequence[float]) -> float:
    """The median; NaN if a turn had no answers."""
    return float(np.median(values))


def flat(found: Mapping[str, Any]) -> dict[str, float]:
    """The successful answers of one turn, and their cost."""
    good = found["status"].get("200", _NOTHING)
    return {name: float(value) for name, value in (good | {k: found[k] for k in _MORE if k in found}).items()}


def together(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a part: counts are summed over its turns, other figures are medians."""
    each = [flat(turn) for turn in turns]
    figures: dict[str, Any] = {
        name: sum(turn[name] for turn in each) if name == "count" else middle([turn[name] for turn in each])
        for name in each[0]
    }
    refused = [turn["status"]["429"] for turn in turns if "429" in turn["status"]]
    if refused:
        figures["refused"] = {
            name: sum(turn[name] for turn in refused)
            if name == "count"
            else statistics.median(turn[name] for turn in refused)
            for name in refused[0]
        }
    return figures | {"degraded": sum(turn["degraded"] for turn in turns)}


def wrong(turns: Sequence[Mapping[str, Any]], *expected: int) -> int:
    """The number of requests that ended in an error or an unexpected status."""
    ends = [(int(status), each["count"]) for turn in turns for status, each in turn["status"].items()]
    return sum(int(turn["errors"]) for turn in turns) + sum(n for status, n in ends if status not in (200, *expected))
