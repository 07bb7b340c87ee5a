"""The bars of the search for the best method against named methods, by log and over all logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beamwood.evaluation.significance import holm, paired_t, t_interval
from beamwood.types import FloatArray
from benchmarks.bars import Bar

__all__ = ["FOUND", "bars_of_logs", "compared"]

FOUND = "fit"
"""The name of the search among the methods."""

LEVEL = 0.05
# Logs with more test users than this have a bar of this size, in percent of the best.
_USERS, _BELOW = 1000, 2.0


def compared(values: Mapping[str, FloatArray]) -> dict[str, dict[str, Any]]:
    """The mean of each method, and the paired difference of the search from each rival, with interval and Holm's p."""
    rivals = [name for name in values if name != FOUND]
    differences = {name: np.asarray(values[FOUND], float) - np.asarray(values[name], float) for name in rivals}
    adjusted = holm(np.array([paired_t(differences[name]) for name in rivals]))
    figures: dict[str, dict[str, Any]] = {FOUND: {"value": float(np.mean(values[FOUND]))}}
    for name, p in zip(rivals, adjusted, strict=True):
        change = t_interval(differences[name])
        figures[name] = {"value": float(np.mean(values[name])), "p": float(p)}
        figures[name] |= {"above": change.mean, "above_95": [change.low, change.high]}
    return figures


def bars_of_logs(lines: Sequence[Mapping[str, Any]]) -> dict[str, Bar]:
    """The bars of all measured logs; `lines` have the log, its users and the figures of `compared`.

    The search is on no log significantly below the best method. On logs with more than 1,000 test users it is at most
    2 % below. Its mean over the logs is above that of each rival that was measured on them.
    """
    bars = {}
    for line in lines:
        found, rivals = line["figures"][FOUND], _rivals(line)
        best = max(rivals, key=lambda name: rivals[name]["value"])
        below = rivals[best]["value"] - found["value"]
        bars[f"{line['log']}: p of being below {best}"] = Bar(
            rivals[best]["p"] if below > 0 else 1.0, LEVEL, most=False
        )
        if line["users"] > _USERS:
            bars[f"{line['log']}: below {best}, %"] = Bar(100 * below / max(rivals[best]["value"], 1e-12), _BELOW)
    for name in {name: None for line in lines for name in _rivals(line)}:
        own = [line for line in lines if name in line["figures"]]
        gains = [line["figures"][FOUND]["value"] - line["figures"][name]["value"] for line in own]
        bars[f"mean of {len(own)} logs: above {name}"] = Bar(float(np.mean(gains)), 0.0, most=False)
    return bars


def _rivals(line: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: figures for name, figures in line["figures"].items() if name != FOUND}
