"""Conditions on item columns equal the same filters in Polars, and errors name the fix."""

import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.where import where_mask
from beamwood.retrieval.columns.where_text import parse_where
from retrieval_cases import item_frame, retriever_of, tree_searcher

FRAME = item_frame(500)
price, brand, stock, since = pl.col("price"), pl.col("brand"), pl.col("stock"), pl.col("since")
labels = pl.col("category").str.split("|")
SAME = [
    ({"price": 3}, price == 3),
    ({"price": [3, 5.0]}, price.is_in([3.0, 5.0])),
    ({"price": {"lte": 20}}, price <= 20),
    ({"price": {"lt": 20, "gte": 3}}, (price < 20) & (price >= 3)),
    ({"price": {"gt": 3}, "brand": "brand 1"}, (price > 3) & (brand == "brand 1")),
    ({"price": {"ne": 3}}, price != 3),
    ({"price": {"not_in": [3, 4]}}, ~price.is_in([3.0, 4.0])),
    ({"price": {"missing": True}}, price.is_null()),
    ({"brand": {"missing": False}}, brand.is_not_null()),
    ({"brand": ["brand 1", "brand 2"]}, brand.is_in(["brand 1", "brand 2"])),
    ({"brand": {"not_in": ["brand 1"]}}, brand != "brand 1"),
    ({"brand": []}, pl.lit(False)),
    ({"category": "c1"}, labels.list.contains("c1")),
    ({"category": ["c1", "c2"]}, labels.list.contains("c1") | labels.list.contains("c2")),
    ({"category": {"all_of": ["c1", "c2"]}}, labels.list.contains("c1") & labels.list.contains("c2")),
    ({"stock": True}, stock),
    ({"stock": {"ne": True}}, ~stock),
    ({"since": {"gte": "2026-03-01"}}, since >= dt.date(2026, 3, 1)),
    ({"since": {"lt": dt.date(2026, 3, 1)}}, since < dt.date(2026, 3, 1)),
    ({"since": {"lt": np.datetime64("2026-03-01")}}, since < dt.date(2026, 3, 1)),
    (
        {"since": np.array(["2026-03-01", "2026-03-02"], "datetime64[D]")},
        since.is_in([dt.date(2026, 3, 1), dt.date(2026, 3, 2)]),
    ),
    (
        {"any": [{"price": 3}, {"brand": "brand 4"}]},
        (price == 3).fill_null(False) | (brand == "brand 4").fill_null(False),
    ),
    ({"all": [{"price": {"gt": 3}}, {"stock": False}]}, (price > 3) & ~stock),
    ({"not": {"price": {"lte": 20}}}, ~(price <= 20).fill_null(False)),
]


@pytest.mark.parametrize(("where", "expected"), SAME, ids=[str(where) for where, _ in SAME])
def test_each_condition_equals_polars(where, expected):
    found = where_mask(where, ItemColumns.of(FRAME))
    theirs = FRAME.select((expected & (price.is_null() | price.is_not_null())).fill_null(False)).to_series()
    assert np.array_equal(found, theirs.to_numpy())
    config, arrays = ItemColumns.of(FRAME).export()
    assert np.array_equal(where_mask(where, ItemColumns.restore(500, config, arrays, verify=True)), found)


@pytest.mark.parametrize("value", [4.1, np.float32(4.1)])
def test_numbers_of_32_bits_mean_what_was_written(value):
    """Of 64 bits, 4.1 of 32 bits is 4.0999999."""
    columns = ItemColumns.of(pl.DataFrame({"rating": pl.Series([4.1, 4.0, None, 0.7], dtype=pl.Float32)}))
    for operator, found in (("eq", [True, False, False, False]), ("gte", [True, False, False, False])):
        assert where_mask({"rating": {operator: value}}, columns).tolist() == found
    assert where_mask({"rating": {"lt": value}}, columns).tolist() == [False, True, False, True]
    assert where_mask({"rating": [value, 0.7]}, columns).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "is not a condition"),
        ([], "is not a condition"),
        ({"prize": 3}, "no item column 'prize'; did you mean 'price'"),
        ({"price": {"less": 3}}, "has the unknown operator 'less'; did you mean 'lte'"),
        ({"price": {}}, "has no condition"),
        ({"price": "3"}, "price holds numbers, such as 20; '3' is none"),
        ({"price": True}, "price holds numbers"),
        ({"price": float("nan")}, "NaN"),
        ({"price": {"in": 3}}, r"needs a list; write \[3\]"),
        ({"price": {"all_of": [3]}}, "one value an item"),
        ({"brand": "brand 9"}, "brand 'brand 9' is unknown; did you mean"),
        ({"brand": 9}, "brand 9 is unknown"),
        ({"brand": {"lt": "b"}}, "holds text, which 'lt' does not order; use eq or in$"),
        ({"brand": {"gte": "2026-01-31"}}, "use eq or in$"),
        ({"stock": {"lt": True}}, "true and false"),
        ({"stock": 1}, "stock holds true and false"),
        ({"since": np.datetime64("NaT")}, "since holds times"),
        ({"since": "soon"}, "since holds times, such as '2026-01-31'; 'soon' is none"),
        ({"any": {"price": 3}}, "'any' needs a list"),
        ({"price": {"missing": 1}}, "must be true or false"),
    ],
)
def test_errors_name_the_fix(where, message):
    with pytest.raises(InputError, match=message):
        where_mask(where, ItemColumns.of(FRAME))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("In Stock=true", "the column 'In Stock' has blanks; put its name in quotes$"),
        ("price<3 and not in the sale=true", "the column 'in the sale' has blanks; put its name in quotes$"),
        ("Stock=true", "there is no item column 'Stock'"),
        ("brand=old oak", "'oak' stands where 'and', 'or' or the end should; .*, and what has blanks in quotes$"),
        ("brand in (old oak)", r"'oak' stands where '\)' should; .*, and what has blanks in quotes$"),
        ("price<=>20", r"'>' stands where a value should; write it as 'price<=20 and brand in \(a, b\)'$"),
    ],
)
def test_text_whose_blanks_lack_quotes_is_told_of_them(text, message):
    frame = FRAME.select("price", "brand", pl.col("stock").alias("In Stock"), pl.col("stock").alias("in the sale"))
    columns = ItemColumns.of(frame)
    with pytest.raises(InputError, match=message):
        parse_where(text, columns)
    assert parse_where("'In Stock'=true and brand='old oak'", columns) == {
        "all": [{"In Stock": {"eq": True}}, {"brand": {"eq": "old oak"}}]
    }


