"""The columns of known and of new items together are those of one table of all, and share the known cells."""

import datetime as dt

import numpy as np
import polars as pl
import pytest

from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.more_columns import cells_of, with_cells
from beamwood.retrieval.columns.where import where_mask
from retrieval_cases import item_frame

KNOWN, NEW = 60, 23
LONG = 2**60 + 1
WHERE = [
    {"price": {"lte": 20}},
    {"price": [1, 2, 5.0]},
    {"price": {"ne": 3}},
    {"price": {"missing": True}},
    {"category": ["c1", "c3"]},
    {"category": {"all_of": ["c1", "c2"]}},
    {"category": {"not_in": ["c1"]}},
    {"brand": "only new"},
    {"brand": {"missing": True}},
    {"stock": True},
    {"since": {"gt": "2026-05-01"}},
    {"size": {"gte": 3}},
    {"size": list(range(20))},
    {"not": {"size": LONG}},
]


def table(count, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 9, count).tolist()
    return item_frame(count, seed).with_columns(size=pl.Series([LONG, *sizes[1:]], dtype=pl.Int64))


def rows_of(frame):
    """As a caller gives them: nothing of an empty cell, times as text."""
    for row in frame.rows(named=True):
        given = {name: value for name, value in row.items() if value is not None}
        yield {name: value.isoformat() if isinstance(value, dt.date) else value for name, value in given.items()}


@pytest.fixture(scope="module")
def both():
    """Columns with new items in three parts, and those of one table."""
    first, new = table(KNOWN, 0), table(NEW, 1).with_columns(brand=pl.lit("only new"))
    new[3, "brand"] = None
    known, rows = ItemColumns.of(first), list(rows_of(new))
    parts = [cells_of(known, rows[:7]), cells_of(known, rows[7:8]), cells_of(known, rows[8:])]
    return with_cells(known, parts, NEW), ItemColumns.of(pl.concat([first, new])), known


@pytest.mark.parametrize("where", WHERE, ids=str)
def test_conditions(both, where):
    ours, plain, _ = both
    np.testing.assert_array_equal(where_mask(where, ours), where_mask(where, plain))


@pytest.mark.parametrize("name", ["category", "brand"])
def test_labels(both, name):
    ours, plain = both[0][name], both[1][name]

    def told(column, codes):
        return [column.names[code] for code in codes]

    items = np.random.default_rng(2).permutation(KNOWN + NEW)[:50].astype(np.int32)
    assert ours.num_items == plain.num_items == KNOWN + NEW
    for item in items.tolist():
        assert told(ours, ours.of_item(item)) == told(plain, plain.of_item(item))
    assert told(ours, ours.of_items(items)) == told(plain, plain.of_items(items))
    assert ours.lists().to_list() == plain.lists().to_list()


def test_a_folder_keeps_them_as_one_table(both):
    ours, plain, _ = both
    config, arrays = ours.export()
    again = ItemColumns.restore(KNOWN + NEW, config, arrays, verify=True)
    for where in WHERE:
        np.testing.assert_array_equal(where_mask(where, again), where_mask(where, plain))
    cut = again.first(KNOWN)
    for where in WHERE[:7]:
        np.testing.assert_array_equal(where_mask(where, cut), where_mask(where, plain)[:KNOWN])


def test_known_cells_are_shared_and_stay_as_they_are(both):
    ours, _, known = both
    with_fraction = with_cells(known, [cells_of(known, [{"size": 0.5}])], 1)
    for name, column in known.columns.items():
        for array in ("values", "present", "codes", "indptr", "starts", "items"):
            assert getattr(ours[name], array, None) is getattr(column, array, None)
    assert where_mask({"size": LONG}, with_fraction).tolist() == [True] + [False] * KNOWN
    assert where_mask({"size": 0.5}, with_fraction).tolist() == [False] * KNOWN + [True]
    assert ours.first(KNOWN)["brand"] is known["brand"]


def test_wrong_cells_are_refused(both):
    with pytest.raises(InputError, match="colour"):
        cells_of(both[2], [{}, {"colour": "red"}])
    with pytest.raises(InputError, match="price"):
        cells_of(both[2], [{"price": "dear"}])
