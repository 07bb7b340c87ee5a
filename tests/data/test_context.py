"""Context columns stay aligned with their events in every split."""

import numpy as np
import polars as pl
import pytest

from beamwood.data import ColumnNames, Dataset, disjoint_users, leave_one_out, read_log
from beamwood.data.splits import by_boundary, by_time
from beamwood.errors import InputError


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 40, 900), rng.integers(0, 30, 900)
    time = rng.permutation(900) * 7
    later = time > np.sort(time)[500]
    frame = pl.DataFrame(
        {
            "user": users,
            "item": items,
            "time": time,
            "device": [None if t % 5 == 0 else f"d{t}" for t in time],
            "hour": time % 24,
            "part": np.where(later, "future", "history"),
        }
    )
    log = read_log(frame, columns=ColumnNames(boundary="part", context=("device", "hour")))
    return Dataset.from_log(log)


def expected_hours(times):
    return (np.asarray(times) % 24).tolist()


def test_context_follows_the_order_of_histories(dataset):
    assert dataset.context.columns == ["device", "hour"]
    assert dataset.context["hour"].to_list() == expected_hours(dataset.times)
    assert dataset.context["device"].to_list() == [None if t % 5 == 0 else f"d{t}" for t in dataset.times]


@pytest.mark.parametrize("make", [disjoint_users, leave_one_out, by_time, by_boundary])
def test_a_query_has_the_context_of_its_first_label(dataset, make):
    split = make(dataset)
    assert len(split.train.context) == len(split.train.histories.items)
    # Each training entry is a log entry with the same user, item and hour.
    whole = {
        (u, i, h)
        for u, i, h in zip(dataset.histories.rows, dataset.histories.items, dataset.context["hour"], strict=True)
    }
    train = split.train
    assert all(
        entry in whole for entry in zip(train.histories.rows, train.histories.items, train.context["hour"], strict=True)
    )
    for queries in (split.valid, split.test):
        assert len(queries.context) == len(queries)
        for row, user in enumerate(queries.users):
            start, end = dataset.histories.indptr[user : user + 2]
            own = slice(start, end)
            hours = dataset.context["hour"][own].to_list()
            labelled = [h for h, i in zip(hours, dataset.histories.items[own], strict=True) if i in queries.labels[row]]
            assert queries.context["hour"][row] in labelled
        part = queries.take(np.array([2, 0]))
        assert part.context.rows() == [queries.context.row(2), queries.context.row(0)]
    first = dataset.histories.indptr[split.test.users]
    if make is by_boundary:
        first = [start + np.argmin(dataset.in_history[start:]) for start in first]
    else:
        first = first + split.test.seen.lengths
    assert split.test.context["hour"].to_list() == expected_hours(dataset.times[first])


def test_wrong_columns():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "device": ["a", "b"]})
    with pytest.raises(InputError, match=r"no column 'devise' for the context.*'device'"):
        read_log(frame, columns=ColumnNames(context=("devise",)))
    assert Dataset.from_log(read_log(frame)).context is None
