"""Ids of any type round-trip; unknown ids are an error unless ignored."""

import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.data import Vocabulary
from beamwood.data.vocabularies import open_vocabulary, vocabulary
from beamwood.data.vocabularies.id_table import id_table, restore_ids
from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary
from beamwood.data.vocabularies.vocabulary import _may_be, _plain
from beamwood.errors import InputError, UnknownIdError
from beamwood.serve.answer.ids import indices_of


@pytest.mark.parametrize(
    "ids", [[5, 1, 3], ["b", "007", "a"], [datetime.date(2020, 1, 2), datetime.date(1999, 1, 1)], [2**62, -1]]
)
def test_round_trip(ids):
    vocabulary = Vocabulary.of(pl.Series(ids))
    assert vocabulary.decode(vocabulary.encode(ids)) == ids
    assert vocabulary.parse_all([str(i) for i in ids]) == ids


@given(st.lists(st.text(min_size=1), min_size=1, unique=True))
def test_any_text(ids):
    vocabulary = Vocabulary.of(pl.Series(ids))
    assert vocabulary.decode(vocabulary.encode(ids)) == ids


def test_unknown_ids():
    vocabulary = Vocabulary.of(pl.Series([1, 2, 3]))
    assert vocabulary.encode([2, 9], on_unknown="ignore").tolist() == [1, -1]
    assert vocabulary.encode([]).tolist() == []
    with pytest.raises(InputError, match="1 of 2 ids are unknown, such as 9"):
        vocabulary.encode([2, 9])
    with pytest.raises(
        InputError, match="id 'x' is not of type Int64, which the log's ids have; give ids of that type, such as"
    ):
        vocabulary.encode(["x"])
    with pytest.raises(InputError, match="id 'x' is unknown: the log's ids are of type Int64"):
        vocabulary.parse("x")
    with pytest.raises(InputError, match="on_unknown='skip'"):
        vocabulary.encode([1], on_unknown="skip")
    with pytest.raises(InputError, match="repeated"):
        Vocabulary(pl.Series([1, 1]))


@pytest.mark.parametrize("value", [1.5, 1.0, True, "1", None, 2**70, datetime.date(2020, 1, 1)])
def test_values_of_another_type_are_unknown_ids(value):
    vocabulary = Vocabulary.of(pl.Series([1, 2, 3]))
    assert vocabulary.encode([value, 3], on_unknown="ignore").tolist() == [-1, 2]
    with pytest.raises(InputError, match=r"is not of type Int64|ids are unknown"):
        vocabulary.encode([3, value])


@pytest.mark.parametrize(
    "ids",
    [[datetime.date(2020, 1, 2)], [datetime.datetime(2020, 1, 2, 3, 4, 5)], [datetime.time(3, 4)], [5], ["\ud7ff"]],
)
def test_text_that_is_not_an_id(ids):
    vocabulary = Vocabulary.of(pl.Series(ids))
    assert vocabulary.parse_all([str(ids[0]), "hello"], on_unknown="ignore")[0] == ids[0]
    assert vocabulary.encode(vocabulary.parse_all(["hello"], on_unknown="ignore"), on_unknown="ignore").tolist() == [-1]
    with pytest.raises(InputError, match=r"'hello' is unknown|such as 'hello'"):
        vocabulary.encode(vocabulary.parse_all(["hello"]))
    with pytest.raises(InputError, match="is not of type"):
        vocabulary.encode(["\udcff"])


def test_blanks_around_typed_ids():
    vocabulary = Vocabulary.of(pl.Series([" a", "b", " c", "c", "c ", "d d"]))
    assert vocabulary.parse_all([" a", "a", "b ", " c", "c", "c ", "d d", " x "]) == [
        *[" a", " a", "b", " c", "c", "c ", "d d"],
        "x",
    ]


@pytest.mark.parametrize(
    "ids", [range(5, 2005, 2), [f"item {i:04}" for i in range(1000)], [f"ä{i:04}" for i in range(1000)][::-1]]
)
def test_few_and_many_ids_are_found_alike(ids):
    vocabulary = Vocabulary(pl.Series("id", list(ids)))
    unknown = 4 if isinstance(ids, range) else "item 0003b"
    beyond = 9999 if isinstance(ids, range) else "zz"
    asked = [ids[3], unknown, ids[0], ids[-1], beyond, ids[3]]
    many = vocabulary.encode([*asked, *ids], on_unknown="ignore")
    assert (
        vocabulary.encode(asked, on_unknown="ignore").tolist() == many[: len(asked)].tolist() == [3, -1, 0, 999, -1, 3]
    )
    assert vocabulary.encode([None, ids[1]], on_unknown="ignore").tolist() == [-1, 1]
    assert vocabulary.encode([]).tolist() == []


