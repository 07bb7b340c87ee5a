"""The training loop: steps, validation, early stopping, tree updates, checkpoints, and exact resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from beamwood.errors import InputError
from beamwood.training.batches import BatchOrder
from beamwood.training.best_weights import BestWeights
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import resuming
from beamwood.training.device import device_of, on_device
from beamwood.training.generators import preserved_generators, seeded_generators
from beamwood.training.interrupt import InterruptGuard
from beamwood.training.loop_config import LoopConfig
from beamwood.training.loop_state import LoggedSums, LoopResult, LoopState, StoppedBecause
from beamwood.training.pace import Estimates, Pace, Validator
from beamwood.training.precision import flushed_subnormals
from beamwood.training.progress import TrainingProgress
from beamwood.training.run_checkpoints import RunCheckpoints
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
            before = earlier_state(log, task, budget)
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
        prepared = budget.seconds - before.seconds
        return _Loop(stepper, config, evaluate, log, pace, prepared=prepared, seed=seed, progress=progress).run()


def _prepared(task: Trainable[Batch], learning_rate: float, budget: Budget, seed: int) -> Stepper[Batch]:
    """The prepared task. Errors: `TimeLimitError`, as soon as it is certain that the task does not fit the budget."""
    # Some layers are initialised from torch's default generator, which is therefore seeded.
    if budget.limited and budget.refuses:
        with seeded_generators(seed):
            budget.reserved, start = task.min_seconds(budget.clock), task.start_seconds(seed, budget.clock)
        with budget.reserving(start):
            budget.require(likely=0.0 if budget.reserved else _UNKNOWN_SHARE * budget.seconds)
    with seeded_generators(seed):
        stepper = Stepper(task, seed=seed, learning_rate=learning_rate, budget=budget)
    budget.reserved = 0.0
    budget.require()
    return stepper


class _Loop:
    """A run in progress: its steps, and between them validations, tree updates and checkpoints."""

    def __init__(
        self,
        stepper: Stepper[Any],
        config: LoopConfig,
        evaluate: Callable[[], Mapping[str, float]] | None,
        log: RunLog | None,
        pace: Pace,
        *,
        prepared: float,
        seed: int,
        progress: bool,
    ) -> None:
        self.stepper, self.task, self.config, self.seed = stepper, stepper.task, config, seed
        self.log, self.pace, self.budget = log, pace, pace.budget
        self.order = BatchOrder(self.task.num_examples, config.batch_size, np.random.default_rng(seed))
        self.max_steps, self.bound = config.bound(self.order.batches_per_epoch)
        self.rates = config.rates()
        self._check(validates=evaluate is not None)
        self.state, weights = self._start(prepared)
        monitor = (config.monitor or "").removeprefix(_PREFIX)
        self.best = BestWeights(stepper, evaluate, monitor, self.state, pace, weights)
        self.best.revalidate()
        update = self.task.update
        self.updates = None if update is None else UpdateSchedule(update, self.state, pace)
        self.checkpoints = RunCheckpoints(log, self.state, self._run_state, pace)
        self.guard, self.shown = InterruptGuard(), TrainingProgress(enabled=progress, max_steps=self.max_steps)

    def _check(self, *, validates: bool) -> None:
        config = self.config
        if validates and config.monitor is None:
            raise InputError("monitor is not set; name the metric that chooses the weights, e.g. monitor='valid/f@20'")
        if self.task.update is not None and (not validates or self.max_steps is None):
            raise InputError(
                "an update needs evaluate and max_steps: it is measured, and spread over the length of the run"
            )
        if self.max_steps is None and not self.budget.limited and (config.patience is None or not validates):
            raise InputError("nothing would end this run; set max_steps, max_epochs, patience or a time limit")
        self.rates.check(self.max_steps)

    def _start(self, prepared: float) -> tuple[LoopState, dict[str, Tensor] | None]:
        """The counters and the best weights at the start; a resumed run loads these and everything else."""
        if self.log is None or self.log.state is None:
            first = -1 if self.config.evaluate_start else 0
            return LoopState(prepared=prepared, num_queries=self.pace.num_queries, evaluated_step=first), None
        with resuming(self.log.folder.checkpoint_path):
            state, best_weights = load_run_state(self.log.state, self.stepper, self.order, seed=self.seed)
        state.prepared += prepared
        if state.evaluation_seconds:
            self.pace.validated(state.evaluation_seconds, first=True)
        return state, best_weights

    def _run_state(self) -> dict[str, Any]:
        """The state that a checkpoint stores."""
        return run_state(self.stepper, self.order, self.state, self.best.weights, seed=self.seed)

    def run(self) -> LoopResult:
        """Train to the end, and leave the best weights in the model."""
        state = self.state
        with self.guard, self.shown:
            if state.step:
                self.shown.say(f"resuming at step {state.step}")
            try:
                because = self._train()
            except KeyboardInterrupt:
                raise self.checkpoints.interrupted() from None
            left_out = None if self.updates is None else self.updates.left_out()
            if left_out is not None:
                self.budget.leave_out(left_out)
                self.shown.say(left_out)
            self.checkpoints.save()
            self.best.load()
            self.task.model.eval()
            best_step = state.step if self.best.weights is None else state.best_step
            updates = state.updates - state.undone
            return LoopResult(state.best_metric, best_step, state.step, because, self.budget.seconds, updates)

    def _train(self) -> StoppedBecause:
        """Take steps, and between them validate, save and update, until there is a reason to stop."""
        while True:
            because = self._reason_to_stop()
            if self._validation_is_due(because):
                # Before the first one its duration is unknown and may be long.
                self.checkpoints.save_if_due(ahead=self.pace.validation or math.inf)
                self._validate()
                continue
            if because is not None:
                return because
            self.checkpoints.save_if_due(ahead=self.pace.step)
            if self.guard.requested:
                raise KeyboardInterrupt
            now = self._schedule_step(self.state.step)
            if self.updates is not None and self.updates.is_due(now, self.max_steps or 1):
                self._update(self.updates)
                continue
            with self.checkpoints.suspended():
                self._step()

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

    def _validate(self) -> None:
        """Validate the model, and report the metrics."""
        metrics = self.best.validate(self.guard)
        if metrics:
            self._write({_PREFIX + name: value for name, value in metrics.items()})
            self.shown.evaluated(self.state.step, metrics, self.best.monitor, best=self.state.stale == 0)

    def _update(self, updates: UpdateSchedule) -> None:
        """Update the tree between two validations; an update that lowers the metric may be rolled back."""
        state, update, optimisers = self.state, updates.update, self.stepper.optimisers
        if state.evaluated_step != state.step:
            self._validate()
        self.checkpoints.save()
        before, started = self.best.snapshot(), self.budget.clock()
        self.task.model.eval()
        with self.guard.at_once(), preserved_generators(self.stepper.device):
            proposal = update.propose(state.updates, updates.budget)
        if proposal is None:
            updates.gave_up()
            return
        # Until the update is validated, the state is not one that a checkpoint can store.
        with self.checkpoints.suspended():
            facts = update.apply(proposal, optimisers.each)
            took = self.budget.clock() - started
            self._validate()
            after, state.stale = state.latest_metric, 0
            kept = update.keeps_worse or after >= before.latest_metric
            if kept and update.restarts:
                optimisers.restart()
                state.updated_step = state.step
            if not kept:
                update.undo(optimisers.each)
                self.best.restore(before)
            updates.done(self._schedule_step(state.step), took, kept=kept)
            measured = {"update": float(state.updates), "update_seconds": round(took, 3), "update_kept": float(kept)}
            self._write(measured | {"metric_before": before.latest_metric, "metric_after": after, **facts})
            change = f"{self.best.monitor} {before.latest_metric:.4f} before, {after:.4f} after"
            self.shown.say(f"step {state.step}: tree update, {change}")

    def _step(self) -> None:
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
        self._log_step(rate)

    def _schedule_step(self, step: int) -> int:
        """The step by which the decay is computed; a time limit moves it ahead, so that the decay completes."""
        if not self.budget.limited or self.max_steps is None:
            return step
        return max(step, int(self.pace.fraction(self.state.prepared) * self.max_steps))

    def _rate(self, step: int, peak: float) -> float:
        rate = self.rates.learning_rate(self._schedule_step(step), peak, self.max_steps)
        since = step - self.state.updated_step
        if self.state.updated_step and since < self.config.warmup_steps:
            rate *= since / self.config.warmup_steps
        return rate

    def _log_step(self, rate: float) -> None:
        state, since = self.state, self.state.since_log
        self.shown.stepped(state.step, since.mean_loss, since.speed)
        if state.step % self.config.log_every == 0:
            speed = {"examples_per_second": round(since.speed, 1)}
            self._write({"loss": since.mean_loss, "lr": rate, **speed, **since.means()})
            state.since_log = LoggedSums()

    def _write(self, values: dict[str, float]) -> None:
        if self.log is not None:
            step, seconds = self.state.step, round(self.budget.seconds, 3)
            epoch = round(step / self.order.batches_per_epoch, 4)
            self.log.append({"step": step, "epoch": epoch, "seconds": seconds, **values})
