"""Content vectors: kept by a fit, saved, asked for by no filter, and placing new items beside similar ones."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.cells.given_vectors import given_vectors
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.retrieval.columns.where import where_mask
from beamwood.retrieval.new_items.added import NewItem
from beamwood.retrieval.new_items.content import similar_content

WIDTH = 6


def vectors(num_items, seed=0):
    """Random vectors of many lengths; that of item 3 is missing."""
    rng = np.random.default_rng(seed)
    given = rng.normal(size=(num_items, WIDTH)) * 10.0 ** rng.integers(-3, 4, (num_items, 1))
    return [None if item == 3 else row for item, row in enumerate(given.tolist())]


def fitted(kept, cells, *, as_text=False):
    market = make_market(MarketConfig(num_users=60, num_items=30, max_events=40), seed=1)
    frame = market.item_frame.with_columns(pl.Series("embedding", cells, dtype=pl.List(pl.Float64)))
    if as_text:
        texts = [None if cell is None else json.dumps(cell) for cell in cells]
        frame = frame.with_columns(pl.Series("embedding", texts))
    dataset = Dataset.from_log(read_log(market.log), frame, keep_columns=kept)
    return beamwood.fit(leave_one_out(dataset), "cooccurrence")


def cosines(cells, vector):
    """The reference: the cosine of each item, 0 without a vector."""
    vector = np.array(vector)
    return np.array(
        [0 if cell is None else np.dot(cell, vector) / np.linalg.norm(cell) / np.linalg.norm(vector) for cell in cells]
    )


@pytest.mark.parametrize(
    ("kept", "as_text"), [("embedding", False), ("embedding:vector", False), ("embedding:vector", True)]
)
def test_the_most_similar_known_items(kept, as_text, tmp_path):
    cells = vectors(30)
    retriever = fitted([kept], cells, as_text=as_text)
    retriever.save(tmp_path / "model")
    wanted = np.random.default_rng(2).normal(size=WIDTH).tolist()
    for each in (retriever, beamwood.load(tmp_path / "model", verify=True)):
        places = each.items.encode(np.arange(30))
        expected = dict(zip(places.tolist(), cosines(cells, wanted).tolist(), strict=True))
        best = sorted((place for place in expected if expected[place] > 0), key=lambda place: -expected[place])
        assert similar_content(each.columns, [{"embedding": wanted}])[0].tolist() == best


def test_a_new_item_is_placed_by_its_vector(tmp_path):
    retriever = fitted(["embedding"], vectors(30))
    vector = [float(value) for value in range(1, WIDTH + 1)]
    near = similar_content(retriever.columns, [{"embedding": vector}])[0]
    counts = np.bincount(retriever.histories.items, minlength=30)
    ids = retriever.items.decode(sorted(near, key=lambda place: (-counts[place], place))[:10])
    by_hand = retriever.with_items([NewItem(99, dict.fromkeys(ids, 1.0))])
    placed = retriever.with_items([NewItem(99, cells={"embedding": vector})])
    ask = {"histories": [[1, 2], [5]], "k": 31, "seen": "keep"}
    assert placed.recommend(**ask).item_ids == by_hand.recommend(**ask).item_ids
    placed.save(tmp_path / "model")
    again = beamwood.load(tmp_path / "model")
    assert again.recommend(**ask).item_ids == by_hand.recommend(**ask).item_ids
    assert where_mask({"embedding": {"missing": True}}, again.columns).tolist() == [
        item in (3, 99) for item in again.items.decode(np.arange(31))
    ]
    # An erased item is in no mixture, and a given mixture counts before a vector.
    first = ids[0]
    alive = retriever.without_items([first]).names.filters.alive.mask
    assert (
        retriever.items.encode([first])[0] not in similar_content(retriever.columns, [{"embedding": vector}], alive)[0]
    )
    given = retriever.with_items([NewItem(99, {first: 1.0}, {"embedding": vector})])
    assert given.recommend(**ask).item_ids != by_hand.recommend(**ask).item_ids


def test_without_histories_the_most_similar_items_are_mixed():
    """Nothing says which of them are popular."""
    retriever = replace(fitted(["embedding"], vectors(30)), users=None, histories=None)
    vector = [float(value) for value in range(1, WIDTH + 1)]
    ids = retriever.items.decode(similar_content(retriever.columns, [{"embedding": vector}])[0][:10])
    by_hand = retriever.with_items([NewItem(99, dict.fromkeys(ids, 1.0))])
    placed = retriever.with_items([NewItem(99, cells={"embedding": vector})])
    assert np.array_equal(placed.score([[1, 2]], [[99]]), by_hand.score([[1, 2]], [[99]]))


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0] * (WIDTH - 1), "embedding is not a list of 6 finite numbers"),
        ([1.0] * (WIDTH - 1) + [float("nan")], "6 finite"),
        ("text", "6 finite"),
        ([["a"]], "6 finite"),
        (["1.0"] * WIDTH, "6 finite"),
        ([True] * WIDTH, "6 finite"),
        ({"a": 1}, "6 finite"),
    ],
)
def test_other_vectors_are_refused(vector, message):
    retriever = fitted(["embedding"], vectors(30))
    with pytest.raises(InputError, match=message):
        retriever.with_items([NewItem(99, cells={"embedding": vector})])


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_vectors_of_any_length_have_a_direction(scale):
    column = VectorColumn.of(np.eye(3, WIDTH, dtype=np.float32) * np.float32(1e30))
    assert [each.tolist() for each in column.similar("embedding", [[scale, 0, 0, 0, 0, 0], [0] * WIDTH], 2)] == [
        [0],
        [],
    ]


def test_no_filter_compares_vectors():
    retriever = fitted(["embedding"], vectors(30))
    with pytest.raises(InputError, match="'embedding' holds vectors, which 'eq' does not compare"):
        retriever.recommend([[1]], where={"embedding": {"eq": 3}})


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["[1, 2]", "[1, 2, 3]"], "another length than 2"),
        (["[1, 2]", "[1 2]"], "cannot be read as JSON"),
        (["[1, 2]", "[1"], "text that is no JSON list of numbers"),
        (["1, 2", "[1, 2]"], "1 item has text that is no JSON list .* such as item 1"),
        (["[]", "[]"], "holds no lists of numbers"),
    ],
)
def test_columns_that_hold_no_vectors_are_refused(cells, message):
    log = pl.DataFrame({"user_id": [1, 1, 2, 2], "item_id": [1, 2, 1, 2], "timestamp": [1, 2, 3, 4]})
    items = pl.DataFrame({"item_id": [1, 2], "embedding": cells})
    with pytest.raises(InputError, match=message):
        Dataset.from_log(read_log(log), items, keep_columns=["embedding:vector"])


def test_a_vector_for_a_column_of_labels_names_the_fix():
    """A text column without `:vector` is one of labels."""
    retriever = fitted(["embedding"], vectors(30), as_text=True)
    with pytest.raises(InputError, match="neither text nor a list of text; for vectors keep it as embedding:vector"):
        retriever.with_items([NewItem(99, cells={"embedding": [0.5] * WIDTH})])


def test_an_empty_list_is_no_vector():
    cells = pl.Series("embedding", [[], [3.0, 4.0], None], dtype=pl.List(pl.Float32))
    assert given_vectors(cells, pl.Series([1, 2, 3])).tolist() == [[0, 0], [3, 4], [0, 0]]
    cells = pl.Series("embedding", [" ", "[3, 4]", "null", "[]"])
    assert given_vectors(cells, pl.Series([1, 2, 3, 4])).tolist() == [[0, 0], [3, 4], [0, 0], [0, 0]]


def test_two_vectors_of_one_item_are_refused():
    columns = ItemColumns(2, {name: VectorColumn.of(np.eye(2, dtype=np.float32)) for name in ("title", "image")})
    with pytest.raises(InputError, match="title and image are vectors; give one of them"):
        similar_content(columns, [{"title": [1, 0], "image": [1, 0]}])
