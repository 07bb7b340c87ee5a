"""A limit that is too short for a tree is refused before training, and a limit stops a training in progress."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.errors import TimeLimitError
from beamwood.fitting.start_cache import caching
from beamwood.fitting.tree import initial_scorer, node_start, start
from beamwood.fitting.tree.task import TreeTask
from beamwood.methods import load_method
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.training.budget import Budget
from beamwood.tree import build
from plans import planned

SMALL = {"model.width": 8, "model.attention_hidden": 8, "model.mlp": (8,), "loop.max_steps": 2}


class Ticking:
    """A clock that advances by this many seconds with each reading."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(4)
    rows = [(user, item, at) for user in range(60) for at, item in enumerate(rng.permutation(40)[:9])]
    return disjoint_users(Dataset.from_log(read_log(pl.DataFrame(rows, ["user", "item", "timestamp"], orient="row"))))


@pytest.mark.parametrize("method", ["dtr", "jtm", "otm", "plt", "tdm", "din"])
def test_a_short_limit_is_refused_before_training(split, method, monkeypatch):
    def prepare(self, rng, budget):
        raise AssertionError("it began")

    monkeypatch.setattr(TreeTask, "prepare", prepare)
    before, fit = torch.random.get_rng_state(), load_method(method)
    with pytest.raises(TimeLimitError, match=rf"time_limit=4 s is below \d+ s, what {method} needs here; raise it"):
        fit.fitted(split, SMALL, progress=False, time_limit=Budget(4, clock=Ticking(0.5), name=method))
    assert torch.equal(torch.random.get_rng_state(), before)
    if method == "din":
        return
    # The duration of searches by a fitted tree cannot be estimated.
    with pytest.raises(AssertionError, match="it began"):
        fit.fitted(split, SMALL | {"tree.start": "folder"}, progress=False, time_limit=Budget(4, clock=Ticking(0.5)))


def test_the_estimated_time_is_not_more_than_needed(split, monkeypatch):
    """A search takes a second per user; everything else takes no time."""
    clock, search = Ticking(0.0), TreeSearcher._found

    def slow(self, query, *others):
        clock.now += len(query)
        return search(self, query, *others)

    monkeypatch.setattr(TreeSearcher, "_found", slow)
    method = load_method("dtr")
    config = planned(method.configured(SMALL | {"loop.max_steps": 1}), split.train)
    foreseen = TreeTask(split, config, None).min_seconds(clock)
    began = clock.now
    method.fitted(split, config, progress=False, time_limit=Budget(10**6, clock=clock))
    assert 0.3 * (clock.now - began) < foreseen <= clock.now - began
    nobody = replace(split, valid=split.valid.take(np.zeros(0, np.int64)))
    assert TreeTask(nobody, config, None).min_seconds(clock) == 0.0


@pytest.mark.parametrize("start", ["transitions", "pifa"])
def test_a_limit_stops_the_construction_of_the_tree(split, start, monkeypatch):
    clock = Ticking(0.0)
    monkeypatch.setattr(TreeTask, "min_seconds", lambda self, clock: 0.0)
    monkeypatch.setattr("beamwood.tree.build.split_clusters", lambda *_: setattr(clock, "now", clock.now + 10))
    with pytest.raises(TimeLimitError, match=r"time_limit=20 s is below [3-9]\d s, what dtr needs here; raise it"):
        load_method("dtr").fitted(
            split, SMALL | {"tree.start": start}, progress=False, time_limit=Budget(20, clock=clock, name="dtr")
        )
    assert clock.now <= 20


def test_a_limit_calibrates_on_fewer_examples(split, monkeypatch):
    """Scoring takes a second per example; everything else takes no time."""
    clock, scored, seconds = Ticking(0.0), TreeTask.scored, []
    monkeypatch.setattr(initial_scorer, "_FEWEST", 8)
    monkeypatch.setattr(TreeTask, "min_seconds", lambda self, clock: 0.0)

    def slow(self, batch):
        clock.now += len(batch.targets_BT)
        return scored(self, batch)

    calibrate = initial_scorer.calibrate_levels

    def timed(task, rng, budget):
        began = clock.now
        calibrate(task, rng, budget)
        seconds.append(clock.now - began)

    monkeypatch.setattr(TreeTask, "scored", slow)
    monkeypatch.setattr(initial_scorer, "calibrate_levels", timed)
    for limit in (None, 10**6, 250):
        load_method("otm").fitted(split, SMALL, progress=False, time_limit=limit and Budget(limit, clock=clock))
    num_users = np.count_nonzero(split.train.histories.lengths > 1)
    # Each size is scored twice to be timed: 4 and 32 examples.
    assert seconds == [num_users, 72 + num_users, 72 + (250 - 72) // 10]


def test_a_large_tree_is_refused_before_its_vectors(split, monkeypatch):
    monkeypatch.setattr(TreeTask, "min_seconds", lambda self, clock: 10.0)
    monkeypatch.setattr(start, "cut_seconds", lambda *_: 100.0)
    monkeypatch.setattr(node_start, "least_vector_seconds", lambda *_: 40.0)
    fit = load_method("dtr")

    def refused(limit, changed, needs):
        with pytest.raises(TimeLimitError, match=rf"time_limit={limit} s is below {needs} s, what dtr needs here"):
            fit.fitted(split, SMALL | changed, progress=False, time_limit=Budget(limit, clock=Ticking(0), name="dtr"))

    with monkeypatch.context() as patched:
        patched.setattr(TreeTask, "prepare", lambda *_: pytest.fail("it began"))
        refused(80, {}, 150)
        refused(60, {"tree.start": "pifa", "start.scores": "random"}, 110)
        refused(20, {"tree.start": "random"}, 50)
    # The vectors may take what the tree leaves.
    clock, reserved, made = Ticking(0), [], node_start.transition_vectors

    def vectors(train, width, seed, budget):
        reserved.append(budget.reserved)
        return made(train, width, seed, budget)

    monkeypatch.setattr(node_start, "transition_vectors", vectors)
    fit.fitted(split, SMALL, progress=False, time_limit=Budget(1000, clock=clock))
    fit.fitted(split, SMALL, progress=False)
    assert reserved == [110.0, 0.0]


def test_a_cached_tree_takes_no_time(split, monkeypatch):
    monkeypatch.setattr(start, "cut_seconds", lambda *_: 100.0)
    config = planned(load_method("dtr").configured(SMALL | {"loop.max_steps": 1}), split.train)
    with caching():
        task = TreeTask(split, config, None)
        assert task.start_seconds(0, Ticking(0)) == 100.0
        load_method("dtr").fitted(split, config, progress=False)
        assert task.start_seconds(0, Ticking(0)) == 0.0
        assert task.start_seconds(1, Ticking(0)) == 100.0


def test_only_many_items_take_time_to_cluster():
    assert build.cut_seconds(1000, 8, Ticking(0.5)) == 0.0
    assert build.cut_seconds(2**17, 8, Ticking(0.5)) == 0.5 * 2 * 17
