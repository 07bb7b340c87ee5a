"""A retriever with items added after its fit, and without erased items."""

import polars as pl
import pytest

from beamwood.cli.main import main
from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.new_items.added import NewItem
from beamwood.retrieval.retriever import Retriever
from retrieval_cases import retriever_of, tree_searcher, vector_searcher

N = 60
SEARCHERS = {"tree": tree_searcher, "vectors": vector_searcher}


@pytest.fixture(params=SEARCHERS)
def retriever(request):
    return retriever_of(SEARCHERS[request.param](N))


def new_items(retriever):
    known = retriever.items.decode(range(N))
    first = NewItem("new 1", {known[3]: 1.0}, {"category": "c1|fresh", "price": 500, "stock": True})
    return [first, NewItem("new 2", {known[5]: 2.0, known[9]: 1.0}, {"since": "2026-11-01"}), NewItem("new 3")]


def test_new_items_are_found_by_id_and_by_their_columns(retriever):
    extended = retriever.with_items(new_items(retriever))
    known = retriever.items.decode(range(N))
    answer = extended.recommend([[known[1], known[2]]], N + 3)
    assert {"new 1", "new 2", "new 3"} <= set(answer.item_ids[0])
    scores = dict(zip(answer.item_ids[0], answer.scores[0], strict=True))
    assert scores["new 1"] == pytest.approx(scores[known[3]], rel=1e-5)
    assert answer.item_ids[0][-1] == "new 3", "an empty mixture comes last"
    one = [[known[1]]]
    assert extended.recommend(one, 5, where={"price": {"gte": 500}}).item_ids == [["new 1"]]
    assert extended.recommend(one, 5, where={"since": {"gte": "2026-10-31"}}).item_ids == [["new 2"]]
    assert extended.recommend(one, 5, allowed={"category": "fresh"}).item_ids == [["new 1"]]
    both = set(extended.recommend(one, N + 3, allowed={"category": "c1"}).item_ids[0])
    assert both == set(retriever.recommend(one, N, allowed={"category": "c1"}).item_ids[0]) | {"new 1"}
    assert extended.recommend(one, 5, allowed=["new 2", "new 3"]).item_ids == [["new 2", "new 3"]]
    assert "new 1" not in extended.recommend([[known[1], "new 1"]], N + 3).item_ids[0]
    assert retriever.recommend(one, 9).item_ids == retriever_of(retriever.searcher).recommend(one, 9).item_ids


def test_similar_and_score_know_new_items(retriever):
    extended, known = retriever.with_items(new_items(retriever)), retriever.items.decode(range(N))
    assert extended.similar(["new 1"], 1, by="vectors").item_ids == [[known[3]]]
    ours, theirs = extended.score([[known[1]]], [["new 1", known[3]]])[0]
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_a_saved_retriever_has_its_new_items(retriever, tmp_path):
    extended = retriever.with_items(new_items(retriever)).without_items(retriever.items.decode([7]))
    extended.save(tmp_path / "saved")
    again = Retriever.load(tmp_path / "saved", verify=True)
    known = retriever.items.decode(range(N))
    for asked in ([known[1]], ["new 1", known[2]]):
        ours, theirs = (each.recommend([asked], 12) for each in (extended, again))
        assert ours.item_ids == theirs.item_ids
        assert ours.scores == theirs.scores
    assert again.recommend([[known[1]]], 5, where={"price": {"gte": 500}}).item_ids == [["new 1"]]
    other = again.with_items([NewItem("new 9", {known[3]: 1.0})])
    assert len(other.items) == N + 1
    assert "new 9" in other.recommend([[known[1]]], N).item_ids[0]
    with pytest.raises(InputError, match="unknown"):
        other.recommend([["new 1"]])


def test_erased_items_are_unknown(retriever, tmp_path):
    known = retriever.items.decode(range(N))
    held = [user for user, row in enumerate(retriever.histories) if 7 in row]
    gone = retriever.without_items([known[7]]).without_items([known[8]])
    gone.save(tmp_path / "saved")
    assert held, "no history has the erased items, so the test is void"
    for each in (gone, Retriever.load(tmp_path / "saved", verify=True)):
        answer = each.recommend([[known[1]]], N)
        assert not {known[7], known[8]} & set(answer.item_ids[0])
        assert len(answer.item_ids[0]) == N - 3
        with pytest.raises(InputError, match="1 of 1 ids are unknown"):
            each.recommend([[known[7]]])
        rest = [item for item in retriever.histories[held[0]].tolist() if item not in (7, 8)]
        ours = each.recommend(users=[held[0]], k=9)
        assert ours.item_ids == gone.recommend([retriever.items.decode(rest)], 9).item_ids
        allowed = each.recommend([[known[1]]], N, where={"stock": True}).item_ids[0]
        assert set(allowed) == set(retriever.recommend([[known[1]]], N, where={"stock": True}).item_ids[0]) - {
            known[7],
            known[8],
        }
    saved = Retriever.load(tmp_path / "saved")
    assert not set(saved.histories.items.tolist()) & {7, 8}, "saved histories have no erased items"
    extended = gone.with_items([NewItem("new 1", {known[3]: 1.0})])
    assert known[7] not in extended.recommend([[known[1]]], N + 1).item_ids[0]
    with pytest.raises(InputError, match=r"'new 1' came after the fit"):
        extended.without_items(["new 1"])
    with pytest.raises(InputError, match=f"mixture of '{known[7]}', which is unknown"):
        gone.with_items([NewItem("new 1", {known[7]: 1.0})])


