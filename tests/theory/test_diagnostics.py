"""Diagnostics against loops and known answers."""

import itertools
import tracemalloc

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.kernels.links import LINKS
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.theory.diagnostics import (
    against_exact,
    calibration,
    diagnose,
    heap_gaps,
    labels_below,
    recall_of,
    whole_level,
)
from beamwood.types import Hits, ItemLists, Query, SearchOptions
from din_cases import random_case, with_term


@pytest.fixture(params=[2, 4, 16])
def case(request):
    tree, weights, _ = random_case(1, num_items=120, branching=request.param, num_rows=1)
    rng = np.random.default_rng(0)
    histories = ItemLists.from_lists([rng.integers(0, 120, n) for n in (0, 3, 10, 14)])
    labels = ItemLists.from_lists([np.sort(rng.permutation(120)[:n]) for n in (1, 5, 9, 2)])
    return TreeSearcher(weights, tree, beam_width=6), histories, labels


def test_a_wide_beam_is_exact(case):
    searcher, histories, labels = case
    report = diagnose(searcher, histories, labels, k=5, widths=(5, 120))
    assert report.beams[-1].overlap == 1
    assert abs(report.beams[-1].regret) < 1e-6
    assert report.beams[0].regret > 0
    assert report.beams[0].overlap < 1
    assert report.exact.scored_nodes == 120
    assert report.beams[-1].recall == report.exact.recall
    assert [level.level for level in report.levels] == list(range(1, searcher.tree.shape.depth + 1))
    assert np.isclose(sum(level.lost for level in report.levels), 1 - report.levels[-1].recall)
    assert all(level.kl_tree >= -1e-12 for level in report.levels)
    assert report.levels[0].kl_tree < 1e-12  # On the first level a walk draws from the softmax itself.
    assert report.as_dict()["levels"][0]["nodes"] == searcher.tree.shape.root_fanout


def test_a_place_that_the_beam_leaves_empty_has_no_regret():
    exact = Hits(np.array([[3, 1, 2]], np.int32), np.array([[3, 2, 1]], np.float32), np.array([9]))
    hits = Hits(np.array([[3, 2, -1]], np.int32), np.array([[3, 1, -np.inf]], np.float32), np.array([4]))
    report = against_exact(2, hits, exact, ItemLists.from_lists([[1, 2]]))
    assert (report.regret, report.overlap, report.recall) == (0.5, 2 / 3, 0.5)


def test_the_beam_is_evaluated_without_the_historys_items(case):
    """With repeats, a search adds them too; the losses are those of the beam alone."""
    _, histories, labels = case
    tree, weights, _ = random_case(1, num_items=120, num_rows=1, similarity=4)
    weights = with_term(weights, "seen", weights=np.full(weights.history_length, 1000, np.float32))
    searcher = TreeSearcher(weights, tree, beam_width=6)
    report = diagnose(searcher, histories, labels, k=5, widths=(5,))
    query, narrow = Query.of(histories), SearchOptions(beam_width=5)
    beam, exact = searcher.beam(query, 5, narrow), searcher.exact(query, 5)
    shared = [np.isin(exact.items[row], beam.items[row]).mean() for row in range(len(histories))]
    assert np.isclose(report.beams[0].overlap, np.mean(shared))
    assert not np.array_equal(beam.items, searcher.search(query, 5, narrow).items)


def test_recall_by_level_equals_loops(case):
    searcher, histories, labels = case
    tree, shape = searcher.tree, searcher.tree.shape
    leaves = tree.leaves_of(histories.padded(searcher.weights.history_length))
    scores = [whole_level(searcher, leaves, level) for level in range(1, shape.depth + 1)]
    label_leaves = tree.leaf_of_item[labels.items].astype(np.int64)
    for level in range(1, shape.depth + 1):
        shares = []
        for row in range(4):
            beam = [0]
            for j in range(1, level + 1):
                fanout = shape.root_fanout if j == 1 else shape.branching
                nodes = [n * fanout + c for n in beam for c in range(fanout) if tree.live_counts[j][n * fanout + c]]
                beam = sorted(nodes, key=lambda n, j=j: (-scores[j - 1][row, n], n))[:6]
            own = shape.ancestors(tree.leaf_of_item[labels[row]], level)
            shares.append(np.mean([node in beam for node in own]))
        assert np.isclose(recall_of(searcher, leaves, labels, label_leaves, level), np.mean(shares))


def test_the_memory_of_recall_is_not_queries_times_nodes():
    tree, weights, _ = random_case(1, num_items=100_000, branching=16, num_rows=1)
    histories = ItemLists.from_lists([[n] for n in range(64)])
    searcher, leaves = (
        TreeSearcher(weights, tree, beam_width=6),
        tree.leaves_of(histories.padded(weights.history_length)),
    )
    label_leaves = tree.leaf_of_item[histories.items].astype(np.int64)
    tracemalloc.start()
    recall_of(searcher, leaves, histories, label_leaves, tree.shape.depth)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * tree.shape.capacity / 4


def level_scores(searcher, histories):
    leaves = searcher.tree.leaves_of(histories.padded(searcher.weights.history_length))
    return [whole_level(searcher, leaves, level) for level in range(1, searcher.tree.shape.depth + 1)]


