"""Retrievers of every kind: ids, filters, save and load, and no import of torch."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from beamwood.data import Vocabulary
from beamwood.data.features import fit_columns
from beamwood.errors import ArtefactError, InputError
from beamwood.fitting.blend import BlendWeights
from beamwood.fitting.stages import blend_of_stages
from beamwood.kernels.din import DinWeights, Layer
from beamwood.models.encoders import ENCODERS
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import sequence_searcher as sequence_searcher_of
from beamwood.tree import random_tree
from beamwood.types import ItemLists, Query, QueryNeeds, SearchOptions

NUM_ITEMS = 60


def columns(categories):
    return ItemColumns.of(pl.DataFrame({"category": categories}))


def layer(rng, inputs, outputs):
    weight = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
    return Layer(weight, rng.normal(0, 0.1, outputs).astype(np.float32), np.full(outputs, 0.3, np.float32))


def tree_searcher(seed=0):
    rng = np.random.default_rng(seed)
    tree = random_tree(NUM_ITEMS, rng)
    nodes = rng.normal(0, 1, (tree.shape.num_nodes, 4)).astype(np.float32)
    windows = np.array([3, 1], np.int64)
    weights = DinWeights(nodes, layer(rng, 12, 5), layer(rng, 5, 1), windows, (layer(rng, 12, 6), layer(rng, 6, 1)))
    return TreeSearcher(weights, tree, beam_width=8)


def neighbour_searcher(seed=0):
    rng = np.random.default_rng(seed)
    matrix = sparse.random(NUM_ITEMS, NUM_ITEMS, 0.2, random_state=np.random.RandomState(seed), format="csr")
    return NeighbourSearcher(matrix, rng.integers(0, 50, NUM_ITEMS), decay=0.9, length=5)


def popularity_searcher(seed=0):
    return PopularitySearcher(np.random.default_rng(seed).integers(0, 50, NUM_ITEMS))


def sequence_searcher(seed=0):
    rng = np.random.default_rng(seed)
    names = ["attention_norm", "feed_norm", "query", "key", "value", "output", "inner", "outer"]
    sizes = {"inner": (16, 4), "outer": (4, 16)}
    arrays = {"items.weight": rng.normal(size=(NUM_ITEMS, 4)), "positions": rng.normal(size=(6, 4))}
    for name in names:
        shape = (4,) if "norm" in name else sizes.get(name, (4, 4))
        arrays[f"blocks.0.{name}.weight"] = rng.normal(size=shape)
        arrays[f"blocks.0.{name}.bias"] = rng.normal(size=shape[0])
    arrays |= {"final_norm.weight": np.ones(4), "final_norm.bias": np.zeros(4)}
    return sequence_searcher_of(PlainEncoder(ENCODERS["sasrec"], arrays, {"num_blocks": 1, "num_heads": 2}, length=6))


SEARCHERS = {
    "tree": tree_searcher,
    "sequence": sequence_searcher,
    "neighbours": neighbour_searcher,
    "popularity": popularity_searcher,
}


@pytest.fixture(params=SEARCHERS)
def retriever(request):
    return Retriever(
        searcher=SEARCHERS[request.param](),
        items=Vocabulary(pl.Series([f"i{n:02d}" for n in range(NUM_ITEMS)])),
        users=Vocabulary(pl.Series([10, 20])),
        histories=ItemLists.from_lists([[1, 2, 3], []]),
        columns=columns(["even" if n % 2 == 0 else "odd|prime" for n in range(NUM_ITEMS)]),
        metadata={"method": request.param},
    )


HISTORIES = [["i01", "i02", "i03"], [], ["i59"] * 9]


def test_contract_of_a_retriever(retriever, tmp_path):
    together = retriever.recommend(HISTORIES, 7)
    assert all(len(row) == 7 == len(set(row)) for row in together.item_ids)
    assert all(not set(row) & set(history) for row, history in zip(together.item_ids, HISTORIES, strict=True))
    assert together == retriever.recommend(HISTORIES, 7)
    for row, history in enumerate(HISTORIES):
        alone = retriever.recommend([history], 7)
        assert alone.item_ids[0] == together.item_ids[row]
    assert retriever.recommend(users=[10, 20], k=7).item_ids == together.item_ids[:2]
    scores = retriever.score(HISTORIES, together.item_ids)
    assert np.allclose(scores, together.scores, rtol=1e-4, atol=1e-5)
    assert np.all(np.diff(scores, axis=1) <= 1e-5)
    retriever.save(tmp_path / "model")
    again = Retriever.load(tmp_path / "model")
    assert again.recommend(HISTORIES, 7) == together
    assert again.metadata == retriever.metadata
    with pytest.raises(ArtefactError):
        retriever.save(tmp_path / "model")
    frame = together.as_frame()
    assert frame.columns == ["row", "rank", "item", "score"]
    assert frame["rank"].to_list() == [1, 2, 3, 4, 5, 6, 7] * 3


@pytest.mark.parametrize("num_allowed", [1, 3, 9, 30, 59])
def test_filters_give_k_items_if_k_are_allowed(retriever, num_allowed):
    allowed = [f"i{n:02d}" for n in np.random.default_rng(num_allowed).permutation(NUM_ITEMS)[:num_allowed]]
    for seen in ("remove", "keep"):
        found = retriever.recommend(HISTORIES, 5, allowed=allowed, seen=seen)
        for row, history in zip(found.item_ids, HISTORIES, strict=True):
            possible = set(allowed) - (set(history) if seen == "remove" else set())
            assert len(row) == min(5, len(possible))
            assert set(row) <= possible


def test_category_filter(retriever):
    found = retriever.recommend(HISTORIES, 20, allowed={"category": "prime"})
    assert all(int(item[1:]) % 2 == 1 for row in found.item_ids for item in row)
    mask = np.arange(NUM_ITEMS) % 2 == 1
    assert retriever.recommend(HISTORIES, 20, allowed=mask) == found
    with pytest.raises(InputError, match="category 'prim' is unknown; did you mean 'prime'"):
        retriever.recommend(HISTORIES, 5, allowed={"category": "prim"})


def test_wrong_arguments(retriever):
    with pytest.raises(InputError, match=r"k=0 is outside 1\.\.60"):
        retriever.recommend(HISTORIES, 0)
    with pytest.raises(InputError, match=r"k=61 is outside"):
        retriever.recommend(HISTORIES, 61)
    with pytest.raises(InputError, match="1 of 1 ids are unknown, such as 'nope'"):
        retriever.recommend([["nope"]], 3)
    assert len(retriever.recommend([["nope"]], 3, on_unknown="ignore").item_ids[0]) == 3
    with pytest.raises(InputError, match="such as 99"):
        retriever.recommend(users=[99], k=3)
    assert len(retriever.recommend(users=[99], k=3, on_unknown="ignore").item_ids[0]) == 3
    with pytest.raises(InputError, match="give histories or users"):
        retriever.recommend(k=3)
    with pytest.raises(InputError, match="one bool for each of 60 items"):
        retriever.recommend(HISTORIES, 3, allowed=np.ones(3, bool))


@pytest.mark.parametrize("listed", [list, tuple, np.array, pl.Series])
def test_ids_in_any_kind_of_list(retriever, listed):
    found = retriever.recommend(users=[10, 20], k=3)
    assert retriever.recommend(users=listed([10, 20]), k=np.int64(3)) == found
    assert retriever.recommend(users=listed([10]), k=3).item_ids == found.item_ids[:1]
    assert retriever.recommend([listed(HISTORIES[0])], 3).item_ids == found.item_ids[:1]
    some = retriever.recommend(HISTORIES, 5, allowed=["i04", "i07"])
    assert retriever.recommend(HISTORIES, 5, allowed=listed(["i04", "i07"])) == some
    assert retriever.recommend(HISTORIES, 5, allowed=(item for item in ["i04", "i07"])) == some
    assert retriever.recommend(HISTORIES, 5, allowed=listed([n in (4, 7) for n in range(NUM_ITEMS)])) == some


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.recommend(users=10), r"users=10 is not a list; write \[10\]"),
        (lambda r: r.recommend(users="ab"), r"users='ab' is not a list; write \['ab'\]"),
        (lambda r: r.recommend(["i01", "i02"]), r"histories holds 'i01', which is not a list; .* \[\['i01'\]\]"),
        (lambda r: r.recommend([1, 2]), "histories holds 1, which is not a list"),
        (lambda r: r.recommend(pl.DataFrame({"item": [["i01"]]})), "histories is a DataFrame; .*its column of lists"),
        (lambda r: r.recommend(5), "histories=5 is not a list"),
        (lambda r: r.recommend([[]], k=True), "k=True is not a whole number"),
        (lambda r: r.recommend([[]], k=3.0), r"k=3\.0 is not a whole number; give one of 1\.\.60"),
        (lambda r: r.recommend([[]], k="3"), "k='3' is not a whole number"),
        (lambda r: r.recommend([[]], k=None), "k=None is not a whole number"),
        (lambda r: r.recommend([[]], 3, allowed=[True] * 4), "give one bool for each of 60 items"),
        (lambda r: r.recommend([[]], 3, allowed=[True, "i01"]), "id True is not of type String"),
        (lambda r: r.recommend([[]], 3, allowed=7), "allowed=7 is not a list"),
        (lambda r: r.recommend([[]], 3, allowed={"category": 5}), r"category=5 is not a list; write \[5\]"),
        (
            lambda r: r.recommend([[]], 3, allowed={"category": [5]}),
            "category 5 is unknown; known: 'even', 'odd', 'prime'",
        ),
        (lambda r: r.score([], []), "at least one history"),
        (lambda r: r.score([[]], ["i01"]), "items holds 'i01', which is not a list"),
    ],
)
def test_wrong_kinds_of_arguments(retriever, ask, message):
    with pytest.raises(InputError, match=message):
        ask(retriever)


def test_a_wide_tree_search_is_exact():
    searcher = tree_searcher()
    query = Query.of(ItemLists.from_lists([[1, 2], [], [5] * 6]))
    exact = searcher.exact(query, 10)
    wide = searcher.search(query, 10, SearchOptions(beam_width=64))
    assert np.array_equal(wide.items, exact.items)
    assert np.allclose(wide.scores, exact.scores, rtol=1e-5)
    assert np.all(searcher.search(query, 10).scored < exact.scored * 4)


def test_permuting_items_permutes_results():
    searcher = neighbour_searcher()
    order = np.random.default_rng(1).permutation(NUM_ITEMS)
    inverse = np.argsort(order)
    moved = NeighbourSearcher(
        searcher.similarity[order][:, order], searcher.popularity[order], decay=searcher.decay, length=searcher.length
    )
    expected = searcher.search(Query.of(ItemLists.from_lists([[4, 9, 30]])), 8)
    got = moved.search(Query.of(ItemLists.from_lists([inverse[[4, 9, 30]]])), 8)
    assert np.allclose(got.scores, expected.scores)
    distinct = np.unique(expected.scores[0], return_counts=True)[1].max() == 1
    assert not distinct or np.array_equal(order[got.items[0]], expected.items[0])


def test_answers_without_torch(retriever, tmp_path):
    retriever.save(tmp_path / "model")
    program = (
        "import sys, beamwood\n"
        f"found = beamwood.load({str(tmp_path / 'model')!r}).recommend([['i01']], 3)\n"
        "assert len(found.item_ids[0]) == 3\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_foreign_artefacts(retriever, tmp_path):
    with pytest.raises(ArtefactError):
        Retriever.load(tmp_path / "none")
    retriever.save(tmp_path / "model")
    (tmp_path / "model" / "weights.safetensors").write_bytes(b"broken")
    with pytest.raises(ArtefactError, match=r"weights\.safetensors"):
        Retriever.load(tmp_path / "model")


def test_new_users_get_popular_items_if_the_model_has_no_answer():
    ids = [f"item {index:02d}" for index in range(NUM_ITEMS)]
    users = Vocabulary(pl.Series(["a", "b", "c"]))
    known = ItemLists(np.array([0, 2, 3, 6]), np.array([7, 9, 7, 7, 9, 4], np.int32))
    popular = PopularitySearcher(np.bincount(known.items, minlength=NUM_ITEMS))
    first = Blend([Part(sequence_searcher(), gate="history")], fallback=popular)
    sequence = Retriever(first, Vocabulary(pl.Series(ids)), users, known)
    answer = sequence.recommend([[], ["item 01"], []], k=4)
    assert answer.item_ids[0] == answer.item_ids[2] == ["item 07", "item 09", "item 04", "item 00"]
    assert answer.scores[0] == [0, 0, 0, 0]
    assert answer.item_ids[1] == sequence.recommend([["item 01"]], k=4).item_ids[0]
    assert sequence.recommend(users=["z"], k=1, on_unknown="ignore").item_ids == [["item 07"]]
    assert sequence.recommend([[]], k=9, allowed=["item 09", "item 33"]).item_ids == [["item 09", "item 33"]]
    # Models with answers for new users need no fallback, and without histories there are no counts.
    tree = Retriever(tree_searcher(), Vocabulary(pl.Series(ids)), users, known)
    assert tree.recommend([[]], k=4).scores[0][0] != 0
    bare = Retriever(sequence_searcher(), Vocabulary(pl.Series(ids)))
    assert bare.recommend([[]], k=2).item_ids == [["item 00", "item 01"]]
    # A second stage orders the candidates of the first, which has none here.
    both = blend_of_stages(first, neighbour_searcher(), BlendWeights(0.0, 0.0), num_candidates=5)
    assert Retriever(both, sequence.items, users, known).recommend([[]], k=2).item_ids == [["item 07", "item 09"]]


def test_new_users_get_popular_items_from_stages_with_context_too():
    class WithContext(NeighbourSearcher):
        needs = QueryNeeds(context=fit_columns(pl.DataFrame({"device": ["tv", "phone"]}), ["device"]))

    ids = Vocabulary(pl.Series([f"item {index:02d}" for index in range(NUM_ITEMS)]))
    known = ItemLists(np.array([0, 2, 3, 6]), np.array([7, 9, 7, 7, 9, 4], np.int32))
    popular, plain = PopularitySearcher(np.bincount(known.items, minlength=NUM_ITEMS)), neighbour_searcher()
    first = Blend([Part(sequence_searcher(), gate="history")], fallback=popular)
    both = blend_of_stages(
        first, WithContext(plain.similarity, plain.popularity), BlendWeights(0.0, 0.0), num_candidates=5
    )
    retriever = Retriever(both, ids, Vocabulary(pl.Series(["a", "b", "c"])), known)
    assert retriever.recommend([[]], k=2, context={"device": ["tv"]}).item_ids == [["item 07", "item 09"]]
