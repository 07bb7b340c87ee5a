"""Leakage rules of splits, and training examples against plain loops."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beamwood
from beamwood.data import (
    SPLITS,
    ColumnNames,
    Dataset,
    by_boundary,
    by_session,
    by_time,
    disjoint_users,
    leave_one_out,
    read_log,
)
from beamwood.data.examples import last_window, windows
from beamwood.errors import InputError
from beamwood.types import ItemLists
from real_data import real_data


def random_dataset(seed, num_users=40, with_part=False):
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(num_users) * 7 + 1, rng.integers(1, 200, num_users))
    frame = pl.DataFrame({"user": users, "item": rng.integers(0, 90, len(users)), "time": np.arange(len(users))})
    return Dataset.from_log(read_log(frame))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_disjoint_users_follow_the_definition(seed):
    data = random_dataset(seed)
    split = disjoint_users(data, seed=seed)
    p = np.random.default_rng(seed).permutation(data.users.ids.to_numpy())
    n = len(p)
    train, valid, test = p[: int(0.8 * n)], p[int(0.8 * n) : int(0.9 * n)], p[int(0.9 * n) :]
    trained = data.users.ids.to_numpy()[split.train.histories.lengths > 0]
    assert set(trained) == set(train)
    for queries, users in ((split.valid, valid), (split.test, test)):
        asked = data.users.ids.to_numpy()[queries.users]
        assert set(asked) <= set(users)
        for row, user in enumerate(queries.users):
            events = data.histories[user]
            middle = len(events) // 2
            assert list(queries.histories[row]) == list(events[:middle][-69:])
            assert list(queries.seen[row]) == list(events[:middle])
            assert list(queries.labels[row]) == sorted(set(events[middle:].tolist()))
    assert len(split.valid) + len(split.test) + split.report["users_without_both_halves"] == n - int(0.8 * n)


@pytest.mark.parametrize("name", ["users", "leave-one-out", "time", "sessions"])
def test_training_rows_keep_their_times(name):
    data = random_dataset(5)
    train = SPLITS[name](data).train
    places = [np.flatnonzero(data.times == time)[0] for time in train.times]
    assert np.array_equal(data.histories.rows[places], train.histories.rows)
    assert np.array_equal(data.histories.items[places], train.histories.items)
    assert 0 < len(train.times) < len(data.times)


def test_boundary_column_sets_the_halves():
    frame = pl.DataFrame(
        {
            "user": np.repeat(np.arange(20), 4),
            "item": np.tile([1, 2, 3, 4], 20),
            "part": ["history"] + ["future"] * 3 + ["history", "history", "future", "future"] * 19,
        }
    )
    split = disjoint_users(Dataset.from_log(read_log(frame, columns=ColumnNames(boundary="part"))))
    for row, user in enumerate(split.test.users):
        assert len(split.test.histories[row]) == (1 if user == 0 else 2)
    wrong = frame.with_columns(part=pl.Series(["future", "history"] * 40))
    with pytest.raises(InputError, match="boundary column marks"):
        disjoint_users(Dataset.from_log(read_log(wrong, columns=ColumnNames(boundary="part"))))


def test_leave_one_out_hides_the_last_two():
    data = random_dataset(1)
    split = leave_one_out(data)
    for row, user in enumerate(split.test.users):
        events = list(data.histories[user])
        assert list(split.train.histories[user]) == events[:-2]
        assert (list(split.valid.histories[row]), list(split.valid.labels[row])) == (events[:-2], events[-2:-1])
        assert (list(split.test.histories[row]), list(split.test.labels[row])) == (events[:-1], events[-1:])


def test_time_split_never_uses_later_events():
    rng = np.random.default_rng(3)
    frame = pl.DataFrame(
        {"user": rng.integers(0, 30, 900), "item": rng.integers(0, 50, 900), "time": rng.integers(0, 500, 900)}
    )
    data = Dataset.from_log(read_log(frame))
    split = by_time(data)
    cuts = [int(text) for text in split.rule.replace(",", "").split() if text.isdigit()]
    assert len(cuts) == 2
    for user in range(len(data.users)):
        times = data.times[data.histories.indptr[user] : data.histories.indptr[user + 1]]
        assert len(split.train.histories[user]) == np.count_nonzero(times < cuts[0])
    for queries, cut, end in ((split.valid, cuts[0], cuts[1]), (split.test, cuts[1], 10**9)):
        for row, user in enumerate(queries.users):
            events, times = (
                data.histories[user],
                data.times[data.histories.indptr[user] : data.histories.indptr[user + 1]],
            )
            assert list(queries.histories[row]) == list(events[times < cut])
            assert list(queries.labels[row]) == sorted(set(events[(times >= cut) & (times < end)].tolist()))


@pytest.mark.parametrize(
    ("form", "first"),
    [
        (lambda seconds: seconds, "2023-11-16 18:40:00 UTC"),
        (lambda seconds: seconds * 1000 + 5, "2023-11-16 18:40:00.005000 UTC"),
        (lambda seconds: seconds * 10**9, "2023-11-16 18:40:00 UTC"),
        (lambda seconds: pl.from_epoch(seconds).dt.strftime("%Y-%m-%dT%H:%M:%SZ"), "2023-11-16 18:40:00 UTC"),
        (lambda seconds: seconds - 1_700_000_000, "160000"),
        (lambda seconds: seconds - 2_700_000_000, "-999840000"),
        (lambda seconds: (seconds - 1_700_000_000) / 1000 + 0.25, "160.25"),
    ],
)
@pytest.mark.parametrize("cut", [by_time, by_session])
def test_the_cuts_in_time_are_dates(cut, form, first):
    """An event every hundred seconds; numbers that only order stay as they are."""
    seconds = pl.Series(1_700_000_000 + np.arange(2000) * 100)
    users = np.arange(2000) % 20 if cut is by_time else np.arange(2000) // 2
    log = read_log(pl.DataFrame({"user": users, "item": np.arange(2000) % 7, "time": form(seconds)}))
    rule = cut(Dataset.from_log(log)).rule
    assert f"before {first} train, from there to " in rule, rule


def test_the_last_event_may_be_at_the_largest_time():
    times = [*range(18), 2**63 - 2, 2**63 - 1]
    split = by_time(
        Dataset.from_log(read_log(pl.DataFrame({"user": [1, 2] * 10, "item": [*range(20)], "time": times})))
    )
    assert [list(labels) for labels in split.test.labels] == [[18], [19]]


def test_a_split_by_session_keeps_each_user_whole():
    """Users in random order, their sessions overlap, some start together, and some have one event."""
    rng = np.random.default_rng(4)
    starts, lengths = rng.integers(0, 60, 200) * 10, rng.integers(1, 8, 200)
    frame = pl.DataFrame(
        [
            (user, int(rng.integers(0, 30)), int(starts[user]) + place * 4)
            for user in rng.permutation(200)
            for place in range(lengths[user])
        ],
        schema=["user", "item", "time"],
        orient="row",
    )
    data = Dataset.from_log(read_log(frame))
    split = by_session(data, valid_share=0.2)
    first, second = (np.sort(starts)[place] for place in (140, 180))
    assert {first, second} <= {int(text) for text in split.rule.replace(",", "").split() if text.isdigit()}
    trained = np.flatnonzero(split.train.histories.lengths)
    assert np.array_equal(trained, np.flatnonzero(starts < first))
    assert np.array_equal(split.train.histories.lengths[trained], lengths[trained])
    for queries, wanted in ((split.valid, (starts >= first) & (starts < second)), (split.test, starts >= second)):
        assert np.array_equal(queries.users, np.flatnonzero(wanted & (lengths >= 2)))
        for row, user in enumerate(queries.users):
            events, middle = data.histories[user], lengths[user] // 2
            assert list(queries.histories[row]) == list(events[:middle])
            assert list(queries.labels[row]) == sorted(set(events[middle:].tolist()))
    late = sum(
        start + place * 4 >= second
        for start, n in zip(starts, lengths, strict=True)
        if start < first
        for place in range(n)
    )
    assert f"; {late} training events are not before the second cut" in split.rule
    assert split.tests_unknown_users
    with pytest.raises(InputError, match="but --split sessions tests on others; use --split leave-one-out"):
        beamwood.compare(split, ["popularity", "ranker"])
    with pytest.raises(InputError, match="but --split sessions tests on others; use --split leave-one-out"):
        beamwood.fit(split, "ranker")


def test_a_split_by_session_needs_users_who_start_at_different_times():
    frame = pl.DataFrame({"user": np.repeat(np.arange(30), 4), "item": np.tile(range(6), 20), "time": 5})
    with pytest.raises(InputError, match=r"no user starts before the first cut, 5, .*; choose --split users or leave"):
        by_session(Dataset.from_log(read_log(frame)))
    with pytest.raises(InputError, match="below one user of 30; raise it"):
        by_session(Dataset.from_log(read_log(frame.with_columns(time=pl.col("user")))), test_share=1e-17)


@pytest.mark.parametrize(("valid", "test"), [(0.1, 5e-324), (5e-324, 0.1), (1e-17, 1e-17)])
def test_a_share_below_one_event_is_refused(valid, test):
    frame = pl.DataFrame({"user": [n % 5 for n in range(40)], "item": [n % 7 for n in range(40)], "time": range(40)})
    data = Dataset.from_log(read_log(frame))
    with pytest.raises(InputError, match=r"valid_share=.* or test_share=.* is below one event of 40; raise it"):
        by_time(data, valid_share=valid, test_share=test)
    assert len(by_time(data, valid_share=0.3, test_share=0.3).test)


def test_too_little_data():
    few = Dataset.from_log(read_log(pl.DataFrame({"user": [1, 2, 3], "item": [1, 1, 1]})))
    with pytest.raises(InputError, match="3 users are too few"):
        disjoint_users(few)
    with pytest.raises(InputError, match="no user has the 3 items of leave-one-out, but at most 1;"):
        leave_one_out(few)
    marked = pl.DataFrame({"user": [1, 2], "item": [1, 2], "part": ["train", "test"]})
    with pytest.raises(InputError, match=r"no user has both .* column, which marks 1 of 2 rows as history"):
        by_boundary(Dataset.from_log(read_log(marked, columns=ColumnNames(boundary="part"))))
    once = Dataset.from_log(read_log(pl.DataFrame({"user": range(20), "item": range(20), "time": range(5, 25)})))
    with pytest.raises(InputError, match="no user has events on both sides of 21, a time cut of the split"):
        by_time(once)
    for split in (by_time, by_session):
        with pytest.raises(InputError, match="has no times"):
            split(few)
    single = Dataset.from_log(read_log(pl.DataFrame({"user": range(20), "item": range(20)})))
    with pytest.raises(InputError, match="leaves 0 validation users and 0 test users"):
        disjoint_users(single)


def test_times_that_count_within_users_are_refused_by_a_time_split():
    frame = pl.DataFrame({"user": np.repeat([1, 2, 3], 4), "item": range(12), "time": np.tile(range(4), 3)})
    for split in (by_time, by_session):
        with pytest.raises(InputError, match=r"only count 0, 1, 2, \.\.\. within each user"):
            split(Dataset.from_log(read_log(frame)))


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5), st.integers(2, 6), st.integers(1, 5))
def test_windows_equal_the_loop(rows, length, min_history):
    if min_history >= length:
        with pytest.raises(InputError):
            windows(ItemLists.from_lists(rows), length=length, min_history=min_history)
        return
    lists = ItemLists.from_lists(rows)
    expected = [
        (user, row[max(0, t - length + 1) : t], row[t])
        for user, row in enumerate(rows)
        for t in range(min_history, len(row))
    ]
    examples = windows(lists, length=length, min_history=min_history)
    everything = np.arange(len(examples))
    got = zip(examples.users, map(list, examples.histories(everything)), examples.targets(everything), strict=True)
    assert [(u, h, t) for u, h, t in got] == expected
    last = last_window(lists, length=length, min_history=min_history)
    assert len(last) == sum(len(row) > min_history for row in rows)
    assert all(stop == lists.indptr[user + 1] - 1 for user, stop in zip(last.users, last.stop, strict=True))


def test_examples_count_the_items_ahead_of_them():
    examples = windows(ItemLists.from_lists([[1, 2, 3, 4], [5, 6]]), length=4, min_history=1)
    every = np.arange(len(examples))
    assert examples.ahead(every, 0).tolist() == [3, 2, 1, 1]
    assert examples.ahead(every, 2).tolist() == [2, 2, 1, 1]
    some = examples.take(np.array([3, 1]))
    assert some.targets(np.arange(2)).tolist() == [6, 3]
    assert some.ahead(np.array([1]), 0).tolist() == [2]


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "boundary", "distinct", "expected"),
    # On ml1m no user has an item twice. On mind_dtr each user counts once per item; events give .0910 and .0879.
    [("ml1m", None, False, (0.0660, 0.0898)), ("mind_dtr", "part", True, (0.0886, 0.0885))],
)
def test_popularity_has_the_known_figures(name, boundary, distinct, expected):
    path = real_data(name) / "interactions.parquet"
    dataset = Dataset.from_log(read_log(path, columns=ColumnNames(boundary=boundary)))
    split = disjoint_users(dataset)
    taken = split.train.histories.distinct() if distinct else split.train.histories
    best = np.argsort(-np.bincount(taken.items, minlength=dataset.num_items), kind="stable")[:1000]

    def f_at_20(query, leave_out):
        seen = split.test.seen[query] if leave_out else []
        labels = split.test.labels[query]
        return 2 * len(np.intersect1d(best[~np.isin(best, seen)][:20], labels)) / (20 + len(labels))

    for leave_out, figure in zip((False, True), expected, strict=True):
        measured = np.mean([f_at_20(query, leave_out) for query in range(len(split.test))])
        assert measured == pytest.approx(figure, abs=1e-4)


@pytest.mark.parametrize("split", SPLITS.values())
def test_an_invalid_dataset_or_seed_is_named(split):
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2]})
    with pytest.raises(InputError, match=r"dataset is a DataFrame; make one, as Dataset\.from_log\(read_log"):
        split(frame)
    with pytest.raises(InputError, match=r"log is a DataFrame; read it with beamwood\.data\.read_log"):
        Dataset.from_log(frame)
    dataset = Dataset.from_log(read_log(frame))
    for seed in (-1, 1.5, None, True):
        with pytest.raises(InputError, match=f"seed={seed} is not a whole number of at least 0"):
            split(dataset, seed=seed)


@pytest.mark.parametrize("length", [0, -3, 1.5, "9", True])
def test_a_history_length_is_checked(length):
    dataset = Dataset.from_log(read_log(pl.DataFrame({"user": [1, 2], "item": [1, 2]})))
    with pytest.raises(InputError, match=r"history_length=.* is not a whole number of at least 1"):
        disjoint_users(dataset, history_length=length)
    with pytest.raises(InputError, match=r"history_length=.* is not a whole number of at least 1"):
        by_session(dataset, history_length=length)


def test_an_invalid_custom_split_is_located():
    """Too few rows, indices of no user or item, and a training part with another catalogue."""
    data = random_dataset(4)
    split = leave_one_out(data)
    num_users, num_items, test = len(data.users), data.num_items, split.test
    with pytest.raises(InputError, match=rf"{len(test)} users and 1 rows of labels; give one row of labels a user"):
        replace(test, labels=test.labels.take(np.zeros(1, int)))
    for name in ("histories", "labels", "seen"):
        strange = ItemLists.from_lists([[num_items]] * len(test))
        with pytest.raises(InputError, match=rf"test\.{name} holds index {num_items} of {num_items} items; give indic"):
            replace(split, test=replace(test, **{name: strange}))
    for user in (-1, num_users):
        with pytest.raises(InputError, match=rf"valid\.users holds index {user} of {num_users} users"):
            replace(split, valid=replace(split.valid, users=np.full(len(split.valid), user)))
    other = random_dataset(5, num_users=12)
    with pytest.raises(InputError, match=r"train has 12 users .* make it of the data set, as dataset\.with_histories"):
        replace(split, train=other)
