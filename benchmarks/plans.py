"""The plan of a suite's row for a log: its settings with automatic values resolved, from facts of the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.fitting.plan import Facts
from beamwood.methods import load_method
from benchmarks.suite import Row

__all__ = ["plan_of"]


def plan_of(row: Row, before: Mapping[str, str], facts: Facts) -> dict[str, Any]:
    """The resolved settings of a row by dotted name, without the device, which the line's `machine` records.

    A folder appears as the name of the run in `before` that fitted it.
    """
    if row.method is None:
        return {}
    settings = row.settings | {key: f"run {name}" for key, name in before.items()}
    plan = load_method(row.method).configured(settings, row.preset).plan(facts).flat()
    return {name: value for name, value in plan.items() if not name.endswith("loop.device")}
