"""The training loop: steps, validation, early stopping, tree updates, checkpoints, and exact resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from beamwood.errors import InputError, nearest
from beamwood.training.batches import BatchOrder
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import resuming
from beamwood.training.checkpoint_times import CheckpointTimes
from beamwood.training.device import CPU, device_of, on_device
from beamwood.training.generators import preserved_generators, seeded_generators
from beamwood.training.interrupt import SAVING, Interrupted, InterruptGuard
from beamwood.training.loop_config import LoopConfig
from beamwood.training.loop_state import LoggedSums, LoopResult, LoopState, StoppedBecause
from beamwood.training.pace import Estimates, Pace, Validator
from beamwood.training.precision import flushed_subnormals
from beamwood.training.progress import TrainingProgress
from beamwood.training.run_folder import RunLog, RunRecord
from beamwood.training.run_state import earlier_state, load_run_state, run_state
from beamwood.training.trainable import Progress, Stepper, Trainable
from beamwood.training.update_schedule import UpdateSchedule

__all__ = ["run_loop"]

Batch = TypeVar("Batch")
_PREFIX = "valid/"
# A task without an estimate is assumed to need this multiple of the time used so far.
_UNKNOWN_SHARE = 0.5


def run_loop(
    task: Trainable[Batch],
    config: LoopConfig,
    *,
    validator: Validator | None = None,
    record: RunRecord | None = None,
    budget: Budget | None = None,
    progress: bool = True,
    seed: int = 0,
) -> LoopResult:
    """Prepare and train `task`, leaving the weights that `validator` found best (the last ones without it).

    Validation runs in evaluation mode without gradients, with random draws separate from training's. `budget` covers
    everything, including the earlier parts of a resumed run. The run ends early enough for one more validation and the
    work after it, by the validator's estimates at first, then by the longest validation so far. A limit that is too
    short raises an error, unless the run is resumed: before long work where the task knows its `min_seconds`. Skipped
    work is recorded in the budget.

    `seed` seeds the generator of all draws, the order of batches and torch's default generators (for dropout), which
    are restored afterwards. With a `record` the run can be resumed. A resumed run equals an uninterrupted one bit for
    bit, unless a time limit controls the decay, or a GPU sums in another order. Raises `InputError` on a wrong
    configuration, too short a limit, and a missing device. Raises `NonFiniteError` before an update that is not
    finite, `Interrupted` after SIGINT or SIGTERM once a checkpoint is saved.
    """
    device = device_of(config.device)
    budget = Budget() if budget is None else budget
    log, before = None, LoopState()
    with ExitStack() as held:
        if record is not None and record.resume:
            log = held.enter_context(record.open())
            before = earlier_state(log, budget)
        budget.refuses = log is None or log.state is None
        stepper = _prepared(task, config.learning_rate, budget, seed)
        estimates = Estimates()
        if validator is not None and budget.limited:
            estimates = validator.estimates(before.num_queries)
        pace = Pace(budget, estimates)
        pace.check_limit()
        if record is not None and log is None:
            log = held.enter_context(record.open())
        held.enter_context(seeded_generators(seed, device))
        held.enter_context(flushed_subnormals())
        held.enter_context(on_device(task.model, device))
        stepper.device = device
        evaluate = None if validator is None else validator.evaluate
        loop = _Loop(stepper, config, evaluate, log, pace, seed, prepared=budget.seconds - before.seconds)
        with InterruptGuard() as guard, TrainingProgress(enabled=progress, max_steps=loop.max_steps) as shown:
            return loop.run(guard, shown)


def _prepared(task: Trainable[Batch], learning_rate: float, budget: Budget, seed: int) -> Stepper[Batch]:
    """The prepared task. Errors: `TimeLimitError`, as soon as it is certain that the task does not fit the budget."""
    # Some layers are initialised from torch's default generator, which is therefore seeded.
    if budget.limited and budget.refuses:
        with seeded_generators(seed):
            budget.reserved = task.min_seconds(budget.clock)
        budget.require(likely=0.0 if budget.reserved else _UNKNOWN_SHARE * budget.seconds)
    with seeded_generators(seed):
        stepper = Stepper(task, seed=seed, learning_rate=learning_rate, budget=budget)
    budget.reserved = 0.0
    budget.require()
    return stepper


class _Loop:
    """A run in progress; a checkpoint stores its `state`, the weights, and the states of all generators."""

    def __init__(
        self,
        stepper: Stepper[Any],
        config: LoopConfig,
        evaluate: Callable[[], Mapping[str, float]] | None,
        log: RunLog | None,
        pace: Pace,
        seed: int,
        *,
        prepared: float,
    ) -> None:
        self.stepper, self.task, self.config, self.evaluate = stepper, stepper.task, config, evaluate
        self.log, self.pace, self.budget, self.seed = log, pace, pace.budget, seed
        self.monitor = (config.monitor or "").removeprefix(_PREFIX)
        self.order = BatchOrder(self.task.num_examples, config.batch_size, np.random.default_rng(seed))
        self.max_steps, self.bound = config.bound(self.order.batches_per_epoch)
        self.rates = config.rates()
        self._check()
        first = -1 if config.evaluate_start else 0
        self.state = LoopState(prepared=prepared, num_queries=pace.num_queries, evaluated_step=first)
        self.best_weights: dict[str, Tensor] | None = None
        self.saved: tuple[int, int] | None = None
        self.between_steps = True
        if log is not None and log.state is not None:
            with resuming(log.folder.checkpoint_path):
                self._load(log.state)
            self._reevaluate_best()
        update = self.task.update
        self.updates = None if update is None else UpdateSchedule(update, self.state, pace)
        self.times = CheckpointTimes(self.budget.clock, pace.save)

    def _check(self) -> None:
        config, evaluate = self.config, self.evaluate
        if evaluate is not None and config.monitor is None:
            raise InputError("monitor is not set; name the metric that chooses the weights, e.g. monitor='valid/f@20'")
        if self.task.update is not None and (evaluate is None or self.max_steps is None):
            raise InputError(
                "an update needs evaluate and max_steps: it is measured, and spread over the length of the run"
            )
        if self.max_steps is None and not self.budget.limited and (config.patience is None or evaluate is None):
            raise InputError("nothing would end this run; set max_steps, max_epochs, patience or a time limit")
        self.rates.check(self.max_steps)

    def run(self, guard: InterruptGuard, shown: TrainingProgress) -> LoopResult:
        state = self.state
        if state.step:
            shown.say(f"resuming at step {state.step}")
        try:
            because = self._train(guard, shown)
        except KeyboardInterrupt:
            self._interrupted(whole=self.between_steps)
        left_out = None if self.updates is None else self.updates.left_out()
        if left_out is not None:
            self.budget.leave_out(left_out)
            shown.say(left_out)
        self._save()
        if self.best_weights is not None:
            self.task.model.load_state_dict(self.best_weights)
        self.task.model.eval()
        best_step = state.best_step if self.best_weights is not None else state.step
        updates = state.updates - state.undone
        return LoopResult(state.best_metric, best_step, state.step, because, self.budget.seconds, updates)

    def _train(self, guard: InterruptGuard, shown: TrainingProgress) -> StoppedBecause:
        while True:
            self.between_steps = True
            because = self._reason_to_stop()
            if self._validation_is_due(because):
                # Before the first one its duration is unknown and may be long.
                self._save_if_due(ahead=self.pace.validation or math.inf)
                self._validate(guard, shown)
                continue
            if because is not None:
                return because
            self._save_if_due(ahead=self.pace.step)
            if guard.requested:
                raise KeyboardInterrupt
            now = self._schedule_step(self.state.step)
            if self.updates is not None and self.updates.is_due(now, self.max_steps or 1):
                self._update(self.updates, guard, shown)
                continue
            self.between_steps = False
            self._step(shown)

    def _reason_to_stop(self) -> StoppedBecause | None:
        state = self.state
        if self.max_steps is not None and state.step >= self.max_steps:
            return self.bound
        if self.config.patience is not None and state.stale >= self.config.patience:
            return "patience"
        # At least one step is taken, unless the initial model is validated and may be returned.
        if (state.step > 0 or self.config.evaluate_start) and not self.pace.has_room_for_step():
            return "time_limit"
        return None

    def _validation_is_due(self, because: StoppedBecause | None) -> bool:
        """Whether to validate now: no state twice, and before the end only if a later validation fits as well."""
        if self.state.evaluated_step == self.state.step:
            return False
        if because is not None:
            return True
        return self.state.step % self.config.evaluate_every == 0 and self.pace.has_room_for_validation()

    def _update(self, updates: UpdateSchedule, guard: InterruptGuard, shown: TrainingProgress) -> None:
        """Update the tree between two validations; an update that lowers the metric may be rolled back."""
        state, update, optimisers = self.state, updates.update, self.stepper.optimisers
        if state.evaluated_step != state.step:
            self._validate(guard, shown)
        self._save()
        before, started = state.latest_metric, self.budget.clock()
        self.task.model.eval()
        with guard.at_once(), preserved_generators(self.stepper.device):
            proposal = update.propose(state.updates, updates.budget)
        if proposal is None:
            updates.gave_up()
            return
        # Until the update is validated, the state is not one that a checkpoint can store.
        self.between_steps = False
        facts = update.apply(proposal, optimisers.each)
        took = self.budget.clock() - started
        best = state.best_metric, state.best_step, self.best_weights
        self._validate(guard, shown)
        after, state.stale = state.latest_metric, 0
        kept = update.keeps_worse or after >= before
        if kept and update.restarts:
            optimisers.restart()
            state.updated_step = state.step
        if not kept:
            update.undo(optimisers.each)
            state.best_metric, state.best_step, self.best_weights = best
            state.latest_metric = before
        updates.done(self._schedule_step(state.step), took, kept=kept)
        measured = {"update": float(state.updates), "update_seconds": round(took, 3), "update_kept": float(kept)}
        self._write(measured | {"metric_before": before, "metric_after": after, **facts})
        shown.say(f"step {state.step}: tree update, {self.monitor} {before:.4f} before, {after:.4f} after")
        self.between_steps = True

    def _schedule_step(self, step: int) -> int:
        """The step by which the decay is computed; a time limit moves it ahead, so that the decay completes."""
        if not self.budget.limited or self.max_steps is None:
            return step
        return max(step, int(self.pace.fraction(self.state.prepared) * self.max_steps))

    def _step(self, shown: TrainingProgress) -> None:
        state, started, number = self.state, self.budget.clock(), self.state.step + 1
        rate = self.stepper.optimisers.set_rates(lambda peak: self._rate(number, peak))
        rows = self.order.next()
        result = self.stepper.step(
            rows,
            number=number,
            clip_norm=self.config.clip_norm,
            progress=Progress(state.step, self._schedule_step(state.step) / (self.max_steps or math.inf)),
        )
        state.step = number
        self.pace.step = self.budget.clock() - started
        state.since_log.add(result, len(rows), self.pace.step)
        self._log_step(rate, shown)

    def _rate(self, step: int, peak: float) -> float:
        rate = self.rates.learning_rate(self._schedule_step(step), peak, self.max_steps)
        since = step - self.state.updated_step
        if self.state.updated_step and since < self.config.warmup_steps:
            rate *= since / self.config.warmup_steps
        return rate

    def _log_step(self, rate: float, shown: TrainingProgress) -> None:
        state, since = self.state, self.state.since_log
        shown.stepped(state.step, since.mean_loss, since.speed)
        if state.step % self.config.log_every == 0:
            speed = {"examples_per_second": round(since.speed, 1)}
            self._write({"loss": since.mean_loss, "lr": rate, **speed, **since.means()})
            state.since_log = LoggedSums()

    def _write(self, values: dict[str, float]) -> None:
        if self.log is not None:
            step, seconds = self.state.step, round(self.budget.seconds, 3)
            epoch = round(step / self.order.batches_per_epoch, 4)
            self.log.append({"step": step, "epoch": epoch, "seconds": seconds, **values})

    def _validate(self, guard: InterruptGuard, shown: TrainingProgress) -> None:
        state = self.state
        if self.evaluate is None:
            state.evaluated_step = state.step
            return
        started = self.budget.clock()
        with guard.at_once():
            metrics = self._measured()
        value = metrics[self.monitor]
        state.latest_metric = value
        best = state.best_metric is None or value > state.best_metric
        if best:
            weights = {name: tensor.detach().clone() for name, tensor in self.task.model.state_dict().items()}
            state.best_metric, state.best_step, self.best_weights = value, state.step, weights
        state.stale = 0 if best else state.stale + 1
        state.evaluated_step = state.step
        self.pace.validated(self.budget.clock() - started, first=state.evaluation_seconds == 0)
        state.evaluation_seconds = self.pace.validation
        self._write({_PREFIX + name: value for name, value in metrics.items()})
        shown.evaluated(state.step, metrics, self.monitor, best)

    def _measured(self) -> dict[str, float]:
        """The validation metrics of the current weights."""
        assert self.evaluate is not None
        self.task.model.eval()
        on_processor = on_device(self.task.model, CPU)
        with preserved_generators(self.stepper.device), torch.no_grad(), on_processor:
            metrics = {name: float(value) for name, value in self.evaluate().items()}
        if self.monitor not in metrics:
            raise InputError(f"monitor={self.monitor!r} is not measured{nearest(self.monitor, metrics)}")
        if not math.isfinite(metrics[self.monitor]):
            value = metrics[self.monitor]
            raise InputError(f"step {self.state.step}: the metric {self.monitor} is {value}; check the validation data")
        return metrics

    def _save_if_due(self, ahead: float) -> None:
        every, step = self.config.checkpoint_steps, self.state.step
        if step and ((every is not None and step % every == 0) or self.times.is_due(ahead)):
            self._save()

    def _save(self) -> None:
        now, began = (self.state.step, self.state.evaluated_step), self.budget.clock()
        if self.log is None or self.saved == now:
            return
        self.log.save(self._checkpoint())
        self.saved = now
        self.pace.saved(self.times.saved(began))

    def _checkpoint(self) -> dict[str, Any]:
        self.state.seconds = self.budget.seconds
        return run_state(self.stepper, self.order, self.state, self.best_weights, seed=self.seed)

    def _load(self, saved: dict[str, Any]) -> None:
        prepared = self.state.prepared
        self.state, self.best_weights = load_run_state(saved, self.stepper, self.order, seed=self.seed)
        self.state.prepared += prepared
        self.saved = (self.state.step, self.state.evaluated_step)
        if self.state.evaluation_seconds:
            self.pace.validated(self.state.evaluation_seconds, first=True)

    def _reevaluate_best(self) -> None:
        """Measure the best weights again where validation uses other queries, so that later metrics are comparable."""
        state, model, best = self.state, self.task.model, self.best_weights
        if state.num_queries == self.pace.num_queries or best is None or not self.pace.has_room_for_validation():
            return
        now = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(best)
        state.best_metric = self._measured()[self.monitor]
        model.load_state_dict(now)
        state.num_queries = self.pace.num_queries
        if state.best_step == state.evaluated_step:
            state.latest_metric = state.best_metric

    def _interrupted(self, *, whole: bool) -> NoReturn:
        if self.log is None:
            raise Interrupted(
                f"interrupted at step {self.state.step}; nothing was saved without a run folder"
            ) from None
        if whole:
            SAVING.set()
            self._save()
        if self.saved is None:
            raise Interrupted(
                f"interrupted within step {self.state.step + 1}, before the first checkpoint; run the same command "
                "with --resume to start again"
            ) from None
        raise Interrupted(
            f"interrupted; the checkpoint of step {self.saved[0]} is in {self.log.folder.checkpoint_path}; run the "
            f"same command with --resume to go on"
        ) from None
