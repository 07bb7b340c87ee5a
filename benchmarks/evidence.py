"""The evidence behind a table: each row's figures over its seeds, intervals over users, and paired tests.

A user's value is the mean over a row's seeds. Intervals and tests are Student's, over users. The p-values of a
table's column have Holm's correction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.evaluation.significance import Interval, holm, paired_t, t_interval
from benchmarks.bench import Bench
from benchmarks.lines import Line

__all__ = ["Evidence", "Paired", "gather", "paired"]


@dataclass(frozen=True)
class Evidence:
    """The lines of a row on one log, and each user's values, averaged over seeds.

    `as_of`: the commits of stale lines; see `Bench.stale`.
    """

    row: str
    title: str
    lines: tuple[Line, ...]
    values: Mapping[str, NDArray[np.float64]] = field(repr=False)
    as_of: tuple[str, ...]

    def figure(self, name: str) -> float | None:
        """The mean over seeds; None if the lines do not have the figure."""
        found = [line.figures[name] for line in self.lines if name in line.figures]
        return float(np.mean(found)) if found else None

    def figures(self) -> dict[str, float | None]:
        """All figures of the first line, as means over seeds."""
        return {name: self.figure(name) for name in self.lines[0].figures}

    def interval(self, name: str) -> Interval | None:
        """The interval over users; None if their values were not kept."""
        return t_interval(self.values[name]) if name in self.values else None

    def seconds(self) -> float | None:
        """The mean processor seconds of a fit; for a resumed fit, wall seconds over all attempts."""
        found = [line.seconds.get("processor", _clock_of(line)) for line in self.lines]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else None


def _clock_of(line: Line) -> float | None:
    """Wall seconds of a fit. The training's record covers all attempts, the line's the last one."""
    fit, training = line.seconds.get("fit"), line.training.get("seconds")
    return fit if fit is None or not isinstance(training, int | float) else max(fit, float(training))


@dataclass(frozen=True)
class Paired:
    """A row against another on the same users: the interval of the difference, and p after Holm's correction."""

    row: str
    difference: Interval
    p: float

    @property
    def is_certain(self) -> bool:
        """Whether p is below .05."""
        return self.p < 0.05


def gather(bench: Bench, topic: str, log: str) -> dict[str, Evidence]:
    """The evidence of each row of a topic on a log, in the suite's order; rows without a line are left out."""
    found = {}
    for key, row in bench.suite.topics[topic].rows.items():
        made = [(run, bench.lines.get(run)) for run in bench.suite.shown(topic, log, key)]
        lines = tuple(line for _, line in made if line is not None)
        if not lines:
            continue
        stale = [line for run, line in made if line is not None and bench.is_stale(run, line)]
        as_of = tuple(dict.fromkeys(str(line.commit) for line in stale))
        found[key] = Evidence(key, row.title, lines, _means(bench, lines), as_of)
    return found


def paired(rows: Mapping[str, Evidence], against: str, figure: str) -> dict[str, Paired]:
    """Paired tests of each other row against `against`, over users; rows without values of the figure are left out."""
    if against not in rows or figure not in rows[against].values:
        return {}
    base = rows[against].values[figure]
    differences = {}
    for key, evidence in rows.items():
        if key == against or figure not in evidence.values:
            continue
        if len(evidence.values[figure]) != len(base):
            raise InputError(f"{evidence.lines[0].name} and {rows[against].lines[0].name} have different users")
        differences[key] = evidence.values[figure] - base
    adjusted = holm(np.array([paired_t(difference) for difference in differences.values()]))
    return {
        key: Paired(key, t_interval(difference), float(p))
        for (key, difference), p in zip(differences.items(), adjusted, strict=True)
    }


def _means(bench: Bench, lines: Sequence[Line]) -> dict[str, NDArray[np.float64]]:
    kept = [bench.lines.values(line) for line in lines]
    names = [name for name in kept[0] if all(name in values for values in kept)]
    return {name: np.mean([values[name] for values in kept], axis=0) for name in names}
