"""New items as mixtures of known items: a mixture of one item scores like it, and other items do not change."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from beamwood.errors import InputError
from beamwood.kernels.links import LINKS
from beamwood.kernels.mixtures import Mixtures
from beamwood.kernels.reference import log_sigmoid
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.new_items import extended_tree
from beamwood.retrieval.new_items.added import with_items
from beamwood.retrieval.new_items.extended import Extended
from beamwood.retrieval.new_items.extended_tree import ExtendedTree
from beamwood.retrieval.new_items.slots import slots_of
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.ways import Way, Ways
from beamwood.tree import Shape, Tree
from beamwood.types import ItemLists, Query, SearchOptions
from din_cases import random_light, random_weights
from retrieval_cases import vector_searcher

N = 300
TWINS = {3: 1.0}, {250: 1.0}, {77: 1.0}


def tree_searcher(shape=Shape(5, 4, 4), *, beam_width=320, link="softmax", light=False, neighbours=0, seed=0):
    """A tree of 300 items on 320 leaves."""
    rng = np.random.default_rng(seed)
    tree = Tree.of_order(rng.permutation(N), shape)
    weights = random_weights(rng, shape.num_nodes, similarity=6, neighbours=neighbours)
    if neighbours:
        listed = weights.terms["neighbours"].arrays["leaves"]
        listed[listed >= 0] %= shape.capacity
    if light:
        weights = replace(weights, light=random_light(rng, shape.num_nodes, weights.history_length))
    return TreeSearcher(weights, tree, beam_width=beam_width, link=LINKS[link])


def full_tree(**options):
    return tree_searcher(Shape(N, 2, 1), **options)


def counting(seed=0):
    rng = np.random.default_rng(seed)
    matrix = sparse.random(N, N, 0.2, "csr", dtype=np.float32, random_state=rng)
    return NeighbourSearcher(matrix, rng.integers(0, 9, N), decay=0.9)


def blend():
    parts = Part(tree_searcher()), Part(vector_searcher(N), 0.3), Part(counting(), 0.5)
    return Blend(parts, seen_weight=0.5, num_candidates=400, fallback=PopularitySearcher(np.arange(N)))


SEARCHERS = {
    "tree": tree_searcher,
    "path": lambda: tree_searcher(link="path"),
    "lists": lambda: tree_searcher(neighbours=8),
    "full": full_tree,
    "full lists": lambda: full_tree(neighbours=8),
    "full path": lambda: full_tree(link="path"),
    "vectors": lambda: vector_searcher(N),
    "neighbours": counting,
    "popularity": lambda: PopularitySearcher(np.random.default_rng(0).integers(0, 99, N)),
    "blend": blend,
}


def queries(num_items=N, seed=1):
    """No history has an item with a twin, because seen items have their own weight."""
    rng = np.random.default_rng(seed)
    others = np.setdiff1d(np.arange(num_items), [3, 77, 250])
    return Query.of(ItemLists.from_lists([rng.choice(others, size) for size in (1, 3, 9, 30, 2, 12)]))


# With scores along the path, a leaf's score depends on its path, and a new item's leaf has another path.
@pytest.mark.parametrize("name", [name for name in SEARCHERS if name != "path"])
def test_a_mixture_of_one_item_is_found_next_to_it_with_its_score(name):
    fitted = SEARCHERS[name]()
    extended, query = with_items(fitted, Mixtures.of(TWINS)), queries()
    assert extended.num_items == N + 3
    hits = extended.search(query, N + 3)
    for row in range(len(query)):
        place = {item: at for at, item in enumerate(hits.items[row].tolist())}
        assert len(place) == N + 3
        for new, twin in zip(range(N, N + 3), (3, 250, 77), strict=True):
            assert np.isclose(hits.scores[row, place[new]], hits.scores[row, place[twin]], rtol=1e-5, atol=1e-6)
    asked = np.tile(np.array([3, N, 250, N + 1, 77, N + 2, -1]), (len(query), 1))
    scores = extended.score(query, asked)
    np.testing.assert_allclose(scores[:, 0:6:2], scores[:, 1:6:2], rtol=1e-5, atol=1e-6)
    assert np.isneginf(scores[:, 6]).all()


@pytest.mark.parametrize("name", SEARCHERS)
def test_known_items_keep_their_results_and_scores(name):
    fitted, query, known = SEARCHERS[name](), queries(), np.arange(N + 3) < N
    before, extended = fitted.search(query, 12), with_items(fitted, Mixtures.of(TWINS))
    after, again = extended.search(query, 12, SearchOptions(allowed=known)), fitted.search(query, 12)
    for hits in (after, again):
        assert np.array_equal(hits.items, before.items)
        np.testing.assert_allclose(hits.scores, before.scores, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in SEARCHERS if name not in ("popularity", "path")])
def test_a_twin_in_a_history_has_the_effect_of_its_item(name):
    fitted = SEARCHERS[name]()
    extended, known = with_items(fitted, Mixtures.of(TWINS)), np.arange(N + 3) < N
    with_item = Query.of(ItemLists.from_lists([[7, 250, 4], [77]]))
    with_twin = Query.of(ItemLists.from_lists([[7, N + 1, 4], [N + 2]]))
    others = known.copy()
    others[[4, 7, 77, 250]] = False
    ours, theirs = (extended.search(query, 9, SearchOptions(allowed=others)) for query in (with_twin, with_item))
    assert np.array_equal(ours.items, theirs.items)
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_history_beyond_the_new_items_is_refused(name):
    extended, query = with_items(SEARCHERS[name](), Mixtures.of(TWINS)), Query.of(ItemLists.from_lists([[7, N + 3]]))
    for ask in (lambda: extended.search(query, 5), lambda: extended.score(query, np.array([[1, N]]))):
        with pytest.raises(InputError, match=f"holds item index {N + 3}"):
            ask()


def test_log_probabilities_beside_a_tree_are_those_of_its_scores():
    """Also where an item beside the tree is in the history: with one level, the path is its last step."""
    query = Query.of(ItemLists.from_lists([[1, 2, N], [N, N + 1, 7], [N + 1] * 5, [1, 2, 3]]))
    items, mixtures = np.tile([N, N + 1], (4, 1)), Mixtures.of([{5: 1.0, 6: 1.0}, {9: 2.0, 11: 1.5}])
    for seed in range(3):
        by_path, plain = (with_items(full_tree(link=link, seed=seed), mixtures) for link in ("path", "softmax"))
        scores, expected = by_path.score(query, items), log_sigmoid(plain.score(query, items))
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
        assert scores.max() <= 0


@pytest.mark.parametrize("neighbours", [0, 8])
def test_a_new_item_beside_the_tree_is_listed_once_to_those_who_have_seen_it(neighbours):
    searcher = with_items(full_tree(neighbours=neighbours), Mixtures.of(TWINS))
    assert searcher.num_beside == 3
    query = Query.of(ItemLists.from_lists([[5, N, 9, N + 1, N]]))
    hits = searcher.search(query, N + 3)
    assert sorted(hits.items[0].tolist()) == list(range(N + 3))
    assert np.allclose(hits.scores, searcher.score(query, hits.items), atol=1e-5)


@pytest.mark.parametrize("name", SEARCHERS)
def test_filters_and_exclusions_hold_for_new_items(name):
    extended, query = with_items(SEARCHERS[name](), Mixtures.of(TWINS)), queries()
    only = np.zeros(N + 3, bool)
    only[[5, N, N + 2]] = True
    hits = extended.search(query, 4, SearchOptions(allowed=only))
    assert (np.sort(hits.items, axis=1) == [-1, 5, N, N + 2]).all()
    excluded = ItemLists.from_lists([[5, N]] * len(query))
    hits = extended.search(query, 4, SearchOptions(excluded, only))
    assert (np.sort(hits.items, axis=1) == [-1, -1, -1, N + 2]).all()
    hits = extended.search(query, N + 3, SearchOptions(excluded))
    assert not np.isin(hits.items, [5, N]).any()
    assert (hits.items >= 0).sum(axis=1).tolist() == [N + 1] * len(query)


@pytest.mark.filterwarnings("error")
def test_a_filter_of_items_beside_the_tree_alone():
    rng, shape = np.random.default_rng(0), Shape(4, 2, 3)
    tree = Tree.of_order(rng.permutation(16), shape)
    fitted = TreeSearcher(random_weights(rng, shape.num_nodes), tree, beam_width=1)
    extended = with_items(fitted, Mixtures.of([{item: 1.0} for item in range(4)]))
    assert extended.num_beside == 4
    # More than the children of a beam of one.
    hits = extended.search(Query.of(ItemLists.from_lists([[1, 2]])), 1, SearchOptions(allowed=np.arange(20) >= 16))
    assert hits.items[0, 0] >= 16


@pytest.mark.parametrize("name", SEARCHERS)
def test_an_empty_mixture_comes_last_and_can_be_found_by_a_filter(name):
    extended, query = with_items(SEARCHERS[name](), Mixtures.of([{}, {3: 1.0}])), queries()
    assert (extended.search(query, N + 2).items[:, -1] == N).all()
    alone = np.arange(N + 2) == N
    assert (extended.search(query, 1, SearchOptions(allowed=alone)).items == N).all()


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("mixtures", [[], [{}], [{}, {}]], ids=["none", "one of nothing", "two of nothing"])
def test_zero_new_items_and_only_empty_mixtures_are_allowed(name, mixtures):
    """A searcher may have no new items, or only items that it cannot score."""
    fitted, query, more = SEARCHERS[name](), queries(), len(mixtures)
    before = fitted.search(query, 12)
    for extended in (with_items(fitted, Mixtures.of(mixtures)), _of_kind(fitted, mixtures)):
        known = np.arange(N + more) < N
        few = known & (np.arange(N + more) % 50 == 7)
        excluded = ItemLists.from_lists([[7, 57]] * len(query))
        hits = extended.search(query, 12)
        assert np.array_equal(hits.items, before.items)
        hits = extended.search(query, N + more + 3, SearchOptions(excluded, few))
        assert ((hits.items >= 0).sum(axis=1) == 4).all()
        nobody = np.zeros(N + more, bool)
        assert (extended.search(query, 3, SearchOptions(allowed=nobody)).items == -1).all()
        all_items = extended.search(query, N + more)
        assert (np.sort(all_items.items, axis=1) == np.arange(N + more)).all()
        none = np.empty((len(query), 0), np.int32)
        assert extended.score(query, none).shape == (len(query), 0)
        nobody_asks = Query.of(ItemLists.from_lists([]))
        assert extended.search(nobody_asks, 4).items.shape == (0, 4)


def _of_kind(fitted, mixtures):
    """A searcher wrapper for new items that may have none; such a folder can be saved."""
    if isinstance(fitted, Blend):
        return with_items(fitted, Mixtures.of(mixtures))
    return (ExtendedTree if isinstance(fitted, TreeSearcher) else Extended)(fitted, Mixtures.of(mixtures))


@pytest.mark.parametrize("kind", ["steer", "cascade"])
@pytest.mark.parametrize("shape", [Shape(5, 4, 4), Shape(5, 4, 5)])
def test_a_light_head_finds_new_items_on_spare_leaves(kind, shape):
    fitted = tree_searcher(shape, light=True)
    fitted.ways = Ways((Way(kind, 40, 40), Way("beam", 320)), 0)
    extended, query = with_items(fitted, Mixtures.of(TWINS)), queries()
    assert isinstance(extended, ExtendedTree)
    assert (extended.tree.leaf_of_item[N:] >= 0).all()
    head, first = extended.weights.light, shape.level_offset(shape.depth)
    for new, twin in zip(range(N, N + 3), (3, 250, 77), strict=True):
        rows = first + extended.tree.leaf_of_item[[new, twin]]
        assert (head.nodes[rows[0]] == head.nodes[rows[1]]).all()
        assert head.biases[rows[0]] == head.biases[rows[1]]
    hits = extended.search(query, 40)
    assert np.isin(range(N, N + 3), hits.items).any(), "no new item is among the best of any query, so the test is void"


def test_a_mixture_of_two_scores_as_their_mean_vector():
    fitted, query = tree_searcher(), queries()
    extended = with_items(fitted, Mixtures.of([{3: 3.0, 9: 1.0}]))
    tree, first = extended.tree, extended.tree.shape.level_offset(4)
    nodes = fitted.weights.nodes
    mean = 0.75 * nodes[first + tree.leaf_of_item[3]] + 0.25 * nodes[first + tree.leaf_of_item[9]]
    np.testing.assert_allclose(nodes[first + tree.leaf_of_item[N]], mean, rtol=1e-6)
    beside = with_items(full_tree(), Mixtures.of([{3: 3.0, 9: 1.0}]))
    item = np.full((len(query), 1), N)
    full = full_tree()
    full.weights.nodes[7] = 0.75 * full.weights.nodes[full.tree.leaf_of_item[3]]
    full.weights.nodes[7] += 0.25 * full.weights.nodes[full.tree.leaf_of_item[9]]
    vectors = full.weights.terms["similarity"].arrays["vectors"]
    vectors[7] = 0.75 * vectors[full.tree.leaf_of_item[3]] + 0.25 * vectors[full.tree.leaf_of_item[9]]
    full = TreeSearcher(full.weights, full.tree, beam_width=320)
    asked = np.full((len(query), 1), full.tree.item_of_leaf[7])
    without = Query.of(ItemLists.from_lists([row[row != asked[0, 0]] for row in query.histories]))
    np.testing.assert_allclose(beside.score(without, item), full.score(without, asked), rtol=1e-4, atol=1e-5)


def test_a_new_item_gets_a_leaf_near_the_parent_of_most_of_its_mixture():
    fitted = tree_searcher()
    extended = with_items(fitted, Mixtures.of([{3: 0.2, 250: 0.8}]))
    shape, leaves = extended.tree.shape, extended.tree.leaf_of_item
    assert len(np.unique(shape.ancestors(leaves[[N, 250]], 2))) == 1
    empty = np.flatnonzero(fitted.tree.item_of_leaf < 0)
    under = empty[shape.ancestors(empty, 3) == shape.ancestors(leaves[250], 3)]
    assert len(under) == 0 or leaves[N] in under


def test_leaves_of_searchers_in_use_are_not_overwritten():
    """A new version does not change searchers in use; leaves that no searcher uses are free again."""
    fitted, query = tree_searcher(), queries()
    first = with_items(fitted, Mixtures.of(TWINS))
    before, room = first.search(query, 20), np.count_nonzero(fitted.tree.item_of_leaf < 0)
    second = with_items(first, Mixtures.of([{3: 1.0}, {8: 1.0}]))
    assert second.num_items == N + 2
    kept, new = second.tree.leaf_of_item[N:]
    assert kept == first.tree.leaf_of_item[N], "an existing mixture is not written again"
    assert new not in first.tree.leaf_of_item[N:]
    after = first.search(query, 20)
    assert np.array_equal(before.items, after.items)
    assert np.array_equal(before.scores, after.scores)
    del first, after
    third = with_items(fitted, Mixtures.of([{item: 1.0} for item in range(100, 100 + room)]))
    assert np.count_nonzero(third.tree.leaf_of_item[N:] >= 0) <= room - 2
    del second, third
    # Items accept leaves far from the preferred one, so all spare leaves are used.
    fourth = with_items(fitted, Mixtures.of([{item: 1.0} for item in range(100, 100 + room)]))
    assert np.count_nonzero(fourth.tree.leaf_of_item[N:] >= 0) > room / 2


def test_new_items_on_a_copy_leave_its_own_as_they_are():
    first, query = with_items(tree_searcher(), Mixtures.of(TWINS)), queries()
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        before = copied.search(query, 20)
        more = with_items(copied, Mixtures.of([{item: 1.0} for item in range(100, 140)]))
        assert not np.isin(copied.tree.leaf_of_item[N:], more.tree.leaf_of_item[N:]).any()
        after = copied.search(query, 20)
        assert np.array_equal(before.items, after.items)
        assert np.array_equal(before.scores, after.scores)


def test_items_without_a_mixture_are_looked_at_only_where_others_run_out():
    fitted, query = tree_searcher(), queries()
    extended = with_items(fitted, Mixtures.of([{}] * 50))
    own, other = extended.search(query, 20), fitted.search(query, 20)
    assert np.array_equal(own.items, other.items)
    assert np.array_equal(own.scored, other.scored)
    whole = extended.search(query, N + 50).items
    assert np.array_equal(np.sort(whole[:, :N]), np.tile(np.arange(N), (len(query), 1)))
    assert np.array_equal(whole[:, N:], np.tile(np.arange(N, N + 50), (len(query), 1)))
    scores = extended.score(query, np.tile([3, N + 7], (len(query), 1)))
    assert (scores[:, 1] < scores[:, 0]).all()


def test_more_items_than_spare_leaves_are_refused(monkeypatch):
    monkeypatch.setattr(extended_tree, "MOST_BESIDE", 5)
    room = 20
    fitted, query = tree_searcher(), queries()
    assert np.count_nonzero(fitted.tree.item_of_leaf < 0) == room
    extended = with_items(fitted, Mixtures.of([{item: 1.0} for item in range(room + 5)]))
    leaves = extended.tree.leaf_of_item[N:]
    assert len(set(leaves[leaves >= 0].tolist())) == room
    assert np.count_nonzero(leaves < 0) == 5
    assert len(set(extended.search(query, N + 25).items[0].tolist())) == N + 25
    with pytest.raises(InputError, match=r"1 of 26 new items .* tree.spare"):
        with_items(fitted, Mixtures.of([{item: 1.0} for item in range(room + 6)]))
    # Erased items, and those that nothing places, take no room.
    extended = with_items(fitted, Mixtures.of([*[{}] * 7, *({item: 1.0} for item in range(room + 5)), *[{}] * 7]))
    assert (extended.num_beside, np.count_nonzero(extended.tree.leaf_of_item[N:] >= 0)) == (5, room)
    with pytest.raises(InputError, match="a mixture holds index 300"):
        with_items(fitted, Mixtures.of([{N: 1.0}]))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_weights_are_positive_numbers(weight):
    with pytest.raises(InputError, match="one positive number"):
        Mixtures.of([{3: weight}])


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_searcher_is_restored_with_its_new_items(name):
    extended, query = with_items(SEARCHERS[name](), Mixtures.of([*TWINS, {5: 1.0, 6: 2.0}, {}])), queries()
    again = restore_searcher(extended.kind, *extended.export())
    ours, theirs = extended.search(query, 20), again.search(query, 20)
    assert np.array_equal(ours.items, theirs.items)
    assert np.array_equal(ours.scores, theirs.scores)


def mixtures_for(rng, count, num_items):
    """Mixtures of whole weights, so that ties are frequent; some are empty."""
    return Mixtures.of(
        [
            {int(item): float(rng.integers(1, 4)) for item in rng.integers(0, num_items, rng.integers(0, 6))}
            for _ in range(count)
        ]
    )


def test_equal_rows_of_mixtures():
    rng = np.random.default_rng(0)
    one = mixtures_for(rng, 60, 5)
    other = one.take(np.where(rng.random(50) < 0.5, np.arange(50), rng.integers(0, 60, 50)))
    expected = [
        dict(zip(one.lists[row].tolist(), one.take([row]).weights.tolist(), strict=True))
        == dict(zip(other.lists[row].tolist(), other.take([row]).weights.tolist(), strict=True))
        for row in range(50)
    ]
    assert one.same(other).tolist() == other.same(one).tolist() == expected
    assert 0 < sum(expected) < 50
    assert len(one.same(Mixtures.of([]))) == 0


def test_the_main_leaf_of_a_mixture():
    """Below the parent with most of the weight, the first of equals, the leaf with most, again the first."""
    rng, searcher = np.random.default_rng(1), tree_searcher()
    mixtures, tree = mixtures_for(rng, 200, N), searcher.tree
    some = np.flatnonzero(mixtures.lists.lengths > 0)
    found = slots_of(searcher)._main_leaves(mixtures.take(some)).tolist()
    for row, leaf in zip(some.tolist(), found, strict=True):
        leaves, weights = tree.leaf_of_item[mixtures.lists[row]], mixtures.take([row]).weights
        parents = tree.shape.ancestors(leaves, tree.shape.depth - 1)
        sums = {parent: weights[parents == parent].astype(float).sum() for parent in sorted(set(parents.tolist()))}
        best = max(sums, key=lambda parent: sums[parent])
        below = parents == best
        assert leaf == leaves[below][weights[below].argmax()]


@pytest.mark.parametrize("kind", ["tree", "vectors", "neighbours", "blend"])
def test_a_history_of_items_without_a_mixture_is_no_history(kind):
    """A blend answers it by the fallback: the model alone gave every item one score."""
    parts = Part(SEARCHERS[kind](), gate="history"), Part(counting(), 0.5)
    fitted = Blend(parts, fallback=PopularitySearcher(np.arange(N)))
    extended = with_items(fitted, Mixtures.of([{}, {250: 1.0}]))
    expected = extended.search(Query.of(ItemLists.from_lists([[], [5]])), 20)
    assert expected.items[0].tolist() == list(range(N - 1, N - 21, -1))
    for each in (extended, restore_searcher(extended.kind, *extended.export())):
        hits = each.search(Query.of(ItemLists.from_lists([[N], [N, 5]])), 20)
        np.testing.assert_array_equal(hits.items, expected.items)
        np.testing.assert_array_equal(hits.scores, expected.scores)
