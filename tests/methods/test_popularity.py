"""Popularity, and its half-life."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, read_log
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.recipes.portfolio.members import members_of
from beamwood.recipes.portfolio.outline import Outline
from beamwood.types import ItemLists

# Item 0 twice long ago, item 1 once now, item 2 once in the middle.
LOG = pl.DataFrame({"user": [0, 1, 1, 2, 2], "item": [0, 0, 2, 1, 0], "time": [100, 100, 104, 108, 106]})


def split_of(frame):
    data = Dataset.from_log(read_log(frame))
    one = Queries(np.array([0]), *(ItemLists.from_lists([[item]]) for item in (0, 1, 0)))
    return Split(data, data, one, one, "given", "all train")


def counts(split, **model):
    return beamwood.fit(split, "popularity", {"model": model}).searcher.counts


def test_the_weight_halves_with_age():
    # Half of the span of 8: ages 8, 8, 4, 0, 2 weigh 1/4, 1/4, 1/2, 1 and 2^-.5.
    np.testing.assert_allclose(counts(split_of(LOG), half_life=0.5), [0.5 + 2**-0.5, 1, 0.5], rtol=1e-6)


def test_a_repeat_counts_once_with_its_latest_time():
    again = pl.concat([LOG, pl.DataFrame({"user": [0], "item": [0], "time": [108]})])
    np.testing.assert_allclose(counts(split_of(again), half_life=0.5), [1 + 0.25 + 2**-0.5, 1, 0.5], rtol=1e-6)


def test_weights_of_events_are_multiplied():
    split = split_of(LOG)
    weighed = replace(split.train, weights=np.array([1, 1, 4, 1, 1], np.float32))
    np.testing.assert_allclose(counts(replace(split, train=weighed), half_life=0.5)[2], 2)


@pytest.mark.parametrize("half_life", [None, 1e9])
def test_without_a_half_life_interactions_are_counted(half_life):
    assert np.array_equal(counts(split_of(LOG), half_life=half_life), np.float32([3, 1, 1]))


def test_events_at_the_same_time_are_all_new():
    assert np.array_equal(counts(split_of(LOG.with_columns(time=5)), half_life=0.1), np.float32([3, 1, 1]))


def test_old_items_keep_their_order():
    found = counts(split_of(LOG), half_life=1e-4)
    assert found[1] > found[0] > found[2] > 0


def test_a_log_without_times_is_refused_or_counted():
    counted = split_of(LOG.drop("time"))
    with pytest.raises(InputError, match=r"model.half_life=0.5 needs times that compare .*--time-column"):
        counts(counted, half_life=0.5)
    assert np.array_equal(counts(counted, half_life="auto"), np.float32([3, 1, 1]))


def test_validation_chooses_and_the_choice_is_saved(tmp_path):
    old = pl.DataFrame({"user": [0] * 30 + [1] * 30, "item": [*range(30)] * 2, "time": [7] * 60})
    split = split_of(pl.concat([old, pl.DataFrame({"user": [2], "item": [30], "time": [99]})]))
    asked = Queries(np.array([0]), *(ItemLists.from_lists([[item]]) for item in (0, 30, 0)))
    fitted = beamwood.fit(replace(split, valid=asked), "popularity", {"model.half_life": "auto"})
    # The label has one user, the other items two, which weigh half as much after a half-life of half of the span.
    assert fitted.metadata["training"] == {"half_life": 0.5, "valid/f@20": 2 / 21}
    fitted.save(tmp_path / "saved")
    assert np.array_equal(beamwood.load(tmp_path / "saved").searcher.counts, fitted.searcher.counts)


def test_a_search_for_the_best_method_lets_validation_choose():
    (member,) = [each for each in members_of(Outline.of(split_of(LOG)), trains=False) if each.name == "popularity"]
    assert member.settings == {"model.half_life": "auto"}
