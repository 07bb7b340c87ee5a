"""The cost of an answer grows with what is asked for, that of a change with what changes: not with the catalogue."""

import tracemalloc

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from beamwood.kept import Prepared
from beamwood.kernels.mixtures import Mixtures
from beamwood.models.ops import unit
from beamwood.retrieval.columns.label_column import _coded
from beamwood.retrieval.item_vectors import item_vectors
from beamwood.retrieval.new_items.added import with_items
from beamwood.retrieval.new_items.slots import Slots, slots_of
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.similar import similar_items
from beamwood.retrieval.top_k import descending, in_order
from beamwood.tree import Shape, Tree
from beamwood.types import ItemLists, Query, SearchOptions
from retrieval_cases import tree_searcher, vector_searcher

NUM_ITEMS = 200_000


def most_bytes(work):
    """The most that is allocated at a time by a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def neighbours():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, NUM_ITEMS, (2, 10 * NUM_ITEMS))
    similarity = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (NUM_ITEMS, NUM_ITEMS))
    return NeighbourSearcher(similarity, rng.integers(0, 50, NUM_ITEMS))


@pytest.fixture(scope="module")
def large_tree():
    return tree_searcher(NUM_ITEMS)


def test_neighbours_are_found_without_a_pass_over_the_catalogue(neighbours):
    rng = np.random.default_rng(1)
    query = Query.of(ItemLists.from_lists([rng.integers(0, NUM_ITEMS, 20)]))
    allowed = np.ones(NUM_ITEMS, bool)
    allowed[7] = False
    prepared = Prepared(allowed)
    excluded = query.histories.distinct()
    for options in (SearchOptions(excluded), SearchOptions(excluded, allowed, prepared=prepared)):
        neighbours.search(query, 10, options)
        assert most_bytes(lambda options=options: neighbours.search(query, 10, options)) < NUM_ITEMS / 2


def test_what_a_history_adds_is_read_by_row(neighbours):
    history = ItemLists.from_lists([np.arange(20)])
    item = int(neighbours.similarity[3].indices[0])
    shares = neighbours.shares(history, item)
    near = neighbours.similarity[:, [item]].toarray().ravel()[:20]
    assert shares == [(place, score) for place, score in enumerate(near.tolist()) if score]
    assert most_bytes(lambda: neighbours.shares(history, item)) < NUM_ITEMS / 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_few_allowed_items_are_in_the_order_of_all(share):
    rng = np.random.default_rng(2)
    values = rng.integers(0, 9, 5000).astype(np.float32)
    order, allowed = np.argsort(-values, kind="stable").astype(np.int32), rng.random(5000) < share
    np.testing.assert_array_equal(in_order(order, values, allowed), order[allowed[order]])


def by_tree(tree, asked, allowed):
    """All other allowed items by common ancestors, then by the distance of leaves; ties by the lower item."""
    shape, keys = tree.shape, {}
    for item in np.flatnonzero(allowed).tolist():
        own = int(tree.leaf_of_item[item])
        for leaf in tree.leaf_of_item[asked].tolist():
            levels = range(1, shape.depth + 1)
            common = sum(own // shape.leaves_below(level) == leaf // shape.leaves_below(level) for level in levels)
            keys[item] = max(keys.get(item, (-1, 0)), (common, -abs(own - leaf)))
    return sorted((item for item in keys if item not in asked), key=lambda item: (-keys[item][0], -keys[item][1], item))


@pytest.mark.parametrize("k", [1, 3, 40, 250, 300])
@pytest.mark.parametrize("share", [0.05, 0.6, 1.0])
def test_similar_items_by_the_tree_are_the_best_of_all(k, share):
    rng = np.random.default_rng(k)
    searcher, allowed = tree_searcher(300), rng.random(300) < share
    asked = rng.integers(0, 300, 2).astype(np.int32)
    options = SearchOptions() if share == 1 else SearchOptions(allowed=allowed)
    hits = similar_items(searcher, asked, k, options, by="tree")
    expected = by_tree(searcher.tree, asked, allowed)[:k]
    assert hits.items[0].tolist() == expected + [-1] * (k - len(expected))
    assert (np.diff(hits.scores[0, : len(expected)]) <= 0).all()


def test_similar_items_take_no_arrays_of_all(large_tree):
    tree, item = large_tree.tree, np.array([NUM_ITEMS // 2], np.int32)
    _, _ = tree.live_counts, tree.leaf_of_item
    assert most_bytes(lambda: similar_items(large_tree, item, 10, SearchOptions(), by="tree")) < NUM_ITEMS / 2
    width = large_tree.weights.terms["similarity"].arrays["vectors"].shape[1]
    by_vectors = most_bytes(lambda: similar_items(large_tree, item, 10, SearchOptions(), by="vectors"))
    assert by_vectors < 4 * NUM_ITEMS * width, "the directions of all items are in memory at a time"


def test_equal_new_items_look_at_their_leaves_once(monkeypatch):
    """Of those of a category, whose mixtures are equal, each keeps a leaf that the others have not."""
    monkeypatch.setattr("beamwood.retrieval.new_items.extended_tree.MOST_BESIDE", 0)
    searcher, equal, looked_at = tree_searcher(3000), {7: 1.0}, []
    first, slots = with_items(searcher, Mixtures.of([equal] * 20)), slots_of(searcher)
    other = with_items(searcher, Mixtures.of([{8: 1.0}]))

    class Noting(list):
        def __iter__(self):
            return (looked_at.append(leaf) or leaf for leaf in super().__iter__())

    slots._written = {key: Noting(leaves) for key, leaves in slots._written.items()}
    held, calls, placed = sum(map(len, slots._written.values())), [], Slots.placed
    monkeypatch.setattr(Slots, "placed", lambda *args: calls.append(args) or placed(*args))
    second = with_items(searcher, Mixtures.of([equal] * 21))
    assert held == 21
    assert 20 <= len(looked_at) <= held * len(calls)
    leaves = second.tree.leaf_of_item[3000:].tolist()
    assert leaves[:20] == first.tree.leaf_of_item[3000:].tolist()
    assert len(set(leaves) - {-1, int(other.tree.leaf_of_item[-1])}) == 21


def test_vectors_of_new_items_as_before_are_not_mixed_anew(monkeypatch):
    searcher, rng, mixed, plain = vector_searcher(300), np.random.default_rng(6), [], Mixtures.mixed
    monkeypatch.setattr(Mixtures, "mixed", lambda own, rows: mixed.append(len(own)) or plain(own, rows))
    rows = [{int(item): float(weight) for item, weight in rng.integers(1, 9, (3, 2))} for _ in range(60)]
    with_items(searcher, Mixtures.of(rows))
    rows[7] = {11: 1.0}
    again = Mixtures.of([*rows, {12: 1.0}])
    found = with_items(searcher, again)
    assert mixed == [60, 2]
    assert (found._vectors_MD == with_items(vector_searcher(300), again)._vectors_MD).all()
    np.testing.assert_allclose(found._vectors_MD, plain(again, searcher.vectors), rtol=1e-6)


def test_mixtures_that_were_overwritten_are_forgotten():
    """A server that changes its new items for months keeps no more mixtures than leaves."""
    searcher = tree_searcher(300)
    empty = np.flatnonzero(searcher.tree.item_of_leaf < 0)
    near = int(searcher.tree.item_of_leaf[empty[0] - 1])
    for turn in range(len(empty) + 20):
        assert with_items(searcher, Mixtures.of([{near: 2.0 + turn, 8: 1.0}])).num_beside == 0
    assert len(slots_of(searcher)._written) <= len(empty)


def test_new_items_as_before_keep_their_leaves_without_a_look(monkeypatch):
    searcher, rng = tree_searcher(3000), np.random.default_rng(5)
    rows = [
        {int(item): float(weight) for item, weight in zip(*rng.integers(1, 9, (2, 3)), strict=True)} for _ in range(60)
    ]
    first, keys = with_items(searcher, Mixtures.of(rows)), []
    leaves, plain = first.tree.leaf_of_item[3000:].copy(), Mixtures.keys
    monkeypatch.setattr(Mixtures, "keys", lambda own: keys.append(len(own)) or plain(own))
    rows[7] = {11: 1.0}
    second = with_items(searcher, Mixtures.of([*rows, {12: 1.0}]))
    same = [place for place in range(60) if place != 7]
    assert (second.tree.leaf_of_item[3000:3060][same] == leaves[same]).all()
    assert max(keys) <= np.count_nonzero(leaves < 0) + 2


@pytest.mark.parametrize("make", [tree_searcher, vector_searcher])
def test_similar_items_by_vectors_normalise_what_was_asked_alone(make, monkeypatch):
    """The other items are read once, as they lie in memory; new ones are after the known."""
    searcher, rows = with_items(make(300), Mixtures.of([{7: 1.0}, {3: 1.0, 9: 2.0}])), []
    vectors = unit(item_vectors(searcher, np.arange(302))).astype(np.float64)
    monkeypatch.setattr("beamwood.retrieval.similar.unit", lambda given: rows.append(len(given)) or unit(given))
    hits = similar_items(searcher, np.array([5, 301], np.int32), 302, SearchOptions(), by="vectors")
    expected = vectors @ vectors[[5, 301]].mean(axis=0)
    found = hits.items[0, :300]
    assert sorted(found.tolist()) == [item for item in range(302) if item not in (5, 301)]
    np.testing.assert_allclose(hits.scores[0, :300], expected[found], atol=1e-6)
    assert rows == [2]


def test_near_leaves_of_millions_are_told_apart():
    """At this size float32 has one number for the distances of several leaves."""
    size = 40_000_000
    shape = Shape(size // 20, 20, 2)
    tree = object.__new__(Tree)
    # Only the leaves that are looked at; the others belong to no item that is.
    leaves = np.arange(19, -1, -1, dtype=np.int32) + size // 2
    item_of_leaf = np.zeros(0, np.int32)
    tree.__dict__.update(shape=shape, item_of_leaf=item_of_leaf, leaf_of_item=leaves, live_counts=())
    searcher = object.__new__(TreeSearcher)
    searcher.__dict__.update(tree=tree)
    asked = np.array([0], np.int32)
    near = np.arange(20, dtype=np.int32)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("beamwood.retrieval.similar._near", lambda *_: near)
        hits = similar_items(searcher, asked, 19, SearchOptions(), by="tree")
    assert hits.items[0].tolist() == [*range(1, 20)]


@pytest.mark.parametrize("most", [0, 3, 2**16 - 1, 2**16, 2**20])
@pytest.mark.parametrize("step", [1, 0.25])
def test_the_order_of_counts(most, step):
    rng = np.random.default_rng(3)
    counts = (rng.integers(0, most + 1, 4000) * step).astype(np.float32)
    np.testing.assert_array_equal(descending(counts), np.argsort(-counts, kind="stable"))
    ours = NeighbourSearcher(sparse.csr_matrix((4000, 4000), dtype=np.float32), counts)
    np.testing.assert_array_equal(ours._by_filler, np.argsort(1 / (1 + counts), kind="stable"))
    assert descending(np.empty(0, np.float32)).tolist() == []


@pytest.mark.parametrize("distinct", [3, 11_000, 10**9])
def test_labels_that_mostly_differ_are_coded_as_others(distinct, monkeypatch):
    rng = np.random.default_rng(4)
    texts = pl.Series([f"title {n} \u00e9" for n in rng.integers(0, distinct, 20_000)], dtype=pl.String)
    names, codes = _coded(texts)
    monkeypatch.setattr("beamwood.retrieval.columns.label_column._MANY", 10**6)
    plain_names, plain = _coded(texts)
    assert names.to_list() == plain_names.to_list() == sorted(set(texts.to_list()))
    np.testing.assert_array_equal(codes, plain)
    assert codes.dtype == np.int32
