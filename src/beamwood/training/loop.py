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
from beamwood.training.device import PROCESSOR, computes_on, device_of
from beamwood.training.generators import kept_generators, own_generators
from beamwood.training.interrupt import ANSWERING, Interrupted, InterruptGuard
from beamwood.training.loop_config import LoopConfig
from beamwood.training.pace import Pace, Prices, Validator
from beamwood.training.precision import flushed_subnormals
from beamwood.training.progress import TrainingProgress
from beamwood.training.run_folder import RunLog, RunRecord
from beamwood.training.run_state import counted, run_state, take_up
from beamwood.training.standing import LoopResult, SinceLine, Standing, StoppedBecause
from beamwood.training.trainable import Progress, Stepper, Trainable
from beamwood.training.update_schedule import UpdateSchedule

__all__ = ["run_loop"]

Batch = TypeVar("Batch")
_PREFIX = "valid/"
# Without an estimate, training is assumed to need this multiple of the time used for preparation.
_UNKNOWN = 0.5


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
    everything, parts before a resume included: the run ends early enough for one more validation as long as the longest
    so far, and for later steps. Initially these are the validator's estimates. A shorter limit is refused, before long
    work where the task knows its `least`, unless the run is resumed. Skipped work is recorded in the budget.

    `seed` starts the generator of all draws, the order of batches and torch's default generators (for dropout), which
    are restored afterwards. With a `record` the run can be resumed; a resumed run equals an uninterrupted one bit for
    bit, unless a time limit controls the decay, or a GPU sums in another order. Raises `InputError` on a wrong
    configuration, too short a limit, and a missing device. Raises `NonFiniteError` before a bad update, `Interrupted`
    after SIGINT or SIGTERM once a checkpoint is saved.
    """
    device = device_of(config.device, takes_gpu=task.takes_gpu)
    budget = Budget() if budget is None else budget
    log, before = None, Standing()
    with ExitStack() as held:
        if record is not None and record.resume:
            log = held.enter_context(record.opened())
            before = counted(log, budget)
        budget.refuses = log is None or log.state is None
        stepper = _prepared(task, config.learning_rate, budget, seed)
        pace = Pace(budget, validator.prices(before.judges) if validator is not None and budget.limited else Prices())
        pace.check_floor()
        if record is not None and log is None:
            log = held.enter_context(record.opened())
        held.enter_context(own_generators(seed, device))
        held.enter_context(flushed_subnormals())
        held.enter_context(computes_on(task.model, device))
        stepper.device = device
        evaluate = None if validator is None else validator.evaluate
        loop = _Loop(stepper, config, evaluate, log, pace, seed, prepared=budget.seconds - before.seconds)
        with InterruptGuard() as guard, TrainingProgress(enabled=progress, max_steps=loop.max_steps) as shown:
            return loop.run(guard, shown)


def _prepared(task: Trainable[Batch], learning_rate: float, budget: Budget, seed: int) -> Stepper[Batch]:
    """The prepared task. Errors: it is certain not to fit the budget, raised as soon as that is known."""
    # Layers that torch initialises use its default generator.
    if budget.limited and budget.refuses:
        with own_generators(seed):
            budget.ahead = task.least(budget.clock)
        budget.require(likely=0.0 if budget.ahead else _UNKNOWN * budget.seconds)
    with own_generators(seed):
        stepper = Stepper(task, seed=seed, learning_rate=learning_rate, budget=budget)
    budget.ahead = 0.0
    budget.require()
    return stepper


class _Loop:
    """A run in progress: `at` has its counters, which a checkpoint stores besides weights and generators."""

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
        self.at = Standing(prepared=prepared, judges=pace.judges, evaluated_step=first)
        self.best_weights: dict[str, Tensor] | None = None
        self.saved: tuple[int, int] | None = None
        self.between_steps = True
        if log is not None and log.state is not None:
            with resuming(log.folder.checkpoint_path):
                self._load(log.state)
            self._judge_again()
        update = self.task.update
        self.updates = None if update is None else UpdateSchedule(update, self.at, pace)
        self.times = CheckpointTimes(self.budget.clock, pace.save)

    def _check(self) -> None:
        config, evaluate = self.config, self.evaluate
        if evaluate is not None and config.monitor is None:
            raise InputError("monitor is not set; name the validation metric that decides, e.g. monitor='valid/f@20'")
        if config.accumulate > 1 and not self.task.takes_parts:
            raise InputError(f"accumulate={config.accumulate} is not for this method, whose step takes a batch whole")
        if self.task.update is not None and (evaluate is None or self.max_steps is None):
            raise InputError("an update needs evaluate and max_steps: it is measured, and timed by the run's length")
        if self.max_steps is None and not self.budget.limited and (config.patience is None or evaluate is None):
            raise InputError("nothing would end this run; set max_steps, max_epochs, patience or a time limit")
        self.rates.check(self.max_steps)

    # ---- the loop

    def run(self, guard: InterruptGuard, shown: TrainingProgress) -> LoopResult:
        at = self.at
        if at.step:
            shown.say(f"resuming at step {at.step}")
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
        best_step = at.best_step if self.best_weights is not None else at.step
        updates = at.updates - at.undone
        return LoopResult(at.best_metric, best_step, at.step, because, self.budget.seconds, updates)

    def _train(self, guard: InterruptGuard, shown: TrainingProgress) -> StoppedBecause:
        while True:
            self.between_steps = True
            because = self._reason_to_stop()
            if self._validation_is_due(because):
                # An unmeasured validation may take long.
                self._save_if_due(ahead=self.pace.validation or math.inf)
                self._validate(guard, shown)
                continue
            if because is not None:
                return because
            self._save_if_due(ahead=self.pace.step)
            if guard.requested:
                raise KeyboardInterrupt
            if self.updates is not None and self.updates.is_due(self._schedule_step(self.at.step), self.max_steps or 1):
                self._update(self.updates, guard, shown)
                continue
            self.between_steps = False
            self._step(shown)

    def _reason_to_stop(self) -> StoppedBecause | None:
        at = self.at
        if self.max_steps is not None and at.step >= self.max_steps:
            return self.bound
        if self.config.patience is not None and at.stale >= self.config.patience:
            return "patience"
        # One step is always taken, unless the start is a model already.
        if (at.step > 0 or self.config.evaluate_start) and not self.pace.has_room_for_step():
            return "time_limit"
        return None

    def _validation_is_due(self, because: StoppedBecause | None) -> bool:
        """No state is validated twice, and intermediate ones only if a later validation fits as well."""
        if self.at.evaluated_step == self.at.step:
            return False
        if because is not None:
            return True
        return self.at.step % self.config.evaluate_every == 0 and self.pace.has_room_for_validation()

    # ---- updates of what is learned anew

    def _update(self, updates: UpdateSchedule, guard: InterruptGuard, shown: TrainingProgress) -> None:
        """Learn a new tree between two validations, and keep it unless it is worse and may be rolled back."""
        at, update, optimisers = self.at, updates.update, self.stepper.optimisers
        if at.evaluated_step != at.step:
            self._validate(guard, shown)
        self._save()
        before, started = at.latest_metric, self.budget.clock()
        self.task.model.eval()
        with guard.at_once(), kept_generators(self.stepper.device):
            proposal = update.propose(at.updates, updates.budget)
        if proposal is None:
            updates.gave_up()
            return
        # During the update the state is between two checkpointable ones.
        self.between_steps = False
        facts = update.apply(proposal, optimisers.each)
        took = self.budget.clock() - started
        best = at.best_metric, at.best_step, self.best_weights
        self._validate(guard, shown)
        after, at.stale = at.latest_metric, 0
        kept = update.keeps_worse or after >= before
        if kept and update.restarts:
            optimisers.restart()
            at.updated_step = at.step
        if not kept:
            update.undo(optimisers.each)
            at.best_metric, at.best_step, self.best_weights = best
            at.latest_metric = before
        updates.done(self._schedule_step(at.step), took, kept=kept)
        measured = {"update": float(at.updates), "update_seconds": round(took, 3), "update_kept": float(kept)}
        self._write(measured | {"metric_before": before, "metric_after": after, **facts})
        shown.say(f"step {at.step}: tree update, {self.monitor} {before:.4f} before, {after:.4f} after")
        self.between_steps = True

    # ---- steps

    def _schedule_step(self, step: int) -> int:
        """The position of the schedule: if the time limit ends before `max_steps`, the decay is completed in time."""
        if not self.budget.limited or self.max_steps is None:
            return step
        return max(step, int(self.pace.fraction(self.at.prepared) * self.max_steps))

    def _step(self, shown: TrainingProgress) -> None:
        at, started, number = self.at, self.budget.clock(), self.at.step + 1
        rate = self.stepper.optimisers.set_rates(lambda peak: self._rate(number, peak))
        rows = self.order.next()
        result = self.stepper.step(
            rows,
            number=number,
            parts=self.config.accumulate,
            clip_norm=self.config.clip_norm,
            progress=Progress(at.step, self._schedule_step(at.step) / (self.max_steps or math.inf)),
        )
        at.step = number
        self.pace.step = self.budget.clock() - started
        at.since_line.add(result, len(rows), self.pace.step)
        self._log_step(rate, shown)

    def _rate(self, step: int, peak: float) -> float:
        rate = self.rates.learning_rate(self._schedule_step(step), peak, self.max_steps)
        since = step - self.at.updated_step
        if self.at.updated_step and since < self.config.warmup_steps:
            rate *= since / self.config.warmup_steps
        return rate

    def _log_step(self, rate: float, shown: TrainingProgress) -> None:
        at, since = self.at, self.at.since_line
        shown.stepped(at.step, since.mean_loss, since.speed)
        if at.step % self.config.log_every == 0:
            speed = {"examples_per_second": round(since.speed, 1)}
            self._write({"loss": since.mean_loss, "lr": rate, **speed, **since.means()})
            at.since_line = SinceLine()

    def _write(self, values: dict[str, float]) -> None:
        if self.log is not None:
            epoch = round(self.at.step / self.order.batches_per_epoch, 4)
            self.log.append({"step": self.at.step, "epoch": epoch, "seconds": round(self.budget.seconds, 3), **values})

    def _validate(self, guard: InterruptGuard, shown: TrainingProgress) -> None:
        at = self.at
        if self.evaluate is None:
            at.evaluated_step = at.step
            return
        started = self.budget.clock()
        with guard.at_once():
            metrics = self._measured()
        value = metrics[self.monitor]
        at.latest_metric = value
        best = at.best_metric is None or value > at.best_metric
        if best:
            weights = {name: tensor.detach().clone() for name, tensor in self.task.model.state_dict().items()}
            at.best_metric, at.best_step, self.best_weights = value, at.step, weights
        at.stale = 0 if best else at.stale + 1
        at.evaluated_step = at.step
        self.pace.validated(self.budget.clock() - started, first=at.evaluation_seconds == 0)
        at.evaluation_seconds = self.pace.validation
        self._write({_PREFIX + name: value for name, value in metrics.items()})
        shown.evaluated(at.step, metrics, self.monitor, best)

    def _measured(self) -> dict[str, float]:
        """The validation metrics of the current weights."""
        assert self.evaluate is not None
        self.task.model.eval()
        on_processor = computes_on(self.task.model, PROCESSOR)
        with kept_generators(self.stepper.device), torch.no_grad(), on_processor:
            metrics = {name: float(value) for name, value in self.evaluate().items()}
        if self.monitor not in metrics:
            raise InputError(f"monitor={self.monitor!r} is not measured{nearest(self.monitor, metrics)}")
        if not math.isfinite(metrics[self.monitor]):
            value = metrics[self.monitor]
            raise InputError(f"step {self.at.step}: the metric {self.monitor} is {value}; check the validation data")
        return metrics

    # ---- checkpoints

    def _save_if_due(self, ahead: float) -> None:
        every, step = self.config.checkpoint_steps, self.at.step
        if step and ((every is not None and step % every == 0) or self.times.is_due(ahead)):
            self._save()

    def _save(self) -> None:
        now, began = (self.at.step, self.at.evaluated_step), self.budget.clock()
        if self.log is None or self.saved == now:
            return
        self.log.save(self._state())
        self.saved = now
        self.pace.saved(self.times.saved(began))

    def _state(self) -> dict[str, Any]:
        self.at.seconds = self.budget.seconds
        return run_state(self.stepper, self.order, self.at, self.best_weights, seed=self.seed)

    def _load(self, state: dict[str, Any]) -> None:
        prepared = self.at.prepared
        self.at, self.best_weights = take_up(state, self.stepper, self.order, seed=self.seed)
        self.at.prepared += prepared
        self.saved = (self.at.step, self.at.evaluated_step)
        if self.at.evaluation_seconds:
            self.pace.validated(self.at.evaluation_seconds, first=True)

    def _judge_again(self) -> None:
        """Recompute the best metric on other users, with which later ones are compared."""
        at, model, best = self.at, self.task.model, self.best_weights
        if at.judges == self.pace.judges or best is None or not self.pace.has_room_for_validation():
            return
        now = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(best)
        at.best_metric = self._measured()[self.monitor]
        model.load_state_dict(now)
        at.judges = self.pace.judges
        if at.best_step == at.evaluated_step:
            at.latest_metric = at.best_metric

    def _interrupted(self, *, whole: bool) -> NoReturn:
        if self.log is None:
            raise Interrupted(f"interrupted at step {self.at.step}; without a run folder nothing was kept") from None
        if whole:
            ANSWERING.set()
            self._save()
        if self.saved is None:
            raise Interrupted(
                f"interrupted within step {self.at.step + 1}, before the first checkpoint; run the same command "
                "with --resume to start again"
            ) from None
        raise Interrupted(
            f"interrupted; the checkpoint of step {self.saved[0]} is in {self.log.folder.checkpoint_path}; run the "
            f"same command with --resume to go on"
        ) from None
