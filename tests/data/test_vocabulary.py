"""Ids of any type round-trip; unknown ids are an error unless ignored."""

import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.data import Vocabulary
from beamwood.data.id_table import id_table, restore_ids
from beamwood.errors import InputError


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
    with pytest.raises(InputError, match="id 'x' is not of type Int64"):
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