@given(
    st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=40, unique=True),
    st.integers(0, 2**64 - 1),
    st.integers(1, 60),
    st.sampled_from([pl.Int8, pl.UInt8, pl.Int16, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64]),
    st.integers(0, 10**6),
)
def test_integers_far_apart_and_near(far, lowest, spread, dtype, seed):
    least, most = (int(pl.select(bound).item()) for bound in (dtype.min(), dtype.max()))
    rng = np.random.default_rng(seed)
    lowest = min(max(lowest, least), most - spread)
    near = [lowest + int(step) for step in rng.permutation(spread)[: rng.integers(1, spread + 1)]]
    for ids in ([value for value in far if least <= value <= most], near):
        table = id_table(pl.Series(ids, dtype=dtype))
        assert (table.near is not None) == (bool(ids) and max(ids) - min(ids) < 8 * len(ids))
        again = restore_ids(table.arrays())
        again.check()
        beside = [value + step for value in ids for step in (-1, 0, 1, 5)] + [least, most, 0]
        beside = [value for value in beside if least <= value <= most]
        known = {value: index for index, value in enumerate(ids)}
        for each in (table, again):
            assert each.find(np.array(beside, table.values.dtype)).tolist() == [known.get(v, -1) for v in beside]
            assert each.ids(np.arange(len(ids))) == ids


def test_an_invalid_table_is_refused():
    table = id_table(pl.Series([5, 3, 4, 9]))
    for near in (table.near[::-1].copy(), np.where(table.near < 0, 2, table.near), table.near[:-1]):
        with pytest.raises(InputError, match="table does not find each"):
            restore_ids({"values": table.values, "near": near}).check()
    for wrong in ({"near": table.near.astype(np.int64)}, {"near": table.near[:0]}, {"near": table.near - 5}):
        with pytest.raises(InputError, match="the table of 4 ids is"):
            restore_ids({"values": table.values, **wrong})


@pytest.mark.parametrize("ids", [list(range(0, 1000, 3)), [f"item {n}" for n in range(400)]])
def test_a_small_column_of_ids_is_not_joined_with_all(ids, monkeypatch):
    known = Vocabulary.stored(restore_ids(id_table(pl.Series(ids)).arrays()))
    asked = pl.Series([ids[7], ids[3], ids[7]])
    expected = known._joined(asked)
    monkeypatch.setattr(Vocabulary, "_joined", lambda *_: pytest.fail("all ids were read"))
    assert known.encode(asked).tolist() == expected.tolist() == [7, 3, 7]


@given(st.lists(st.text(), unique=True), st.lists(st.text(max_size=3), max_size=3))
def test_a_column_of_text_is_cut_from_its_bytes(ids, others):
    table = id_table(pl.Series(ids, dtype=pl.String))
    assert table.series().to_list() == ids
    assert table.find(ids + others).tolist() == [ids.index(each) if each in ids else -1 for each in ids + others]


@given(
    st.lists(st.text("aB\u00df\u212a 0179x", max_size=5), min_size=1, unique=True), st.text("aB\u00df 0179", max_size=4)
)
def test_only_what_may_be_meant_is_compared(ids, text):
    known = pl.Series(ids, dtype=pl.String)
    (key,) = _plain(pl.Series([text]))
    assert known.filter(_may_be(known, key)).to_list() or not (_plain(known) == key).any()
    assert (_may_be(known, key) | (_plain(known) != key)).all()


def test_an_unknown_text_is_compared_with_the_alike_alone(monkeypatch):
    known = Vocabulary(pl.Series([f"item {n}" for n in range(5000)]))
    seen, plain = [], vocabulary._plain
    monkeypatch.setattr(vocabulary, "_plain", lambda texts: seen.append(len(texts)) or plain(texts))
    with pytest.raises(UnknownIdError, match="did you mean 'item 47'"):
        known.encode(["ITEM 0047"])
    assert sum(seen) < 200
    opened = OpenVocabulary(known, len(known), ["new"])
    monkeypatch.setattr(open_vocabulary, "id_table", lambda *_: pytest.fail("a table of all ids was made"))
    assert opened.parse_all([" item 7 ", "new", "item 8"]) == ["item 7", "new", "item 8"]


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("text", 3, 255, "not UTF-8"),
        ("text", 3, ord("1"), "repeated"),
        ("text", 0, ord("z"), "does not find"),
        ("members", 0, 1, "one bucket each"),
        ("stops", 1, 9, "fall"),
    ],
)
def test_a_damaged_table_of_texts_is_refused(name, place, value, message, monkeypatch):
    arrays = {each: array.copy() for each, array in id_table(pl.Series([f"id {n}" for n in range(9)])).arrays().items()}
    table = restore_ids(arrays)
    monkeypatch.setattr(type(table), "_look_up", lambda *_: pytest.fail("ids were looked up one by one"))
    table.check()
    arrays["members"] = arrays["members"] if name != "members" else arrays["members"][[0, 0, *range(2, 9)]]
    if name != "members":
        arrays[name][place] = value
    with pytest.raises(InputError, match=message):
        restore_ids(arrays).check()


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (datetime.date(2020, 1, 2), datetime.date(2030, 1, 2)),
        (datetime.datetime(2020, 1, 2, 3), datetime.datetime(2030, 1, 2, 3)),
        (datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)),
    ],
)
def test_new_dates_are_found_by_their_text_as_known_ones_are(known, new):
    """JSON has no dates."""
    items = OpenVocabulary(Vocabulary(pl.Series([known])), 1, [new.isoformat()])
    for ids in ([known, new], [known.isoformat(), new.isoformat()]):
        assert items.encode(ids).tolist() == [0, 1]
        assert indices_of(items, ids).tolist() == [0, 1]
    assert indices_of(items, [new.isoformat(), "hello", "2031-01-02", 5]).tolist() == [1, -1, -1, -1]
