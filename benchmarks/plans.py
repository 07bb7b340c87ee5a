"""What a row of the suite means for a log: its settings without automatic values, from facts of the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.fitting.plan import Facts
from beamwood.methods import load_method
from benchmarks.suite import Row

__all__ = ["plan_of"]


def plan_of(row: Row, before: Mapping[str, str], facts: Facts) -> dict[str, Any]:
    """The resolved settings of a row by dotted name; a folder is named by the run of `before` that left it."""
    if row.method is None:
        return {}
    settings = row.settings | {key: f"run {name}" for key, name in before.items()}
    plan = load_method(row.method).configured(settings, row.preset).plan(facts).flat()
    # What a row means does not depend on where it is computed.
    return {name: value for name, value in plan.items() if name != "loop.device"}
