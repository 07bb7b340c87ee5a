"""Metrics against plain loops, against ir-measures, and by hand."""

import math

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, P, Qrel, R, ScoredDoc, SetF, Success, nDCG

from beamwood.errors import InputError
from beamwood.evaluation.metrics import (
    METRICS,
    add_exposure,
    coverage,
    metrics_at,
    relevance,
    share_of,
)
from beamwood.types import ItemLists


def plain_metrics(ranked, labels, k):
    """The metrics of one query, in a loop over positions."""
    wanted, seen, hits, gain, first = set(labels), set(), 0, 0.0, 0
    for rank, item in enumerate(ranked[:k], start=1):
        if item >= 0 and item in wanted and item not in seen:
            hits += 1
            gain += 1 / math.log2(rank + 1)
            first = first or rank
        seen.add(item)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))
    precision, recall = hits / k, hits / len(wanted)
    return {
        "precision": precision,
        "recall": recall,
        "f": 2 * precision * recall / (precision + recall) if hits else 0.0,
        "hit_rate": float(hits > 0),
        "ndcg": gain / ideal,
        "mrr": 1 / first if first else 0.0,
    }


@st.composite
def judged_lists(draw):
    width = draw(st.integers(1, 7))
    row = st.tuples(
        st.lists(st.integers(-1, 9), min_size=width, max_size=width),
        st.lists(st.integers(0, 12), min_size=1, max_size=9),
    )
    return draw(st.lists(row, min_size=1, max_size=5)), draw(st.integers(1, width))


@given(judged_lists())
def test_agrees_with_plain_loops(judged):
    rows, k = judged
    ranked = np.array([items for items, _ in rows], np.int32)
    labels = ItemLists.from_lists([wanted for _, wanted in rows]).distinct()
    measured = metrics_at(relevance(ranked, labels), labels.lengths, k)
    assert tuple(measured) == METRICS
    for row, (items, wanted) in enumerate(rows):
        for name, value in plain_metrics(items, wanted, k).items():
            assert measured[name][row] == pytest.approx(value, abs=1e-12), name


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 10]))
def test_agrees_with_ir_measures(seed, k):
    rng = np.random.default_rng(seed)
    ranked = np.array([rng.permutation(30)[:k] for _ in range(6)], np.int32)
    labels = ItemLists.from_lists([rng.permutation(30)[: rng.integers(1, 15)] for _ in range(6)])
    qrels = [Qrel(str(q), str(i), 1) for q in range(6) for i in labels[q]]
    run = [ScoredDoc(str(q), str(i), float(-place)) for q in range(6) for place, i in enumerate(ranked[q])]
    names = {
        P @ k: "precision",
        R @ k: "recall",
        Success @ k: "hit_rate",
        nDCG @ k: "ndcg",
        RR @ k: "mrr",
        SetF: "f",
    }
    measured = metrics_at(relevance(ranked, labels), labels.lengths, k)
    for result in ir_measures.iter_calc(list(names), qrels, run):
        name = names[result.measure]
        assert measured[name][int(result.query_id)] == pytest.approx(result.value, abs=1e-9), name


def test_by_hand():
    ranked = np.array([[5, 3, 5, -1, 2]], np.int32)
    labels = ItemLists.from_lists([[5, 2, 9]])
    relevant = relevance(ranked, labels)
    assert relevant.tolist() == [[True, False, False, False, True]]
    measured = metrics_at(relevant, labels.lengths, 5)
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    expected = [2 / 5, 2 / 3, 4 / 8, 1.0, (1 + 1 / math.log2(6)) / ideal, 1.0]
    assert [float(measured[name][0]) for name in METRICS] == pytest.approx(expected)


@given(st.lists(st.lists(st.integers(-1, 5), min_size=6, max_size=6), max_size=4))
def test_exposure_counts_lists(rows):
    ranked = np.array(rows, np.int32).reshape(len(rows), 6)
    shown = [sum(item in row for row in rows) for item in range(7)]
    exposure = np.ones(7, np.int64)
    add_exposure(exposure, ranked)
    assert exposure.tolist() == [1 + count for count in shown]


def test_coverage_and_tail_share():
    shown = np.array([4, 0, 1, 0, 3])
    assert coverage(shown) == pytest.approx(3 / 5)
    assert share_of(shown, np.array([False, True, True, False, False])) == pytest.approx(1 / 8)
    assert share_of(np.zeros(3, int), np.ones(3, bool)) == 0.0


def test_wrong_arguments_are_refused():
    labels = ItemLists.from_lists([[1]])
    with pytest.raises(InputError, match="1 rows for 2"):
        relevance(np.zeros((2, 3), np.int32), labels)
    relevant = relevance(np.zeros((1, 3), np.int32), labels)
    with pytest.raises(InputError, match=r"k=4 is outside 1\.\.3"):
        metrics_at(relevant, labels.lengths, 4)
    with pytest.raises(InputError, match="without labels"):
        metrics_at(relevant, np.array([0]), 2)