def test_a_new_item_that_is_gone_is_in_no_answer(retriever, tmp_path):
    known = retriever.items.decode(range(N))
    new = [NewItem("new 1", {known[3]: 1.0}, gone=True), NewItem("new 2", {known[3]: 1.0})]
    extended = retriever.without_items([known[7]]).with_items(new)
    extended.save(tmp_path / "saved")
    for each in (extended, Retriever.load(tmp_path / "saved")):
        assert known[7] not in each.with_items([]).recommend([[known[1]]], N).item_ids[0]
        answer = each.recommend([[known[1]], []], N + 2).item_ids
        assert not [row for row in answer if "new 1" in row or known[7] in row or "new 2" not in row]
        with pytest.raises(InputError, match="unknown"):
            each.recommend([["new 1"]])
        assert each.without_items([known[8]]).recommend([[known[1]]], N + 2).item_ids[0].count("new 1") == 0


def test_an_erased_item_of_a_stored_history_is_not_read(retriever):
    user, row = next((user, row.tolist()) for user, row in enumerate(retriever.histories) if len(row) >= 5)
    erased = row[-1]
    rest = retriever.items.decode([item for item in row if item != erased])
    gone = retriever.without_items(retriever.items.decode([erased]))
    expected = gone.recommend([rest], 9).item_ids
    assert retriever.recommend([retriever.items.decode(row)], 9).item_ids != expected, "the item changes no answer"
    for number in (1, 2):
        assert gone.recommend(users=[user] * number, k=9).item_ids == expected * number


def test_the_error_about_an_erased_id_names_no_erased_one(retriever):
    ids = retriever.items.decode(range(N))
    gone = retriever.without_items(ids[:1])
    for text in (ids[0], ids[0].upper()):
        with pytest.raises(InputError, match="unknown") as error:
            gone.items.encode([gone.items.parse(text)])
        assert "did you mean" not in str(error.value)
    with pytest.raises(InputError, match=f"did you mean '{ids[1]}'"):
        gone.items.parse(ids[1].upper())


@pytest.mark.parametrize("kind", ["vectors", "steered"])
def test_exported_vectors_have_new_items_and_no_erased_ones(kind, tmp_path):
    searcher = vector_searcher(N) if kind == "vectors" else tree_searcher(N, steered=True)
    retriever = retriever_of(searcher)
    known = retriever.items.decode(range(N))
    new = [NewItem(f"new {at}", {known[3]: 1.0}) for at in range(20)]
    retriever.without_items([known[7]]).with_items(new).save(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), "--vectors", str(tmp_path / "vectors.parquet")]) == 0
    vectors = dict(pl.read_parquet(tmp_path / "vectors.parquet").select("item", "vector").iter_rows())
    assert {*known, *(each.item for each in new)} - set(vectors) == {known[7]}
    for each in new:
        assert vectors[each.item] == pytest.approx(vectors[known[3]], abs=0.05)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda known: [NewItem("a"), NewItem("a")], "'a' is given twice"),
        (lambda known: [NewItem(known[3])], "was fitted already"),
        (lambda known: [NewItem(17)], "is not of type String"),
        (lambda known: [NewItem("a", {"nobody": 1.0})], "'a' is a mixture of 'nobody', which is unknown"),
        (lambda known: [NewItem("a", {known[0]: "x"})], "'a': a weight of its mixture is no number .*'x'"),
        (lambda known: [NewItem("b", {known[0]: 1, known[1]: 10**400})], "'b': a weight of its mixture is no number"),
        (lambda known: [NewItem("a", cells={"colour": "red"})], "no item column 'colour'"),
        (lambda known: [NewItem("a", cells={"price": "dear"})], "price holds numbers"),
        (lambda known: [NewItem("a", cells={"brand": 4})], "brand=4 is neither text nor a list of text"),
        *(
            (
                lambda known, weight=weight: [NewItem("c"), NewItem("a", {known[0]: weight})],
                "'a': .* no positive number",
            )
            for weight in (-1.0, 0, None, float("nan"), float("inf"), [1.0])
        ),
    ],
)
def test_invalid_new_items_are_refused(made, message):
    retriever = retriever_of(vector_searcher(N))
    with pytest.raises(InputError, match=message):
        retriever.with_items(made(retriever.items.decode(range(N))))


def test_integer_ids_need_integers():
    ids = OpenVocabulary(Vocabulary(pl.Series([5, 3, 9])), 3, [100, 4])
    assert ids.encode([9, 4, 100, 3]).tolist() == [2, 4, 3, 1]
    assert ids.decode([3, 0, 4]) == [100, 5, 4]
    assert ids.encode([True, "4", 7], on_unknown="ignore").tolist() == [-1, -1, -1]
    assert ids.parse_all(["4", "9"]) == [4, 9]
    assert ids.ids.to_list() == [5, 3, 9, 100, 4]
    assert len(ids) == 5
