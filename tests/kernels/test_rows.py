"""Items to leaves and back: native equals numpy and the tree, and unknown indices are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from beamwood.kernels import native
from beamwood.kernels.rows import banned_of, items_of_leaves, leaves_of, places_of, sum_of_rows
from beamwood.tree import random_tree
from beamwood.types import ItemLists

MODULES = [None] if native() is None else [None, native()]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 40),
    rows=st.sampled_from([1, 1, 3]),
    longest=st.integers(0, 30),
    length=st.integers(1, 20),
    filtered=st.booleans(),
)
def test_both_equal_the_tree(seed, size, rows, longest, length, filtered):
    rng = np.random.default_rng(seed)
    tree = random_tree(size, rng)
    listed = [rng.integers(0, size, rng.integers(0, longest + 1)).tolist() for _ in range(rows)]
    lists, allowed = ItemLists.from_lists(listed), rng.random(size) < 0.5 if filtered else None
    # Few distinct scores, so that many are equal; missing results come last.
    leaves = np.sort(rng.integers(-1, size, (rows, 9)).astype(np.int32))[:, ::-1].copy()
    leaves[leaves >= 0] = tree.leaf_of_item[leaves[leaves >= 0]]
    scores = -np.sort(rng.integers(0, 3, leaves.shape)).astype(np.float32)
    scores[leaves < 0] = -np.inf
    for module in MODULES:
        found = leaves_of(module, tree.leaf_of_item, lists, length)
        assert found.dtype == np.int32
        for row, items in zip(found.tolist(), listed, strict=True):
            latest = [int(tree.leaf_of_item[item]) for item in items][-length:]
            assert row == [-1] * (length - len(latest)) + latest
        indptr, banned = banned_of(module, tree.leaf_of_item, lists, allowed)
        assert (indptr.dtype, banned.dtype) == (np.int64, np.int32)
        assert indptr[0] == 0
        for row, items in enumerate(listed):
            shown = {int(tree.leaf_of_item[item]) for item in items if allowed is None or allowed[item]}
            assert banned[indptr[row] : indptr[row + 1]].tolist() == sorted(shown)
        items = items_of_leaves(module, tree.item_of_leaf, leaves, scores)
        for row in range(rows):
            pairs = [
                (-s, int(tree.item_of_leaf[leaf]))
                for s, leaf in zip(scores[row], leaves[row], strict=True)
                if leaf >= 0
            ]
            expected = [item for _, item in sorted(pairs)]
            assert items[row].tolist() == expected + [-1] * (9 - len(expected))


@pytest.mark.parametrize("module", MODULES, ids=["numpy", "native"][: len(MODULES)])
def test_a_mask_need_not_be_contiguous(module):
    lists, leaf_of_item = ItemLists.from_lists([[0, 1, 2, 3]]), np.array([3, 1, 0, 2], np.int32)
    table = np.array([[True, False], [False, True], [False, True], [True, False]])
    for mask in (table[:, 0], table[::-1, 0]):
        assert banned_of(module, leaf_of_item, lists, mask)[1].tolist() == [2, 3]


@pytest.mark.parametrize("module", MODULES, ids=["numpy", "native"][: len(MODULES)])
def test_unknown_indices_are_refused(module):
    leaf_of_item, one = np.arange(5, dtype=np.int32), ItemLists.from_lists([[1, 5]])
    with pytest.raises(IndexError):
        leaves_of(module, leaf_of_item, one, 3)
    for allowed in (None, np.ones(5, bool)):
        with pytest.raises(IndexError):
            banned_of(module, leaf_of_item, one, allowed)
    with pytest.raises(IndexError):
        items_of_leaves(module, leaf_of_item, np.array([[5]], np.int32), np.zeros((1, 1), np.float32))


WIDE = [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30]


@settings(max_examples=100)
@given(
    lowest=st.sampled_from([-(2**63), -7, 0, 3, 2**63 - 40]),
    known=st.lists(st.integers(0, 30), min_size=1, unique=True),
    asked=st.lists(st.integers(-5, 40), max_size=20),
    odd=st.lists(st.sampled_from([True, 1.0, "1", None, np.int64(1), *WIDE]), max_size=2),
)
def test_positions_of_ids_equal_those_of_a_dict(lowest, known, asked, odd):
    near = np.full(31, -1, np.int32)
    near[known] = np.arange(len(known))
    places = {lowest + at: index for index, at in enumerate(known)}
    ids = [lowest + at for at in asked] + odd
    plain = all(type(each) is int and -(2**63) <= each < 2**63 for each in ids)
    for module in MODULES:
        found = places_of(module, near, lowest, ids)
        if not plain:
            assert found is None
        else:
            assert found.dtype == np.int32
            assert found.tolist() == [places.get(each, -1) for each in ids]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1, 6, 40, 3000]),
    length=st.integers(0, 12),
    density=st.sampled_from([0.0, 0.003, 0.3]),
    num_asked=st.integers(0, 9),
)
def test_sums_of_rows_equal_a_product(seed, size, length, density, num_asked):
    rng = np.random.default_rng(seed)
    matrix = sparse.random(size, size, density, "csr", np.float32, random_state=np.random.RandomState(seed))
    rows, asked = (rng.integers(0, size, count).astype(np.int32) for count in (length, num_asked))
    weights = rng.random(length).astype(np.float32)
    expected = np.zeros(size, np.float32)
    for row, weight in zip(rows, weights, strict=True):
        own = slice(matrix.indptr[row], matrix.indptr[row + 1])
        expected[matrix.indices[own]] += weight * matrix.data[own]
    for module in MODULES:
        columns, sums, places = sum_of_rows(module, matrix, rows, weights, asked)
        assert (columns.dtype, sums.dtype) == (np.int32, np.float32)
        assert columns[places].tolist() == asked.tolist()
        named = set(asked.tolist()).union(
            *(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]] for row in rows)
        )
        assert sorted(columns.tolist()) == sorted(named)
        assert np.array_equal(sums, expected[columns])


@pytest.mark.parametrize("module", MODULES, ids=["numpy", "native"][: len(MODULES)])
def test_a_repeated_column_counts_twice_and_an_unknown_row_is_refused(module):
    matrix = sparse.csr_matrix((np.array([1, 2], np.float32), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2))
    one, none = np.ones(1, np.float32), np.empty(0, np.int32)
    columns, sums, _ = sum_of_rows(module, matrix, np.zeros(1, np.int32), one, none)
    assert (columns.tolist(), sums.tolist()) == ([1], [3.0])
    with pytest.raises(IndexError):
        sum_of_rows(module, matrix, np.array([2], np.int32), one, none)
