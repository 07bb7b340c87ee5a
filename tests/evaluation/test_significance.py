"""Intervals and tests: against scipy, for their coverage, and on planted differences."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beamwood.errors import InputError
from beamwood.evaluation.significance import (
    bootstrap_interval,
    bootstrap_intervals,
    holm,
    mean_exceeds,
    paired_comparisons,
    paired_t,
    signed_rank_sum,
    t_interval,
    wilcoxon,
)
from beamwood.evaluation.verdict import judge


def bootstrap_p(difference, rng):
    """The bootstrap's p-value of a comparison whose rival has 0 for every query."""
    (test,) = paired_comparisons({"ours": difference, "rival": np.zeros(len(difference))}, "ours", rng)
    return test.p_values["bootstrap"]


def test_agrees_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.random(80), rng.random(80) + 0.05
    assert paired_t(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert wilcoxon(a - b) == pytest.approx(stats.wilcoxon(a, b).pvalue)
    tied = np.round(8 * (a - b)) / 8
    above, num = stats.wilcoxon(tied, alternative="greater").statistic, np.count_nonzero(tied)
    assert signed_rank_sum(tied) == 2 * above - num * (num + 1) / 2
    assert bootstrap_p(a - b, rng) == pytest.approx(paired_t(a - b), abs=0.02)
    ours = bootstrap_interval(a, rng, num_resamples=20000)
    theirs = stats.bootstrap((a,), np.mean, method="percentile", n_resamples=20000, rng=rng).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.004)
    assert ours.mean == pytest.approx(a.mean())


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=40).filter(lambda values: np.std(values) > 1e-3))
def test_students_interval_agrees_with_its_test(values):
    values = np.array(values)
    interval = t_interval(values)
    error = values.std(ddof=1) / np.sqrt(len(values))
    expected = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=error)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-12)
    assert (interval.low > 0 or interval.high < 0) == (paired_t(values) < 0.05)


def test_the_interval_has_its_nominal_coverage():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        interval = bootstrap_interval(rng.exponential(1.0, 120), rng, level=0.9, num_resamples=300)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.82 <= covered / 300 <= 0.95


