"""What the lines say of a table: each row's figures over its seeds, intervals over users, and paired tests.

A user's value is the mean over a row's seeds. Intervals and tests are Student's, over users; the p-values of a table's
column are adjusted after Holm.
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
    """The lines of a row on one log, and the mean over seeds of each user's values; `as_of`: the commits of lines
    whose recipe or resolved plan the suite does not give today."""

    row: str
    title: str
    lines: tuple[Line, ...]
    values: Mapping[str, NDArray[np.float64]] = field(repr=False)
    as_of: tuple[str, ...]

    def figure(self, name: str) -> float | None:
        """The mean over seeds; None where the lines do not have it."""
        found = [line.figures[name] for line in self.lines if name in line.figures]
        return float(np.mean(found)) if found else None

    def interval(self, name: str) -> Interval | None:
        """Over users; None where their values were not kept."""
        return t_interval(self.values[name]) if name in self.values else None

    def seconds(self) -> float | None:
        """The mean of the processor's seconds of a fit, of the clock's over all attempts where one was resumed."""
        found = [line.seconds.get("processor", _clock_of(line)) for line in self.lines]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else None


def _clock_of(line: Line) -> float | None:
    """The clock's seconds of a fit; a training says its own of all attempts, the line those of the last."""
    fit, training = line.seconds.get("fit"), line.training.get("seconds")
    return fit if fit is None or not isinstance(training, int | float) else max(fit, float(training))


@dataclass(frozen=True)
class Paired:
    """A row against another on the same users: the difference's interval, and p after Holm."""

    row: str
    difference: Interval
    p: float

    @property
    def is_certain(self) -> bool:
        """Is p below .05?"""
        return self.p < 0.05


def gather(bench: Bench, topic: str, log: str) -> dict[str, Evidence]:
    """By row of a topic what there is on a log, in the suite's order; rows without a line are left out."""
    found = {}
    for key, row in bench.suite.topics[topic].rows.items():
        made = [(run, bench.lines.get(run)) for run in bench.suite.shown(topic, log, key)]
        lines = tuple(line for _, line in made if line is not None)
        if not lines:
            continue
        stale = [line for run, line in made if line is not None and not line.is_planned(bench.suite.row(run))]
        as_of = tuple(dict.fromkeys(str(line.commit) for line in stale))
        found[key] = Evidence(key, row.title, lines, _means(bench, lines), as_of)
    return found


def paired(rows: Mapping[str, Evidence], against: str, figure: str) -> dict[str, Paired]:
    """Each other row minus `against` over the users' values of a figure; rows without such values are left out."""
    if against not in rows or figure not in rows[against].values:
        return {}
    base = rows[against].values[figure]
    differences = {}
    for key, evidence in rows.items():
        if key == against or figure not in evidence.values:
            continue
        if len(evidence.values[figure]) != len(base):
            raise InputError(f"{evidence.lines[0].name} and {rows[against].lines[0].name} are of other users")
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
