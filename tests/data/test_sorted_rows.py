"""Rows sorted by item do not have the order of events, so they get a random order, which is reported."""

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import beamwood
from beamwood.data.columns import ColumnNames
from beamwood.data.description import describe_log, description_lines

ROWS = np.random.default_rng(0).permutation(3000)


def _notes(frame):
    return beamwood.Dataset.from_log(beamwood.read_log(frame)).report["notes"]


def _frame(order=None):
    users, items = ROWS % 40, ROWS // 40
    frame = pl.DataFrame({"user": users, "item": items})
    return frame if order is None else frame.sort("user", "item", descending=[False, order == "descend"])


@pytest.mark.parametrize("order", ["ascend", "descend"])
def test_sorted_rows_are_reported(order):
    (note,) = _notes(_frame(order))
    assert f"{order} by item" in note
    assert "a draw for each user and item counts in its place" in note
    whole = describe_log(_frame(order))
    assert note in whole["notes"]
    assert "times: none, and the order of rows tells nothing; see the notes" in "\n".join(description_lines(whole))
    # Also if only a sample of users is checked.
    assert note in describe_log(_frame(order), most_rows=1500)["notes"]


def test_rows_in_another_order_or_with_times_are_not_reported():
    assert not any("by item" in note for note in _notes(_frame()))
    frame = _frame("ascend").with_columns(time=pl.int_range(pl.len()))
    assert not any("by item" in note for note in _notes(frame))


@pytest.mark.parametrize("order", ["ascend", "descend"])
def test_the_next_item_in_sorted_rows_cannot_be_predicted(order):
    dataset = beamwood.Dataset.from_log(beamwood.read_log(_frame(order)))
    assert 0.45 < _share_of_steps_up(dataset.histories) < 0.55
    other = _frame("descend" if order == "ascend" else "ascend")
    assert dataset.fingerprint() == beamwood.Dataset.from_log(beamwood.read_log(other)).fingerprint()


def test_a_matrix_has_no_order():
    taken = sparse.csr_matrix((np.ones(len(ROWS)), (ROWS % 40, ROWS // 40)))
    assert 0.45 < _share_of_steps_up(beamwood.Dataset.from_log(beamwood.read_log(taken)).histories) < 0.55


def test_histories_precede_labels():
    frame = _frame("ascend").with_columns(part=pl.col("item") % 3 > 0)
    frame = frame.sort("part", "user", descending=[True, False], maintain_order=True)
    columns = ColumnNames(boundary="part")
    dataset = beamwood.Dataset.from_log(beamwood.read_log(frame, columns=columns))
    assert any("ascend by item" in note for note in dataset.report["notes"])
    later = np.diff(dataset.in_history.astype(int))[np.diff(dataset.histories.rows) == 0]
    assert (later <= 0).all()
    assert 0.45 < _share_of_steps_up(dataset.histories) < 0.55


def _share_of_steps_up(histories):
    steps = np.diff(histories.items)[np.diff(histories.rows) == 0]
    return (steps > 0).sum() / (steps != 0).sum()


def test_few_rows_are_not_reported():
    assert not any("by item" in note for note in _notes(_frame("ascend").filter(pl.col("user") < 2)))


def _tied(order):
    """Rows of each user on two days, with equal times within a day."""
    frame = _frame(order).with_columns(time=pl.int_range(pl.len()) // 20 % 2)
    return frame.sort("user", "time", maintain_order=True)


def test_ties_sorted_by_item_get_a_random_order():
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


def test_two_items_tied_for_many_users_occur_in_both_orders():
    pairs = pl.DataFrame({"user": np.repeat(np.arange(400), 2), "item": np.tile([3, 7], 400), "time": 5})
    items = beamwood.Dataset.from_log(beamwood.read_log(pairs)).histories.items.reshape(-1, 2)
    assert 0.4 < (items[:, 0] < items[:, 1]).mean() < 0.6


def test_ties_in_unsorted_rows_keep_their_order():
    frame = _tied(None)
    dataset = beamwood.Dataset.from_log(beamwood.read_log(frame))
    assert dataset.items.decode(dataset.histories.items) == frame["item"].to_list()
