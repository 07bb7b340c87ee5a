"""The best weights of a run, and their return to an earlier state when an update is rolled back."""

import torch

from beamwood.training.best_weights import BestWeights
from beamwood.training.budget import Budget
from beamwood.training.interrupt import InterruptGuard
from beamwood.training.loop_state import LoopState
from beamwood.training.pace import Estimates, Pace
from beamwood.training.trainable import Stepper
from linear_task import LinearTask


def test_a_rollback_restores_the_metrics_and_the_weights():
    stepper, state, metrics = Stepper(LinearTask()), LoopState(), iter([0.2, 0.1, 0.5])
    model = stepper.task.model

    def evaluate():
        return {"fit": next(metrics)}

    best = BestWeights(stepper, evaluate, "fit", state, Pace(Budget(), Estimates()), None)
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for step in range(2):
        state.step = step
        best.validate(InterruptGuard())
        with torch.no_grad():
            model.table.weight.add_(1.0)
    before = best.snapshot()
    best.validate(InterruptGuard())
    assert (state.best_metric, state.latest_metric, state.best_step, state.stale) == (0.5, 0.5, 1, 0)
    assert not torch.equal(best.weights["table.weight"], initial["table.weight"])
    best.restore(before)
    assert (state.best_metric, state.latest_metric, state.best_step) == (0.2, 0.1, 0)
    best.load()
    assert all(torch.equal(tensor, initial[name]) for name, tensor in model.state_dict().items())


def test_a_run_that_was_resumed_before_its_first_validation_records_how_many_queries_it_has():
    """The next part compares with that number."""
    state = LoopState(num_queries=8)
    pace = Pace(Budget(), Estimates(num_queries=64))
    BestWeights(Stepper(LinearTask()), lambda: {"fit": 0.1}, "fit", state, pace, None).revalidate()
    assert (state.num_queries, state.best_metric) == (64, None)
