"""Significance of differences between methods: intervals and paired tests over queries.

Shape legend: Q queries, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from beamwood.arguments import naming_arguments
from beamwood.blocks import slices
from beamwood.errors import InputError, nearest
from beamwood.types import FloatArray

__all__ = [
    "Interval",
    "ROUNDING",
    "PairedComparison",
    "bootstrap_interval",
    "bootstrap_intervals",
    "holm",
    "mean_exceeds",
    "paired_comparisons",
    "paired_difference",
    "paired_t",
    "signed_rank_sum",
    "t_interval",
    "wilcoxon",
]

_LEVEL, _RESAMPLES = 0.95, 2000
# Resampled values held at a time (32 MiB).
_BLOCK_VALUES = 2**22
# From so many queries on, values that repeat this often on average are resampled by count.
_MANY, _REPEATED = 100_000, 16
# Metrics are of 0..1, and sums of equal numbers in another order differ by less.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the bounds of its confidence interval at `level`."""

    mean: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A rival against the baseline on the same queries: mean of baseline - rival, its interval, p-values by test.

    `p_values` as each test gives them, `adjusted` after Holm's correction over all rivals of the comparison.
    """

    baseline: str
    rival: str
    difference: Interval
    p_values: dict[str, float]
    adjusted: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON can hold it."""
        return asdict(self)


@naming_arguments
def bootstrap_interval(
    values: FloatArray, rng: np.random.Generator, *, level: float = _LEVEL, num_resamples: int = _RESAMPLES
) -> Interval:
    """The percentile bootstrap interval of the mean of float[Q] values over resampled queries (Efron, 1979)."""
    return bootstrap_intervals({"values": values}, rng, level=level, num_resamples=num_resamples)["values"]


def bootstrap_intervals(
    values: Mapping[str, FloatArray],
    rng: np.random.Generator,
    *,
    level: float = _LEVEL,
    num_resamples: int = _RESAMPLES,
) -> dict[str, Interval]:
    """`bootstrap_interval` of each of several metrics of the same queries, which are resampled once for all of them.

    Errors: unequal numbers of queries.
    """
    columns = {name: _checked(column, least=1) for name, column in values.items()}
    _check_level(level)
    if len({len(column) for column in columns.values()}) > 1:
        raise InputError("the metrics are of different numbers of queries; evaluate them on the same ones")
    means_RM = _resampled_means(list(columns.values()), rng, num_resamples)
    return {
        name: _interval(column, means_R, level)
        for (name, column), means_R in zip(columns.items(), means_RM.T, strict=True)
    }


def _interval(values: NDArray[np.float64], means_R: NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(means_R, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high), level)


