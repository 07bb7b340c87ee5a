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