@pytest.mark.parametrize(
    ("link", "probability"),
    [
        ("softmax", "softmax of the level"),
        ("sigmoid", "sigmoid of the node"),
        ("path", "product along the path"),
    ],
)
def test_the_probability_is_the_trained_one(case, link, probability):
    searcher, histories, labels = case
    logits = level_scores(searcher, histories)
    other = TreeSearcher(searcher.weights, searcher.tree, beam_width=6, link=LINKS[link])
    report = diagnose(TreeSearcher.restore(*other.export()), histories, labels, k=5)
    assert report.probability == probability
    above = np.ones((4, 1))
    for level, values in zip(report.levels, logits, strict=True):
        above = np.repeat(above, values.shape[1] // above.shape[1], axis=1) / (1 + np.exp(-values))
        expected = {
            "softmax of the level": np.exp(values) / np.exp(values).sum(axis=1, keepdims=True),
            "sigmoid of the node": 1 / (1 + np.exp(-values)),
            "product along the path": above,
        }[probability]
        masses = sum(part.nodes * part.predicted for part in level.calibration)
        assert np.isclose(masses, expected.sum(), rtol=1e-4)
        assert (level.kl_tree is None) == (level.kl_uniform is None) == (probability != "softmax of the level")


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_the_heap_of_a_path_tree_uses_its_products(case):
    searcher, histories, labels = case
    paths, above = [], np.ones((4, 1))
    for values in level_scores(searcher, histories):
        above = np.repeat(above, values.shape[1] // above.shape[1], axis=1) / (1 + np.exp(-values))
        paths.append(np.log(above))
    searcher = TreeSearcher(searcher.weights, searcher.tree, beam_width=6, link=LINKS["path"])
    report = diagnose(searcher, histories, labels, k=5, heap_tolerance=0.3)
    assert report.as_dict()["heap_tolerance"] == 0.3
    for level, own, below in zip(report.levels, paths, paths[1:], strict=False):
        assert level.heap_violations == heap_gaps(own, below, 0.3, np.random.default_rng(0))["heap_violations"]


def test_scores_without_probabilities_have_no_calibration(case):
    searcher, histories, labels = case
    other = TreeSearcher(searcher.weights, searcher.tree, beam_width=6, link=LINKS["order"])
    report = diagnose(TreeSearcher.restore(*other.export()), histories, labels, k=5)
    assert report.probability is None
    assert all(level.calibration is None and level.kl_tree is None for level in report.levels)
    plain = diagnose(searcher, histories, labels, k=5)
    assert [level.heap_violations for level in report.levels] == [level.heap_violations for level in plain.levels]


def test_a_perfect_heap_has_no_violations_and_a_reversed_one_has_many():
    rng = np.random.default_rng(1)
    below = rng.normal(size=(5, 64))
    best = below.reshape(5, 16, 4).max(axis=2)
    constant = rng.normal(size=(5, 1))
    assert heap_gaps(best + constant, below, 0.5, rng) == {"heap_violations": 0.0, "order_violations": 0.0}
    reversed_order = heap_gaps(-best, below, 0.1, rng)
    assert reversed_order["order_violations"] > 0.9
    assert reversed_order["heap_violations"] > 0.3


def test_heap_violations_equal_loops():
    """Nodes whose gap to their best child is off the row's median gap; pairs in another order than their best."""
    rng = np.random.default_rng(3)
    scores, below = rng.normal(size=(5, 6)) ** 3, rng.normal(size=(5, 18))
    scores[:, 2], below[:, 6:9], below[:, 10] = -np.inf, -np.inf, -np.inf  # A node without items, and a child.
    found = heap_gaps(scores, below, 0.8, np.random.default_rng(0))
    off, total, wrong, pairs = 0, 0, 0, 0
    for own, children in zip(scores, below, strict=True):
        gaps = [own[n] - max(children[3 * n : 3 * n + 3]) for n in range(6) if n != 2]
        middle = sorted(gaps)[2]
        off, total = off + sum(abs(gap - middle) > 0.8 for gap in gaps), total + len(gaps)
        for one, other in itertools.combinations([n for n in range(6) if n != 2], 2):
            best = [max(children[3 * n : 3 * n + 3]) for n in (one, other)]
            wrong, pairs = wrong + ((own[one] - own[other]) * (best[0] - best[1]) < 0), pairs + 1
    assert found["heap_violations"] == pytest.approx(off / total)
    # Pairs are drawn.
    assert found["order_violations"] == pytest.approx(wrong / pairs, abs=0.05)


def test_true_probabilities_have_zero_calibration_error_and_guesses_do_not():
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.full(30, 0.3), size=4000)
    drawn = np.array([rng.multinomial(5, row / row.sum()) for row in truth]) / 5
    live = np.ones_like(truth, bool)
    assert calibration(truth, drawn, live)[1] < 0.02
    bins, error = calibration(truth[rng.permutation(4000)], drawn, live)
    assert error > 0.2
    assert sum(part.nodes for part in bins) == truth.size


def test_labels_below_are_shares(case):
    searcher, _, labels = case
    leaves = searcher.tree.leaf_of_item[labels.items].astype(np.int64)
    for level in range(1, searcher.tree.shape.depth + 1):
        share = labels_below(searcher.tree.shape, labels, leaves, level)
        assert np.allclose(share.sum(axis=1), 1)


def test_rows_must_fit(case):
    searcher, histories, labels = case
    with pytest.raises(InputError, match="give one non-empty row a history"):
        diagnose(searcher, histories, labels.take(np.arange(3)))
    with pytest.raises(InputError, match="give one non-empty row"):
        diagnose(searcher, histories, ItemLists.empty(4))
    beyond = ItemLists(np.arange(len(histories) + 1), np.full(len(histories), searcher.num_items))
    with pytest.raises(InputError, match=f"labels hold index {searcher.num_items} of"):
        diagnose(searcher, histories, beyond)
