"""A log without times whose rows were sorted by item tells no order of events, and the reader is told so."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data.description import describe_log

ROWS = np.random.default_rng(0).permutation(3000)


def _notes(frame):
    return beamwood.Dataset.from_log(beamwood.read_log(frame)).report["notes"]


def _frame(order=None):
    users, items = ROWS % 40, ROWS // 40
    frame = pl.DataFrame({"user": users, "item": items})
    return frame if order is None else frame.sort("user", "item", descending=[False, order == "descend"])


@pytest.mark.parametrize("order", ["ascend", "descend"])
def test_sorted_rows_are_said_to_be_so(order):
    (note,) = _notes(_frame(order))
    assert f"{order} by item" in note
    assert "shuffle the rows" in note
    assert note in describe_log(_frame(order))["notes"]
    # As well where only some users are looked at.
    assert note in describe_log(_frame(order), most_rows=1500)["notes"]


def test_rows_of_another_order_and_with_times_are_not():
    assert not any("by item" in note for note in _notes(_frame()))
    frame = _frame("ascend").with_columns(time=pl.int_range(pl.len()))
    assert not any("by item" in note for note in _notes(frame))


def test_few_rows_say_nothing():
    assert not any("by item" in note for note in _notes(_frame("ascend").filter(pl.col("user") < 2)))


def _tied(order):
    """Two days of rows of each user, a row of a day like all others."""
    frame = _frame(order).with_columns(time=pl.int_range(pl.len()) // 20 % 2)
    return frame.sort("user", "time", maintain_order=True)


def test_ties_that_were_sorted_by_item_tell_nothing_of_it():
    dataset = beamwood.Dataset.from_log(beamwood.read_log(_tied("ascend")))
    histories, times = dataset.histories, dataset.times
    tied = (np.diff(histories.rows) == 0) & (np.diff(times) == 0)
    up = (np.diff(histories.items)[tied] > 0).mean()
    assert tied.sum() > 2000
    assert 0.45 < up < 0.55
    assert any(
        "a draw for each user and item, as its own order is that of the items" in note
        for note in dataset.report["notes"]
    )


def test_two_items_that_many_users_tie_come_in_both_orders():
    pairs = pl.DataFrame({"user": np.repeat(np.arange(400), 2), "item": np.tile([3, 7], 400), "time": 5})
    items = beamwood.Dataset.from_log(beamwood.read_log(pairs)).histories.items.reshape(-1, 2)
    assert 0.4 < (items[:, 0] < items[:, 1]).mean() < 0.6


def test_ties_of_users_keep_the_order_in_which_they_were_written():
    frame = _tied(None)
    dataset = beamwood.Dataset.from_log(beamwood.read_log(frame))
    assert dataset.items.decode(dataset.histories.items) == frame["item"].to_list()
