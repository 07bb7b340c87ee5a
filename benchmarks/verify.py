"""Checks whether a repeated run agrees with its line."""

from __future__ import annotations

import numpy as np

from beamwood.evaluation.significance import paired_t
from benchmarks.bench import Bench
from benchmarks.figures import number, p_value
from benchmarks.suite import Run

__all__ = ["agreement"]


def agreement(bench: Bench, run: Run) -> tuple[list[str], bool]:
    """The comparison of each figure that has values by user, and whether all agree.

    On the same source, machine and data, values are mostly equal to the last digit of float32. A figure agrees if a
    paired test over users has p at least .01. Other processors round differently, so a training may end as far away as
    another seed's. The test does not cover that, and the last line says so.
    """
    measured, then = bench.again(run)
    line = bench.lines.get(run)
    assert line is not None
    said, agrees = [], True
    for name, column in then.items():
        now = measured.values.get(name)
        if now is None or len(now) != len(column):
            said.append(f"{name}: measured on {0 if now is None else len(now)} users, the line has {len(column)}")
            agrees = False
            continue
        difference = now.astype(np.float32).astype(np.float64) - column
        p = paired_t(difference)
        same = not difference.any()
        agrees = agrees and (same or p >= 0.01)
        shown = f"{number(float(column.mean()), 4)}, now {number(float(now.mean()), 4)}"
        said.append(f"{name}: {shown}: " + ("equal for every user" if same else f"p {p_value(p)} over users"))
    verdict = "agrees with" if agrees else "does not agree with"
    said.append(f"{run.name} {verdict} its line of {line.date}, commit {line.commit}")
    if not agrees and "steps" in measured.training:
        machine = line.machine["processor"]
        said.append(
            f"on a processor other than the line's, {machine}, a training may end as far away as another seed's"
        )
    return said, agrees
