"""Time limits of resumed runs, and the comparison with their best metric."""

import pytest

from beamwood.errors import TimeLimitError
from beamwood.training.budget import Budget
from beamwood.training.loop import run_loop
from beamwood.training.loop_config import LoopConfig
from beamwood.training.pace import Estimates, Validator
from beamwood.training.run_folder import RunFolder, RunRecord
from clocks import Clock
from linear_task import LinearTask

CONFIG = LoopConfig(batch_size=8, max_steps=100, evaluate_every=5, monitor="valid/fit", schedule="constant")


class Timed(LinearTask):
    """Preparation takes ten seconds, a step one, a validation two; `lucky` is added to the validation metric."""

    def __init__(self, clock, lucky=0.0):
        super().__init__()
        self.clock, self.lucky, self.had = clock, lucky, None

    def prepare(self, rng, budget):
        self.had = budget.left
        budget.require(10)
        super().prepare(rng, budget)
        self.clock.now += 10

    def loss(self, batch, rng):
        self.clock.now += 1
        return super().loss(batch, rng)

    def evaluate(self):
        self.clock.now += 2
        return {"fit": super().evaluate()["fit"] + self.lucky}


def trained(folder, limit, *, num_queries=None, lucky=0.0, resume=False):
    """The task, its result, and the number of validation users in the estimates."""
    task, told = Timed(Clock(), lucky), []

    def estimates(before):
        told.append(before)
        return Estimates(validation=2, num_queries=num_queries)

    budget = Budget(limit, clock=task.clock, name="mine")
    result = run_loop(
        task,
        CONFIG,
        validator=Validator(task.evaluate, estimates),
        record=RunRecord(RunFolder(folder), resume=resume),
        budget=budget,
        seed=3,
        progress=False,
    )
    return task, result, told


def test_earlier_time_counts(tmp_path):
    first, before, _ = trained(tmp_path / "run", 30)
    assert first.had == 30
    again, result, _ = trained(tmp_path / "run", 60, resume=True)
    assert again.had == 60 - before.seconds
    assert result.steps > before.steps
    assert result.seconds <= 60


def test_a_run_without_remaining_time_returns_its_model(tmp_path):
    with pytest.raises(TimeLimitError):
        trained(tmp_path / "none", 11)
    _, before, _ = trained(tmp_path / "run", 30)
    _, result, _ = trained(tmp_path / "run", before.seconds + 1, resume=True)
    assert (result.steps, result.best_step) == (before.steps, before.best_step)
    assert result.best_metric == before.best_metric


def test_other_validation_users_evaluate_the_best_weights_again(tmp_path):
    """With a metric that was high by chance on fewer users, no later weights would be better."""
    _, few, told = trained(tmp_path / "run", 30, num_queries=8, lucky=100.0)
    assert told == [None]
    assert few.best_metric > 50
    _, result, told = trained(tmp_path / "run", 90, num_queries=64, resume=True)
    assert told == [8]
    assert result.best_metric < 50
    assert result.best_step > few.steps
    # With the same validation users nothing is evaluated again.
    _, again, told = trained(tmp_path / "run", result.seconds + 1, num_queries=64, lucky=100.0, resume=True)
    assert told == [64]
    assert again.best_metric == result.best_metric
