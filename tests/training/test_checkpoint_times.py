"""Checkpoint intervals by their cost and the time that a kill may lose, with a simulated clock."""

import time
from itertools import pairwise

import pytest

from beamwood.training import run_folder
from beamwood.training.budget import Budget
from beamwood.training.checkpoint_times import MAX_LOST, MAX_SHARE, CheckpointTimes
from beamwood.training.loop import run_loop
from beamwood.training.loop_config import LoopConfig
from beamwood.training.pace import Validator
from beamwood.training.run_folder import RunFolder, RunRecord
from clocks import Clock
from linear_task import LinearTask


class Clocked(LinearTask):
    """A step takes `step` seconds of a simulated clock, a validation `validation`."""

    def __init__(self, clock, step=1.0, validation=0.0):
        super().__init__()
        self.clock, self.each, self.validation = clock, step, validation

    def loss(self, batch, rng):
        self.clock.now += self.each
        return super().loss(batch, rng)

    def evaluate(self):
        self.clock.now += self.validation
        return super().evaluate()


def saves(tmp_path, monkeypatch, cost, *, steps=400, step=1.0, validation=1e-3, every=50):
    """When checkpoints began and ended, by the simulated clock, and the end of the run."""
    clock, saved = Clock(50.0), []
    costs = cost if callable(cost) else lambda number: cost

    def save(path, state):
        began = clock.now
        clock.now += costs(len(saved))
        saved.append((began, clock.now))

    monkeypatch.setattr(run_folder, "save_checkpoint", save)
    task = Clocked(clock, step, validation)
    config = LoopConfig(batch_size=8, max_steps=steps, evaluate_every=every, monitor="fit")
    run_loop(
        task,
        config,
        validator=Validator(task.evaluate),
        record=RunRecord(RunFolder(tmp_path / "run", overwrite=True)),
        budget=Budget(clock=clock),
        progress=False,
    )
    return saved, clock.now


def between(saved):
    """Seconds between checkpoints, except for the last one, which is saved at the end of the run."""
    return [after[0] - before[1] for before, after in pairwise(saved[:-1])]


def lost(saved, end, start=50.0):
    """The most that a kill at any moment costs: from the end of one checkpoint to the end of the next."""
    return max(after - before for before, after in pairwise([start, *(ended for _, ended in saved), end]))


@pytest.mark.parametrize("cost", [0.0, 0.01, 0.5, 1.1])
def test_fast_checkpoints_keep_both_bounds(tmp_path, monkeypatch, cost):
    saved, end = saves(tmp_path, monkeypatch, cost)
    assert len(saved) >= 6
    # The cost of the first checkpoint is unknown in advance.
    assert lost(saved, end) <= MAX_LOST + cost + 1e-6
    assert lost(saved[1:], end, saved[0][1]) <= MAX_LOST + 1e-6
    assert all(cost <= MAX_SHARE * (apart + cost) * (1 + 1e-9) + 1e-6 for apart in between(saved))
    # Nor are they more frequent than needed.
    assert all(apart >= MAX_LOST - cost - 1.0 - 1e-6 for apart in between(saved))


@pytest.mark.parametrize("cost", [3.0, 10.0])
def test_slow_checkpoints_are_limited_by_their_cost(tmp_path, monkeypatch, cost):
    saved, _ = saves(tmp_path, monkeypatch, cost, steps=1500 if cost == 10 else 600)
    assert len(saved) >= 4
    assert all(apart == pytest.approx(49 * cost, abs=1.0) for apart in between(saved))
    assert all(cost <= MAX_SHARE * (apart + cost) * (1 + 1e-9) for apart in between(saved))


def test_a_checkpoint_that_becomes_fast_again_is_more_frequent(tmp_path, monkeypatch):
    saved, _ = saves(tmp_path, monkeypatch, lambda number: 5.0 if number == 1 else 0.1, steps=500)
    assert between(saved)[1] == pytest.approx(49 * 5.0, abs=1.0)
    assert between(saved)[2] == pytest.approx(MAX_LOST - 0.1, abs=1.0)


def test_a_checkpoint_precedes_long_work(tmp_path, monkeypatch):
    """A kill during a long validation or step loses that alone: a checkpoint was saved before it."""
    saved, end = saves(tmp_path, monkeypatch, 0.1, steps=100, validation=45.0, every=25)
    assert lost(saved, end) <= MAX_LOST + 0.2
    saved, end = saves(tmp_path, monkeypatch, 0.1, steps=20, step=25.0)
    assert lost(saved, end) <= MAX_LOST + 0.2


def test_changes_of_the_system_clock_do_not_matter(monkeypatch):
    """It is set back by a year and then forward by two; a training uses a monotonic clock."""
    clock = Budget().clock
    times, before, wall = CheckpointTimes(clock), clock(), time.time()
    for jump in (-3e7, 6e7):
        monkeypatch.setattr(time, "time", lambda jump=jump: wall + jump)
        assert not times.is_due()
        assert 0 <= Budget().seconds < MAX_LOST
    assert before <= clock() < before + MAX_LOST
