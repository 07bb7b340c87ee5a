"""The tail: which items each rule calls so, which queries and labels a report keeps, and how uneven an exposure is."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.queries import Queries
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.evaluation.metrics import gini
from beamwood.evaluation.tail import Tail, TailRule, tail_queries
from beamwood.types import ItemLists
from real_data import real_data


def training(rows, num_items):
    users, items = (Vocabulary(pl.Series(range(count))) for count in (len(rows), num_items))
    return Dataset(users, items, ItemLists.from_lists(rows))


def tail_of(train, of, share):
    return np.flatnonzero(TailRule(of=of, share=share).tail(train).mask).tolist()


def test_the_tail_by_counts():
    train = training([np.repeat(np.arange(10), [9, 1, 5, 1, 0, 2, 1, 30, 40, 11])], 10)
    assert np.flatnonzero(TailRule().tail(train).mask).tolist() == [1, 4]
    assert tail_of(train, "items", 0.3) == [1, 3, 4]
    assert tail_of(train, "interactions", 0.1) == [1, 2, 3, 4, 5, 6]
    for of in ("items", "interactions", "prefixes"):
        assert tail_of(train, of, 0.0) == ([4] if of == "interactions" else [])
        assert tail_of(train, of, 1.0) == list(range(10))
    assert "20 % of the items with the fewest training interactions" in TailRule().describe()
    assert "10 % of the training interactions" in TailRule(of="interactions", share=0.1).describe()
    assert "prefixes of two items or more" in TailRule(of="prefixes").tail(train).rule


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"of": "item"}, "of='item' is unknown; did you mean 'items'"),
        ({"share": 1.5}, r"share=1.5 is outside 0\.\.1"),
        ({"share": float("nan")}, "share=nan is outside"),
        ({"share": True}, "share=True is outside"),
    ],
)
def test_a_wrong_rule_is_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        TailRule(**wrong)


@pytest.mark.parametrize("share", [0.29, 0.57, 0.58, 0.2, 0.7])
def test_binary_fractions_cost_no_item(share):
    """Of a hundred items with an interaction each every rule takes as many as the percentage says."""
    train = training([np.arange(100)], 100)
    assert [len(tail_of(train, of, share)) for of in ("items", "interactions", "prefixes")] == [round(100 * share)] * 3


def test_halves_are_rounded_up():
    assert [tail_of(training([np.arange(n)], n), "items", 0.5) for n in (3, 5)] == [[0, 1], [0, 1, 2]]
    assert tail_of(training([np.arange(4)], 4), "items", 0.1) == []


def test_the_tail_by_prefixes():
    """Prefixes of two or more: 01, 012; none; 13; 42, 424. Of the items with three the first seen are head."""
    train = training([[0, 1, 2], [3], [1, 3], [4, 2, 4]], 6)
    assert train.prefix_counts.tolist() == [2, 3, 3, 1, 3, 0]
    assert [tail_of(train, "prefixes", share) for share in (0.2, 0.5, 0.6)] == [[3, 5], [0, 3, 5], [0, 3, 4, 5]]
    assert tail_of(train, "items", 0.5) == [0, 1, 5]


@pytest.mark.parametrize("seed", range(20))
def test_prefixes_are_counted_as_by_writing_them_all_out(seed):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 30, rng.integers(2, 6)) for _ in range(12)]
    known, items = np.unique(np.concatenate(rows), return_inverse=True)
    rows = np.split(items, np.cumsum([len(row) for row in rows])[:-1])
    counts = Counter(item for row in rows for stop in range(2, len(row) + 1) for item in row[:stop].tolist())
    ordered = sorted(counts, key=lambda item: -counts[item])
    assert tail_of(training(rows, len(known)), "prefixes", 0.2) == sorted(ordered[int(0.8 * len(ordered)) :])


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "items", "users"), [("amazon_beauty", 2421, 4233), ("amazon_toys", 2385, 4457)])
def test_prefixes_give_the_tail_of_the_published_figures(name, items, users):
    """On the files as LPO4Rec read them, with an extra first item."""
    folder = real_data(name)
    log = pl.read_parquet(folder / "interactions.parquet").select("user_id", "item_id", "timestamp")
    extra = pl.read_parquet(folder / "users_lpo4rec.parquet").drop_nulls()
    extra.columns = ["user_id", "item_id"]
    first = extra.with_columns(timestamp=-1).cast(dict(log.schema))
    split = leave_one_out(Dataset.from_log(read_log(pl.concat([first, log]))))
    rare = TailRule(of="prefixes").tail(split.train)
    assert (rare.mask.sum(), len(tail_queries(split.test, rare))) == (items, users)


def test_only_tail_labels_and_their_users():
    rare = Tail(np.array([False, True, False, True, False]), "tail = 1 and 3")
    lists = ItemLists.from_lists([[0], [2], [4], [0, 1]])
    labels = ItemLists.from_lists([[0, 1], [2], [1, 3], [4]])
    queries = Queries(np.array([7, 8, 9, 10]), lists, labels, lists)
    tail = tail_queries(queries, rare)
    assert tail.users.tolist() == [7, 9]
    assert [row.tolist() for row in tail.labels] == [[1], [1, 3]]
    assert [row.tolist() for row in tail.histories] == [[0], [4]]
    only_head = Queries(np.array([1]), lists.take(np.array([0])), labels.take(np.array([1])), lists.take(np.array([0])))
    with pytest.raises(InputError, match=r"no query has a tail label \(tail = 1 and 3\)"):
        tail_queries(only_head, rare)


def test_gini():
    assert gini(np.array([5, 5, 5])) == 0
    assert np.isclose(gini(np.array([0, 0, 0, 12])), 0.75)
    assert gini(np.zeros(4)) == 0
    values = np.array([1.0, 4.0, 2.0, 7.0])
    slow = np.abs(values[:, None] - values[None]).sum() / (2 * 16 * values.mean())
    assert np.isclose(gini(values), slow)
