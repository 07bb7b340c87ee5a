"""Business rules against brute force over the whole ranking; k items if there are k."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.kept import Prepared
from beamwood.kernels.mixtures import Mixtures
from beamwood.models.ops import unit
from beamwood.retrieval.arrange import arranged
from beamwood.retrieval.item_vectors import item_vectors
from beamwood.retrieval.new_items.added import with_items
from beamwood.retrieval.rules import Promotion, Rules
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.types import ItemLists, Query, SearchOptions
from retrieval_cases import item_frame, retriever_of, tree_searcher, vector_searcher

NUM_ITEMS = 300
FRAME = item_frame(NUM_ITEMS)
LABELS = [cell.split("|") for cell in FRAME["category"]]


@pytest.fixture(scope="module", params=["vectors", "tree"])
def retriever(request):
    # The beam is as wide as the tree, so the search is exact.
    searcher = vector_searcher(NUM_ITEMS) if request.param == "vectors" else tree_searcher(NUM_ITEMS, beam_width=512)
    return retriever_of(searcher)


def ranking(retriever, history, **filters):
    found = retriever.recommend([retriever.items.decode(np.array(history, int))], NUM_ITEMS, **filters)
    return retriever.items.encode(found.item_ids[0]).tolist()


def capped(ranked, k, caps, default):
    counts, taken = Counter(), []
    for item in ranked:
        if len(taken) < k and all(counts[label] < caps.get(label, default) for label in LABELS[item]):
            taken.append(item)
            counts.update(LABELS[item])
    return taken


@pytest.mark.parametrize(
    ("caps", "default"), [({}, 1), ({}, 2), ({"c1": 0}, 4), ({"c1": 9}, 1), ({"c1": 1, "c3": 2}, 10**6)]
)
@pytest.mark.parametrize("k", [1, 5, 20])
def test_a_limit_per_category(retriever, caps, default, k):
    given = caps | ({} if default == 10**6 else {"default": default})
    for history in ([], [4, 9, 77]):
        ids = retriever.items.decode(np.array(history, int))
        found = retriever.recommend([ids], k, max_per_category=given, where={"price": {"lte": 25}})
        expected = capped(ranking(retriever, history, where={"price": {"lte": 25}}), k, caps, default)
        assert retriever.items.encode(found.item_ids[0]).tolist() == expected


def test_numpy_numbers_are_accepted(retriever):
    sale = {"where": {"price": {"lte": 25}}}
    given = {"max_per_category": {"default": np.int64(2)}, "diversity": np.float32(0.5)}
    given["promote"] = [sale | {"share": np.float32(0.5)}]
    plain = {"max_per_category": {"default": 2}, "diversity": 0.5, "promote": [sale | {"share": 0.5}]}
    assert retriever.recommend([[]], 10, **given) == retriever.recommend([[]], 10, **plain)


def test_excluded_items_are_never_returned(retriever):
    banned = retriever.recommend([[]], 10).item_ids[0]
    for seen in ("keep", "remove"):
        found = retriever.recommend([banned[:3], []], 10, exclude=banned, seen=seen)
        assert all(len(row) == 10 and not set(row) & set(banned) for row in found.item_ids)


def by_marginal_relevance(searcher, items, relevance, weight, k):
    own, taken = unit(item_vectors(searcher, items)), []
    while len(taken) < k:
        best = max(
            (place for place in range(len(items)) if place not in taken),
            key=lambda place: (
                (1 - weight) * relevance[place] - weight * max([float(own[place] @ own[t]) for t in taken], default=0)
            ),
        )
        taken.append(best)
    return items[taken].tolist()


def scaled(scores):
    return (scores - scores.min()) / (scores.max() - scores.min())


def test_diversity_is_maximal_marginal_relevance(retriever):
    weight, k, asked = 0.4, 8, [retriever.items.decode(np.array([3, 50, 8]))]
    found = retriever.recommend(asked, k, diversity=weight)
    candidates = retriever.recommend(asked, 3 * k)
    items, relevance = retriever.items.encode(candidates.item_ids[0]), scaled(np.array(candidates.scores[0]))
    expected = by_marginal_relevance(retriever.searcher, items, relevance, weight, k)
    assert retriever.items.encode(found.item_ids[0]).tolist() == expected
    assert retriever.recommend([[]], k, diversity=0) == retriever.recommend([[]], k)


QUERY = Query.of(ItemLists.from_lists([[3, 5, 8]]))


@pytest.mark.parametrize("kind", [vector_searcher, tree_searcher, "blend"])
def test_diversity_takes_no_measure_from_new_items_without_a_place(kind):
    fitted = Blend([Part(vector_searcher(20), 0.3)]) if kind == "blend" else kind(20)
    searcher, rules, seen = with_items(fitted, Mixtures.of([{}, {}])), Rules(diversity=0.3), [3, 5, 8]
    options = SearchOptions(ItemLists.from_lists([seen]))
    hits = fitted.search(QUERY, 17, options)
    expected = by_marginal_relevance(fitted, hits.items[0], scaled(hits.scores[0].astype(float)), 0.3, 17)
    found = arranged(searcher, QUERY, 19, options, rules)[0].items[0].tolist()
    assert found == [*expected, 20, 21], "they come after all others"


def test_diversity_takes_no_measure_from_items_beyond_the_candidates_of_a_blend():
    parts = Part(vector_searcher(NUM_ITEMS), 0.01), Part(vector_searcher(NUM_ITEMS, 1), 0.01)
    searcher, k = Blend(parts, num_candidates=10), 8
    hits = searcher.search(QUERY, 3 * k)
    assert hits.scores[0, 9] - hits.scores[0, -1] > 10, "they are scored by their order, so the test is void"
    relevance = np.append(scaled(hits.scores[0, :10].astype(float)), np.zeros(14))
    expected = by_marginal_relevance(searcher, hits.items[0], relevance, 0.2, k)
    assert arranged(searcher, QUERY, k, SearchOptions(), Rules(diversity=0.2))[0].items[0].tolist() == expected


def test_diversity_counts_the_likeness_to_promoted_items(retriever):
    weight, k, options = 0.6, 10, SearchOptions()
    sale = Prepared(np.arange(NUM_ITEMS) < 5)
    rules = Rules(diversity=weight, promotions=(Promotion("sale", 4, sale),))
    found, (names,) = arranged(retriever.searcher, QUERY, k, options, rules)
    taken = [item for item, name in zip(found.items[0].tolist(), names, strict=True) if name]
    hits = retriever.searcher.search(QUERY, 18, SearchOptions(ItemLists.from_lists([sorted(taken)])))
    relevance = np.concatenate([np.full(4, 1e6), scaled(hits.scores[0].astype(float))])
    items = np.concatenate([taken, hits.items[0]])
    expected = by_marginal_relevance(retriever.searcher, items, relevance, weight, k)[4:]
    assert [item for item, name in zip(found.items[0].tolist(), names, strict=True) if not name] == expected


def test_new_items_take_their_share_and_then_what_known_ones_leave():
    fitted, seen = vector_searcher(20), [3, 5, 8]
    searcher = with_items(fitted, Mixtures.of([{int(n): 1.0} for n in fitted.search(QUERY, 4).items[0]]))
    known, options = Prepared(np.arange(24) < 20), SearchOptions(ItemLists.from_lists([seen]))
    ranked = searcher.search(QUERY, 21, options).items[0].tolist()
    of_known = [item for item in ranked if item < 20]
    few = arranged(searcher, QUERY, 8, options, Rules(known=known, num_others=1))[0].items[0].tolist()
    first = next(item for item in ranked if item >= 20)
    assert few == [item for item in ranked if item < 20 or item == first][:8]
    every = arranged(searcher, QUERY, 21, options, Rules(known=known, num_others=1))[0].items[0].tolist()
    assert sorted(every[:18]) == sorted([*of_known, first])
    assert every[18:] == [item for item in ranked if item >= 20 and item != first]


def test_an_answer_under_rules_counts_all_its_searches(retriever):
    made = []

    class Watched:
        num_items = NUM_ITEMS

        def search(self, *given):
            made.append(replace(retriever.searcher.search(*given), rank_seconds=0.5))
            return made[-1]

    queries = Query.of(ItemLists.from_lists([[3], [5, 8]]))
    rules = Rules(promotions=(Promotion("sale", 2, Prepared(np.arange(NUM_ITEMS) < 50)),))
    hits, _ = arranged(Watched(), queries, 5, SearchOptions(), rules)
    assert len(made) == 4
    assert hits.scored.tolist() == [sum(int(part.scored[0]) for part in made[row : row + 2]) for row in (0, 2)]
    assert hits.rank_seconds == 2


def test_promoted_items_have_their_positions(retriever):
    where, k = {"brand": "brand 4"}, 10
    found = retriever.recommend([[]], k, promote=[{"where": where, "share": 0.2, "name": "sale"}])
    (names,), (ids,) = found.promotions, found.item_ids
    assert names.count("sale") == 2
    assert names.index("sale") == 2
    assert [item for item, name in zip(ids, names, strict=True) if name] == retriever.recommend(
        [[]], 2, where=where
    ).item_ids[0]
    assert len(set(ids)) == k
    organic = [item for item in retriever.recommend([[]], k + 2).item_ids[0] if item not in (ids[2], ids[7])]
    assert [item for item, name in zip(ids, names, strict=True) if not name] == organic[:8]
    cheap = {"price": {"lte": 9}}
    both = retriever.recommend([[]], k, where=cheap, promote=[{"where": where, "share": 0.2}])
    prices = [FRAME["price"][n] for n in retriever.items.encode(both.item_ids[0]).tolist()]
    assert all(price is not None and price <= 9 for price in prices), "a promise breaks no condition of the request"
    # If no promoted item is left, other items fill all positions.
    none = [{"where": {"price": {"lt": -1}}, "share": 0.5}]
    assert retriever.recommend([[]], k, promote=none).item_ids == retriever.recommend([[]], k).item_ids


def test_each_of_several_promotions_is_spread_over_the_list(retriever):
    promote = [
        {"where": {"brand": f"brand {brand}"}, "share": share, "name": name}
        for brand, share, name in ((1, 0.2, "a"), (2, 0.2, "b"), (3, 0.1, "c"))
    ]
    (names,) = retriever.recommend([[]], 20, promote=promote).promotions
    at = {name: [place for place, each in enumerate(names) if each == name] for name in "abc"}
    assert {name: len(places) for name, places in at.items()} == {"a": 4, "b": 4, "c": 2}
    for places in at.values():
        # One of them in each of as many equal parts of the list.
        assert [place * len(places) // 20 for place in places] == list(range(len(places)))


@pytest.mark.parametrize(
    ("shares", "k", "places"),
    [
        ([0.5, 0.5], 1, [1, 0]),
        ([0.5, 0.5], 3, [2, 1]),
        ([0.5, 0.5], 7, [4, 3]),
        ([0.1] * 10, 5, [1] * 5 + [0] * 5),
        ([0.1] * 10, 10, [1] * 10),
        ([0.2, 0.7, 0.1], 10, [2, 7, 1]),
        ([0.26, 0.26, 0.48], 5, [1, 1, 3]),
        ([0.5, 0.01, 0.01, 0.01], 10, [5, 1, 1, 1]),
        ([np.float32(0.3), np.float32(0.3), np.float32(0.4)], 10, [3, 3, 4]),
        ([0.05], 1, [1]),
        ([0.25], 10, [2]),
    ],
)
def test_places_are_divided_by_shares_that_sum_to_one_at_most(retriever, shares, k, places):
    promote = [{"where": {"price": {"gte": 0}}, "share": share, "name": f"{at}"} for at, share in enumerate(shares)]
    (names,) = retriever.recommend([[]], k, promote=promote).promotions
    assert [names.count(f"{at}") for at in range(len(shares))] == places


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"diversity": 2}, "diversity=2 is outside 0..1"),
        ({"max_per_category": 0}, "leaves nothing"),
        ({"max_per_category": {"c1": -1}}, "not a whole number of 0 or more"),
        ({"max_per_category": {"c9": 1}}, "'c9' is unknown; did you mean"),
        ({"promote": [{"share": 0.2}]}, "write {'where'"),
        ({"promote": [{"where": {"price": 3}}]}, "write {'where'"),
        ({"promote": [{"where": None, "share": 0.2}]}, "promote holds {'where': None, 'share': 0.2}; write {'where'"),
        ({"promote": [{"where": {"price": 3}, "share": 2}]}, "share=2 is outside"),
        ({"promote": [{"where": {"price": 3}, "share": 0.7}] * 2}, "the shares sum to 1.4; lower them"),
        ({"exclude": ["nothing"]}, "unknown, such as 'nothing'"),
        ({"exclud": []}, "no argument 'exclud'; did you mean 'exclude'"),
    ],
)
def test_invalid_rules_are_refused(retriever, rules, message):
    with pytest.raises(InputError, match=message):
        retriever.recommend([[]], 10, **rules)


def test_too_many_promotions_are_refused_before_their_filters_are_made(retriever):
    promote = [{"where": {"price": {"lte": 1000 + each}}, "share": 0.1} for each in range(11)]
    before = len(retriever.names.filters.cache)
    with pytest.raises(InputError, match=r"the shares sum to 1\.1; lower them"):
        retriever.recommend([[]], 10, promote=promote)
    assert len(retriever.names.filters.cache) == before


def test_similar_items(retriever):
    items = retriever.items.decode(np.array([7, 8]))
    by_model = retriever.similar(items, 5)
    assert by_model.item_ids == retriever.recommend([items], 5).item_ids
    (found,) = retriever.similar(items[:1], 5, by="vectors").item_ids
    own = unit(item_vectors(retriever.searcher, np.arange(NUM_ITEMS)))
    expected = [n for n in np.argsort(-(own @ own[7]), kind="stable").tolist() if n != 7][:5]
    assert retriever.items.encode(found).tolist() == expected
    for by in ("model", "vectors"):
        (cheap,) = retriever.similar(items, 5, by=by, where={"price": {"lte": 9}}).item_ids
        prices = [FRAME["price"][n] for n in retriever.items.encode(cheap).tolist()]
        assert len(prices) == 5
        assert all(price is not None and price <= 9 for price in prices)
    with pytest.raises(InputError, match="by='vector' is unknown; did you mean 'vectors'"):
        retriever.similar(items, 5, by="vector")
    with pytest.raises(InputError, match="at least one item"):
        retriever.similar([], 5)


def test_similar_by_the_tree():
    retriever = retriever_of(tree_searcher(NUM_ITEMS))
    tree = retriever.searcher.tree
    (found,) = retriever.similar(retriever.items.decode(np.array([7])), 20, by="tree").item_ids
    leaf, depths = int(tree.leaf_of_item[7]), []
    for item in retriever.items.encode(found).tolist():
        levels = range(1, tree.shape.depth + 1)
        ancestors = [tree.shape.ancestors(np.array([leaf, tree.leaf_of_item[item]]), level) for level in levels]
        depths.append(sum(one == other for one, other in ancestors))
    assert depths == sorted(depths, reverse=True)
    with pytest.raises(InputError, match="has no tree"):
        retriever_of(vector_searcher(30)).similar(
            ["nothing"][:0] or [retriever_of(vector_searcher(30)).items.ids[0]], 3, by="tree"
        )