def t_interval(values: FloatArray, *, level: float = _LEVEL) -> Interval:
    """Student's interval of the mean of float[Q] values, which excludes 0 where `paired_t` is below 1 - `level`.

    Deterministic: the same values give the same bounds everywhere.
    """
    values = _checked(values, least=2)
    _check_level(level)
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    half = float(special.stdtrit(len(values) - 1, (1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half, level)


def _bootstrap_p(difference: NDArray[np.float64], means_R: NDArray[np.float64]) -> float:
    """The two-sided p-value of a mean difference of 0, from the resampled means of the centred differences.

    p = (1 + #{|m*| >= |m|}) / (R + 1), so it is never below 1 / (R + 1). Source: Efron and Tibshirani (1993), 16.4.
    """
    if not difference.any():
        return 1.0
    mean = float(difference.mean())
    # Means of hits are discrete, so that |m*| = |m| is common; rounding must not break the tie.
    observed = abs(mean) - 1e-9 * float(np.abs(difference).max())
    return float((1 + np.count_nonzero(np.abs(means_R - mean) >= observed)) / (len(means_R) + 1))


def paired_t(difference: FloatArray) -> float:
    """The two-sided p-value of Student's paired t-test; 1 where every difference is 0."""
    difference = _checked(difference, least=2)
    mean = float(difference.mean())
    if not difference.any():
        return 1.0
    error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    if error == 0.0:
        return 0.0
    return float(2.0 * special.stdtr(len(difference) - 1, -abs(mean) / error))


def wilcoxon(difference: FloatArray) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test, zeros dropped; 1 where every difference is 0."""
    difference = _checked(difference, least=2)
    if not difference.any():
        return 1.0
    # Imported here, as it takes a second and is rarely used.
    from scipy import stats

    return float(stats.wilcoxon(difference, zero_method="wilcox").pvalue)


def signed_rank_sum(difference: FloatArray) -> float:
    """Wilcoxon's statistic: the ranks of positive differences less those of negative ones, zeros dropped.

    Its sign is the side that `wilcoxon` favours, which may be another than that of the mean.
    """
    difference = _checked(difference, least=1)
    difference = difference[difference != 0]
    _, place, counts = np.unique(np.abs(difference), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float(ranks @ np.sign(difference))


@naming_arguments
def holm(p_values: FloatArray) -> NDArray[np.float64]:
    """Holm's step-down adjustment: sorted p_(i) becomes max over j <= i of min(1, (m - j + 1) p_(j)).

    Errors: a value outside 0..1, or NaN.
    """
    p_values = np.asarray(p_values, np.float64)
    if p_values.ndim != 1 or not ((p_values >= 0) & (p_values <= 1)).all():
        raise InputError(f"p_values={p_values} are not one number of 0..1 a test; a p-value is a probability")
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted: NDArray[np.float64] = np.empty(len(p_values), np.float64)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p_values[order]))
    return adjusted


@naming_arguments
def paired_comparisons(
    values: Mapping[str, FloatArray], baseline: str, rng: np.random.Generator
) -> list[PairedComparison]:
    """`baseline` against every other method on the same queries: bootstrap, t-test and Wilcoxon's test.

    P-values are Holm-adjusted within each test; queries are resampled once for all. `values` float[Q] for each method,
    in the same order of queries. Errors: an unknown baseline, unequal lengths.
    """
    if baseline not in values:
        raise InputError(f"baseline='{baseline}' is not among the methods{nearest(baseline, values)}")
    rivals = [name for name in values if name != baseline]
    differences = []
    for rival in rivals:
        if len(values[rival]) != len(values[baseline]):
            raise InputError(
                f"'{rival}' has {len(values[rival])} queries and '{baseline}' {len(values[baseline])}; "
                "evaluate both on the same queries"
            )
        differences.append(_checked(paired_difference(values[baseline], values[rival]), least=2))
    means_MR = _resampled_means(differences, rng, _RESAMPLES).T
    raw = {
        "bootstrap": [_bootstrap_p(*each) for each in zip(differences, means_MR, strict=True)],
        "t": [paired_t(difference) for difference in differences],
        "wilcoxon": [wilcoxon(difference) for difference in differences],
    }
    adjusted = {name: holm(np.array(p_values)) for name, p_values in raw.items()}
    return [
        PairedComparison(
            baseline,
            rival,
            _interval(differences[place], means_MR[place], _LEVEL),
            {name: p_values[place] for name, p_values in raw.items()},
            {name: float(p_values[place]) for name, p_values in adjusted.items()},
        )
        for place, rival in enumerate(rivals)
    ]


def paired_difference(ours: FloatArray, theirs: FloatArray) -> NDArray[np.float64]:
    """float64[Q], ours less theirs, 0 where they differ by rounding alone: Wilcoxon's test ranks every other one."""
    difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    difference[np.abs(difference) <= ROUNDING] = 0.0
    return difference


def mean_exceeds(difference: FloatArray, errors: float) -> bool:
    """Whether the mean of float[Q] differences is above 0 by more than so many of its standard errors.

    False for fewer than two queries. A quick rule for choices within a fit; methods are compared by tests.
    """
    if len(difference) < 2:
        return False
    return float(difference.mean()) > errors * float(difference.std(ddof=1)) / math.sqrt(len(difference))


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InputError(f"level={level} is outside (0, 1); 0.95 gives a 95 % interval")


def _checked(values: FloatArray, *, least: int) -> NDArray[np.float64]:
    checked: NDArray[np.float64] = np.asarray(values, np.float64)
    if checked.ndim != 1 or len(checked) < least:
        raise InputError(f"values have shape {checked.shape}; give one number a query, at least {least}")
    if not np.isfinite(checked).all():
        raise InputError("values hold NaN or infinity; a metric must be finite for every query")
    return checked


def _resampled_means(
    columns: Sequence[NDArray[np.float64]], rng: np.random.Generator, num_resamples: int
) -> NDArray[np.float64]:
    """float64[R, M], the mean of each column [Q] over the queries of each resample."""
    if not isinstance(rng, np.random.Generator):
        raise InputError(f"rng={rng!r} draws nothing; give np.random.default_rng(0)")
    if num_resamples < 1:
        raise InputError(f"num_resamples={num_resamples} is below 1; 2000 is usual")
    means_RM = np.empty((num_resamples, len(columns)))
    others = []
    for place, values in enumerate(columns):
        if len(values) >= _MANY and _REPEATED * len(np.unique(values)) <= len(values):
            means_RM[:, place] = _means_by_value(values, rng, num_resamples)
        else:
            others.append(place)
    if others:
        values_QM = np.stack([columns[place] for place in others], axis=1)
        means_RM[:, others] = _means_by_query(values_QM, rng, num_resamples)
    return means_RM


def _means_by_value(values: NDArray[np.float64], rng: np.random.Generator, num_resamples: int) -> NDArray[np.float64]:
    """float64[R]; how often a resample holds each distinct value is multinomial, which takes far fewer draws."""
    distinct, counts = np.unique(values, return_counts=True)
    means = np.empty(num_resamples)
    for part in slices(num_resamples, _BLOCK_VALUES // len(distinct)):
        drawn = rng.multinomial(len(values), counts / len(values), part.stop - part.start)
        means[part] = drawn @ distinct / len(values)
    return means


def _means_by_query(
    values_QM: NDArray[np.float64], rng: np.random.Generator, num_resamples: int
) -> NDArray[np.float64]:
    """float64[R, M]; how often a resample holds each query is counted once for all columns."""
    num_queries, means_RM = len(values_QM), np.empty((num_resamples, values_QM.shape[1]))
    for part in slices(num_resamples, _BLOCK_VALUES // num_queries):
        drawn = rng.integers(0, num_queries, (part.stop - part.start, num_queries))
        held = np.empty(drawn.shape)
        for row, queries in enumerate(drawn):
            held[row] = np.bincount(queries, minlength=num_queries)
        means_RM[part] = held @ values_QM / num_queries
    return means_RM