@pytest.mark.parametrize(
    ("cells", "kind"),
    [(["1", "-2,5", None], "number"), (["2026-01-31", "2025-01-31T10:00"], "time"), (["10:30", "1"], "")],
)
def test_text_that_looks_like_another_type_names_that_type(cells, kind):
    columns = ItemColumns.of(pl.DataFrame({"item_id": range(len(cells)), "said": pl.Series(cells).cast(pl.String)}))
    fix = f", or keep it as a {kind} with `beamwood fit --keep-columns said:{kind}`" if kind else ""
    with pytest.raises(InputError, match=f"use eq or in{fix}$"):
        where_mask({"said": {"lt": 3}}, columns)


def test_k_items_are_returned_if_k_are_allowed():
    retriever, rng = retriever_of(tree_searcher(500)), np.random.default_rng(0)
    frame = item_frame(500)
    for limit in (0, 1, 3, 10, 39):
        where = {"price": {"lte": limit}, "stock": True}
        allowed = set(np.flatnonzero(frame.select((price <= limit) & stock).to_series().fill_null(False).to_numpy()))
        history = rng.integers(0, 500, 12)
        found = retriever.recommend([retriever.items.decode(history)], 6, where=where)
        indices = retriever.items.encode(found.item_ids[0]).tolist()
        assert len(indices) == min(6, len(allowed - set(history.tolist())))
        assert set(indices) <= allowed - set(history.tolist())
        both = retriever.recommend([[]], 6, where=where, allowed={"category": "c2"})
        ids = retriever.items.decode(np.array(sorted(allowed), int))
        assert retriever.recommend([[]], 6, where={"category": "c2"}, allowed=ids) == both


def test_a_model_without_columns_names_the_option():
    retriever = retriever_of(tree_searcher(30))
    object.__setattr__(retriever, "columns", None)
    with pytest.raises(InputError, match="keeps none; `beamwood fit --keep-columns` keeps more"):
        retriever.recommend([[]], 3, where={"price": 3})


def _series(names):
    return pl.Series(names)


def _pandas(names):
    return pytest.importorskip("pandas").Series(names)


def _arrow(names):
    return pytest.importorskip("pyarrow").array(names)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["a|b", "a"])])
def test_a_cell_of_text_of_any_type_is_one_label(dtype):
    columns = ItemColumns.of(pl.DataFrame({"brand": pl.Series(["a|b", "a"], dtype=dtype)}))
    assert where_mask({"brand": "a"}, columns).tolist() == [False, True]


@pytest.mark.parametrize("kind", [list, tuple, set, np.array, iter, _series, _pandas, _arrow])
def test_filters_that_differ_only_in_the_middle_are_distinguished(kind):
    # The text form of a series or an iterator shows only a part, or nothing.
    size, labels = 300, [f"label {n:03d}" for n in range(300)]
    columns = ItemColumns.of(pl.DataFrame({"category": labels, "brand": labels}))
    retriever = replace(retriever_of(tree_searcher(size)), columns=columns)
    wanted = labels[:100] + labels[101:200]
    other = labels[:99] + labels[100:200]

    def found(**asked):
        return retriever.items.encode(retriever.recommend([[]], size, **asked).item_ids[0]).tolist()

    for names in (wanted, other):
        indices = sorted(int(name[-3:]) for name in names)
        assert sorted(found(allowed={"category": kind(names)})) == indices
        assert sorted(found(where={"brand": kind(names)})) == indices
        assert sorted(found(where={"brand": {"in": kind(names)}})) == indices
        assert sorted(found(where={"brand": {"not_in": kind(names)}})) == sorted({*range(size)} - {*indices})