def test_many_equal_values_are_resampled_by_count():
    """The same distribution from a draw for each distinct value: a resample is never held whole."""
    rng, hits = np.random.default_rng(3), np.zeros(200_000)
    hits[:20_000] = 1.0
    error = hits.std() / np.sqrt(len(hits))
    tracemalloc.start()
    try:
        interval = bootstrap_interval(hits, rng, num_resamples=20_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20
    assert (interval.low, interval.high) == pytest.approx((0.1 - 1.96 * error, 0.1 + 1.96 * error), abs=0.05 * error)
    shifted = np.where(rng.random(200_000) < 0.5, 1.0, -1.0) + 0.004
    assert bootstrap_p(shifted, rng) == pytest.approx(paired_t(shifted), abs=0.02)


def test_metrics_of_the_same_queries_are_resampled_together():
    rng, draws = np.random.default_rng(8), np.random.default_rng(9)
    values = {"ndcg": rng.random(60), "hits": np.round(rng.random(60))}
    found = bootstrap_intervals(values, np.random.default_rng(9), num_resamples=500)
    resampled = [draws.integers(0, 60, 60) for _ in range(500)]
    for name, column in values.items():
        means = [column[drawn].mean() for drawn in resampled]
        bounds = np.quantile(means, [0.025, 0.975])
        assert (found[name].mean, found[name].low, found[name].high) == pytest.approx((column.mean(), *bounds))
        one = bootstrap_interval(column, np.random.default_rng(9), num_resamples=500)
        assert (one.low, one.high) == pytest.approx((found[name].low, found[name].high))
    with pytest.raises(InputError, match="different numbers of queries"):
        bootstrap_intervals({"a": np.ones(3), "b": np.ones(4)}, rng)
    assert bootstrap_intervals({}, rng) == {}


def test_rounding_alone_is_no_difference():
    rng = np.random.default_rng(4)
    ours = rng.random(400)
    theirs = ours + rng.uniform(-1, 1, 400) * 1e-16
    theirs[:12] -= 0.1
    (exact,) = paired_comparisons({"ours": ours, "theirs": np.where(np.arange(400) < 12, theirs, ours)}, "ours", rng)
    (rounded,) = paired_comparisons({"ours": ours, "theirs": theirs}, "ours", rng)
    assert rounded.p_values["wilcoxon"] == exact.p_values["wilcoxon"]
    assert judge({"ours": ours, "theirs": theirs}, "kept", "f@20", "theirs").next.equal == 388 / 400


def test_a_mean_exceeds_zero_by_its_standard_errors():
    difference = np.array([0.0, 1.0, 2.0, 3.0])
    errors = difference.mean() / (stats.sem(difference))
    assert mean_exceeds(difference, 0.999 * errors)
    assert not mean_exceeds(difference, 1.001 * errors)
    assert not mean_exceeds(-difference, 0.0)
    assert not mean_exceeds(np.ones(1), 0.0)
    assert mean_exceeds(np.ones(2), 3.0)


@pytest.mark.parametrize(("values", "level", "said"), [([1.0], 0.95, "at least 2"), ([1.0, 2.0], 1.0, "outside")])
def test_students_interval_checks_its_arguments(values, level, said):
    with pytest.raises(InputError, match=said):
        t_interval(np.array(values), level=level)


def test_p_values_are_uniform_without_a_difference():
    rng = np.random.default_rng(2)
    draws = [rng.normal(0, 1, 60) for _ in range(300)]
    for test in (paired_t, wilcoxon, lambda d: bootstrap_p(d, rng)):
        assert stats.kstest([test(draw) for draw in draws], "uniform").pvalue > 0.001


def test_no_difference_and_a_constant_difference():
    rng = np.random.default_rng(3)
    nothing, constant = np.zeros(10), np.full(10, 0.25)
    assert paired_t(nothing) == wilcoxon(nothing) == bootstrap_p(nothing, rng) == 1.0
    assert paired_t(constant) == 0.0
    assert bootstrap_p(constant, rng) == pytest.approx(1 / 2001)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_agrees_with_the_step_down_rule(p_values):
    adjusted = holm(np.array(p_values))
    assert np.all(adjusted >= p_values)
    assert np.all(adjusted <= 1)
    for alpha in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, index in enumerate(np.argsort(p_values, kind="stable")):
            if p_values[index] * (len(p_values) - rank) > alpha:
                break
            rejected.add(int(index))
        assert rejected == set(np.flatnonzero(adjusted <= alpha).tolist())


def test_compare_finds_a_planted_difference():
    rng = np.random.default_rng(4)
    truth = rng.random(200)
    methods = {
        "good": truth + 0.1,
        "same": truth + 0.1 + rng.normal(0, 0.05, 200),
        "worse": truth + rng.normal(0, 0.05, 200),
    }
    same, worse = paired_comparisons(methods, "good", rng)
    assert (same.rival, worse.rival) == ("same", "worse")
    assert same.difference.low < 0 < same.difference.high
    assert worse.difference.low > 0.08
    assert all(worse.adjusted[test] < 0.01 <= same.adjusted[test] for test in ("bootstrap", "t", "wilcoxon"))
    assert all(worse.adjusted[test] >= worse.p_values[test] for test in worse.p_values)
    assert worse.as_dict()["difference"]["level"] == 0.95


def test_all_rivals_and_the_interval_share_the_resamples():
    rng = np.random.default_rng(5)
    values = {name: rng.random(80) + more for name, more in (("ours", 0.05), ("a", 0.0), ("b", 0.03))}
    for test in paired_comparisons(values, "ours", np.random.default_rng(6)):
        difference = values["ours"] - values[test.rival]
        alone = bootstrap_interval(difference, np.random.default_rng(6))
        assert (test.difference.low, test.difference.high) == pytest.approx((alone.low, alone.high))
        assert test.p_values["bootstrap"] == bootstrap_p(difference, np.random.default_rng(6))


def test_same_generator_same_answer():
    values = np.random.default_rng(5).random(50)
    once, twice = (bootstrap_interval(values, np.random.default_rng(7)) for _ in range(2))
    assert once == twice


def test_wrong_arguments_are_refused():
    rng = np.random.default_rng(6)
    with pytest.raises(InputError, match="at least 2"):
        paired_t(np.array([0.1]))
    with pytest.raises(InputError, match="NaN"):
        bootstrap_interval(np.array([0.1, np.nan]), rng)
    with pytest.raises(InputError, match="level=95"):
        bootstrap_interval(np.ones(3), rng, level=95)
    with pytest.raises(InputError, match="num_resamples=0"):
        bootstrap_interval(np.ones(3), rng, num_resamples=0)
    with pytest.raises(InputError, match="did you mean 'popularity'"):
        paired_comparisons({"popularity": np.ones(3)}, "popularty", rng)
    with pytest.raises(InputError, match="same queries"):
        paired_comparisons({"a": np.ones(3), "b": np.ones(4)}, "a", rng)
    with pytest.raises(InputError, match=r"rng=0 draws nothing; give np.random.default_rng\(0\)"):
        bootstrap_interval(np.array([0.1, 0.2]), 0)
    with pytest.raises(InputError, match="values='ab' does not fit"):
        bootstrap_interval("ab", rng)
    for wrong in ([0.1, np.nan], [1.5], [-0.1], [[0.1]], 0.1):
        with pytest.raises(InputError, match="p-value is a probability"):
            holm(wrong)
    assert holm([0.01, 0.04]).tolist() == [0.02, 0.04]


@pytest.mark.parametrize("count", [8, 7, 300])
def test_ties_of_the_bootstrap_survive_rounding(count):
    """Differences of hits have means on a lattice: p is what whole numbers give with the same draws."""
    difference = np.zeros(count)
    difference[:3], difference[3:4] = 1, -1
    drawn = np.random.default_rng(5).multinomial(count, np.full(count, 1 / count), size=2000)
    whole = drawn @ (count * difference - difference.sum()).astype(int)
    expected = (1 + np.count_nonzero(np.abs(whole) >= count * abs(int(difference.sum())))) / 2001
    ours = np.mean([bootstrap_p(difference, np.random.default_rng(s)) for s in range(10)])
    assert ours == pytest.approx(expected, abs=0.03)
    one, other = (bootstrap_p(unit * difference, np.random.default_rng(5)) for unit in (1, 0.7))
    assert one == other
