"""Exact top k: against a plain sort, with ties, masks, padding and extreme scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from beamwood.errors import InputError
from beamwood.retrieval import top_k as module
from beamwood.retrieval.top_k import descending, in_order, sort_candidates, top_k
from beamwood.types import ItemLists


def plain_top_k(scores, k, excluded, allowed):
    """Sorts every row of (−score, index) pairs in Python."""
    rows = []
    for row, line in enumerate(scores):
        pairs = [
            (-float(s), i)
            for i, s in enumerate(line)
            if s > -np.inf and (allowed is None or allowed[i]) and i not in excluded[row]
        ]
        rows.append(sorted(pairs)[:k])
    return rows


few_values = st.sampled_from([-np.inf, -3e38, -2.0, -1e-40, -0.0, 0.0, 1e-40, 0.1, 0.5, 3e38, np.inf])
score_matrices = hnp.arrays(
    np.float32,
    st.tuples(st.integers(0, 4), st.integers(1, 9)),
    elements=st.one_of(few_values.map(lambda x: float(np.float32(x))), st.floats(-4, 4, width=32)),
)


@given(score_matrices, st.integers(1, 11), st.data())
def test_agrees_with_a_plain_sort(scores, k, data):
    num_rows, num_items = scores.shape
    lists = st.lists(st.lists(st.integers(0, num_items - 1), max_size=4), min_size=num_rows, max_size=num_rows)
    excluded = data.draw(lists)
    allowed = data.draw(st.one_of(st.none(), hnp.arrays(np.bool_, num_items)))
    before = scores.copy()
    hits = top_k(scores, k, excluded=ItemLists.from_lists(excluded), allowed=allowed)
    expected = plain_top_k(scores, k, excluded, allowed)
    assert np.array_equal(before, scores)
    assert hits.items.shape == hits.scores.shape == (num_rows, k)
    for row, pairs in enumerate(expected):
        found = len(pairs)
        assert hits.items[row].tolist() == [i for _, i in pairs] + [-1] * (k - found)
        assert hits.scores[row, :found].tolist() == [-s for s, _ in pairs]
        assert np.all(hits.scores[row, found:] == -np.inf)
        assert hits.scored[row] == len(plain_top_k(scores, num_items, excluded, allowed)[row])


def test_results_do_not_depend_on_blocks(monkeypatch):
    scores = np.random.default_rng(0).integers(0, 5, (11, 30)).astype(np.float64)
    excluded = ItemLists.from_lists([[row, row + 3] for row in range(11)])
    whole = top_k(scores, 7, excluded=excluded)
    monkeypatch.setattr(module, "_BLOCK_CELLS", 64)
    blocked = top_k(scores, 7, excluded=excluded)
    assert np.array_equal(whole.items, blocked.items)
    assert np.array_equal(whole.scores, blocked.scores)


def test_permuting_items_permutes_results():
    rng = np.random.default_rng(1)
    scores = rng.permutation(200).reshape(4, 50).astype(np.float32)
    order = rng.permutation(50)
    assert np.array_equal(order[top_k(scores[:, order], 9).items], top_k(scores, 9).items)


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_candidates_in_any_order_give_the_same_answer(k, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (3, 12)).astype(np.float32)
    shuffled = rng.permuted(np.tile(np.arange(12), (3, 1)), axis=1)
    shuffled[:, 0] = -1
    dense = np.full((3, 12), -np.inf, np.float32)
    for row in range(3):
        dense[row, shuffled[row, 1:]] = scores[row, 1:]
    hits, expected = sort_candidates(shuffled, scores, k), top_k(dense, k)
    assert np.array_equal(hits.items, expected.items)
    assert np.array_equal(hits.scores, expected.scores)


def test_wrong_arguments_are_refused():
    scores = np.zeros((2, 3))
    with pytest.raises(InputError, match="k=0 is below 1"):
        top_k(scores, 0)
    with pytest.raises(InputError, match="1 rows for 2"):
        top_k(scores, 1, excluded=ItemLists.from_lists([[1]]))
    with pytest.raises(InputError, match="indices end at 2"):
        top_k(scores, 1, excluded=ItemLists.from_lists([[1], [3]]))
    # A long list of items is checked in another way than a short one.
    with pytest.raises(InputError, match="indices end at 299"):
        top_k(np.zeros((1, 300)), 1, excluded=ItemLists.from_lists([range(10, 301)]))
    assert top_k(np.zeros((1, 300)), 1, excluded=ItemLists.from_lists([range(299)])).items == [[299]]
    with pytest.raises(InputError, match="one bool for each of the 3"):
        top_k(scores, 1, allowed=np.ones(4, bool))
    with pytest.raises(InputError, match="NaN"):
        top_k(np.array([[0.0, np.nan]]), 1)


@pytest.mark.parametrize("count", [4, 90])
def test_equal_values_of_a_filter_go_by_index(count):
    """Whether the allowed items are few, which are sorted, or many, which are read in the order of all."""
    values, allowed = (np.arange(100) % 3).astype(np.float32), np.arange(100) < count
    expected = sorted(range(count), key=lambda item: (-values[item], item))
    assert in_order(descending(values), values, allowed).tolist() == expected
