"""The training loop: steps, validation, early stopping, checkpoints, and an exact resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from beamwood.errors import InputError, nearest
from beamwood.training.batches import BatchOrder
from beamwood.training.checkpoint import check_tensors, load_optimizer, resuming
from beamwood.training.interrupt import Interrupted, InterruptGuard
from beamwood.training.loop_config import LoopConfig
from beamwood.training.precision import flushed_subnormals
from beamwood.training.progress import TrainingProgress
from beamwood.training.run_folder import RunFolder, RunLog
from beamwood.training.step import train_step
from beamwood.training.task import OwnStep, Renewal, Task

__all__ = ["LoopResult", "run_loop"]

Batch = TypeVar("Batch")
StoppedBecause = Literal["max_steps", "max_epochs", "patience", "time_limit"]
_PREFIX = "valid/"
# What a resumed run may have otherwise.
_BOUNDS = ("loop.max_steps", "loop.max_epochs", "loop.patience")


@dataclass(frozen=True, slots=True)
class LoopResult:
    """How a run ended; without validation `best_metric` is None and `best_step` the last step.

    `seconds` is the time of all its parts, those before a resume included.
    """

    best_metric: float | None
    best_step: int
    steps: int
    stopped_because: StoppedBecause
    seconds: float


def run_loop(
    task: Task[Batch],
    config: LoopConfig,
    *,
    evaluate: Callable[[], dict[str, float]] | None = None,
    renewal: Renewal | None = None,
    run: RunFolder | None = None,
    kept: Mapping[str, Any] | None = None,
    resume: bool = False,
    time_limit: float | None = None,
    progress: bool = True,
    seed: int = 0,
) -> LoopResult:
    """Train `task.model`, leaving the weights that were best on validation (the last ones without `evaluate`).

    `evaluate` runs in evaluation mode without gradients, its random draws apart from training's. `time_limit` is in
    seconds of training and validation together, those before a resume included; the run ends early enough for one
    more validation as long as the longest so far. `renewal` is asked before each step and measured before and after it
    changed the task. `seed` orders the batches and starts torch's own generators (those
    dropout uses), which are given back as they were. `kept` is noted in the run's folder, and a resumed run must have
    the same but for its bounds. A resumed run equals an uninterrupted one bit for bit,
    unless a time limit paces the decay. Raises
    `InputError` on a wrong configuration, `NonFiniteError` before a bad update, `Interrupted` after Ctrl-C or
    SIGTERM once a checkpoint is saved.
    """
    if resume and run is None:
        raise InputError("resume needs the folder of the run; give run=RunFolder(path)")
    opened = nullcontext() if run is None else run.opened(resume=resume, config=kept, may_differ=_BOUNDS)
    with opened as log, _own_generators(task.model, seed), flushed_subnormals():
        loop = _Loop(task, config, evaluate, renewal, log, time_limit, seed)
        with InterruptGuard() as guard, TrainingProgress(enabled=progress, max_steps=loop.max_steps) as shown:
            return loop.run(guard, shown)


def _devices(model: nn.Module) -> list[int]:
    devices = {parameter.device for parameter in model.parameters()}
    return sorted({device.index or 0 for device in devices if device.type == "cuda"})


@contextmanager
def _own_generators(model: nn.Module, seed: int) -> Iterator[None]:
    """Torch's default generators, started from `seed` for the length of a run and then given back as they were."""
    devices = _devices(model)
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield


class _Counted(BaseModel):
    """The numbers of a checkpoint: exactly those that `_Loop._state` writes."""

    model_config = ConfigDict(frozen=True, strict=True)

    step: int = Field(ge=0)
    seconds: float
    best_metric: float | None
    best_step: int = Field(ge=0)
    stale: int = Field(ge=0)
    latest_metric: float
    renewed_step: int = Field(ge=0)
    evaluated_step: int = Field(ge=-1)
    evaluation_seconds: float
    since_line: tuple[float, int, int, float] = Field(strict=False)


class _Loop:
    def __init__(
        self,
        task: Task[Any],
        config: LoopConfig,
        evaluate: Callable[[], dict[str, float]] | None,
        renewal: Renewal | None,
        log: RunLog | None,
        time_limit: float | None,
        seed: int,
    ) -> None:
        if evaluate is not None and config.monitor is None:
            raise InputError("monitor is not set; name the validation metric that decides, e.g. monitor='valid/f@20'")
        self.task, self.config, self.evaluate, self.log, self.time_limit = task, config, evaluate, log, time_limit
        self.monitor = (config.monitor or "").removeprefix(_PREFIX)
        self.renewal = renewal
        if isinstance(task, OwnStep) and config.accumulate > 1:
            raise InputError(f"accumulate={config.accumulate} is not for this method, whose step takes a batch whole")
        if renewal is not None and (evaluate is None or config.max_steps is None):
            raise InputError("a renewal needs evaluate and max_steps: it is measured, and timed by the run's length")
        if time_limit is not None and not time_limit > 0:
            raise InputError(f"time_limit={time_limit} is not above 0 seconds; leave it out for no limit")
        self.seed = seed
        self.devices = _devices(task.model)
        self.bound: StoppedBecause
        self.order = BatchOrder(task.num_examples, config.batch_size, np.random.default_rng(seed))
        self.max_steps, self.bound = config.max_steps, "max_steps"
        if config.max_epochs is not None:
            in_epochs = config.max_epochs * self.order.batches_per_epoch
            if self.max_steps is None or in_epochs < self.max_steps:
                self.max_steps, self.bound = in_epochs, "max_epochs"
        if self.max_steps is None and time_limit is None and (config.patience is None or evaluate is None):
            raise InputError("nothing would end this run; set max_steps, max_epochs, patience or a time limit")
        self.rates = config.rates()
        self.rates.check(self.max_steps)
        self.peaks = [
            [group.setdefault("initial_lr", group["lr"]) for group in o.param_groups] for o in task.optimizers
        ]

        self.step = 0
        self.seconds_before = 0.0
        self.best_metric: float | None = None
        self.best_step = 0
        self.best_weights: dict[str, Tensor] | None = None
        self.stale = 0
        self.latest_metric = math.nan
        self.renewed_step = 0
        self.evaluated_step = -1 if config.evaluate_start else 0
        self.evaluation_seconds = 0.0
        # Of the steps since the last line of metrics.
        self.loss_sum, self.loss_steps, self.examples, self.examples_since = 0.0, 0, 0, 0.0
        self.saved: tuple[int, int] | None = None
        self.between_steps = True
        if log is not None and log.state is not None:
            with resuming(log.folder.checkpoint_path):
                self._load(log.state)
        self.started = self.saved_at = time.monotonic()

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    # ---- the loop

    def run(self, guard: InterruptGuard, shown: TrainingProgress) -> LoopResult:
        if self.step:
            shown.say(f"resuming at step {self.step}")
        try:
            because = self._train(guard, shown)
        except KeyboardInterrupt:
            self._interrupted(whole=self.between_steps)
        self._save()
        if self.best_weights is not None:
            self.task.model.load_state_dict(self.best_weights)
        self.task.model.eval()
        step = self.best_step if self.best_weights is not None else self.step
        return LoopResult(self.best_metric, step, self.step, because, self.seconds)

    def _train(self, guard: InterruptGuard, shown: TrainingProgress) -> StoppedBecause:
        while True:
            self.between_steps = True
            because = self._reason_to_stop()
            due = self.step % self.config.evaluate_every == 0
            # A time limit leaves room for a last validation; nothing is validated twice.
            if self.evaluated_step != self.step and (due or because is not None):
                self._validate(guard, shown)
                continue
            if because is not None:
                return because
            self._save_if_due()
            if guard.requested:
                raise KeyboardInterrupt
            if self.renewal is not None and self.renewal.due(self._schedule_step(self.step) / (self.max_steps or 1)):
                self._renew(self.renewal, guard, shown)
                continue
            self.between_steps = False
            self._step(shown)

    def _renew(self, renewal: Renewal, guard: InterruptGuard, shown: TrainingProgress) -> None:
        if self.evaluated_step != self.step:
            self._validate(guard, shown)
        self._save()
        before, started = self.latest_metric, time.monotonic()
        self.task.model.eval()
        with guard.at_once(), torch.random.fork_rng(self.devices):
            proposal = renewal.propose()
        # A step is a state the checkpoint knows; so is this only once it is whole.
        self.between_steps = False
        facts = renewal.apply(proposal)
        took = time.monotonic() - started
        self.examples_since += took
        best = self.best_metric, self.best_step, self.best_weights
        self._validate(guard, shown)
        kept = renewal.keeps(before, self.latest_metric)
        if kept and renewal.restarts:
            for optimizer in self.task.optimizers:
                optimizer.state.clear()
            self.renewed_step = self.step
        if not kept:
            renewal.take_back()
            self.best_metric, self.best_step, self.best_weights = best
        after, self.stale = self.latest_metric, 0
        self.latest_metric = after if kept else before
        measured = {"renewal_seconds": round(took, 3), "metric_before": before, "metric_after": after}
        self._write({**measured, "renewal_kept": float(kept), **facts})
        shown.say(f"step {self.step}: renewed, {self.monitor} {before:.4f} before, {after:.4f} after")
        self.between_steps = True

    def _reason_to_stop(self) -> StoppedBecause | None:
        if self.max_steps is not None and self.step >= self.max_steps:
            return self.bound
        if self.config.patience is not None and self.stale >= self.config.patience:
            return "patience"
        # Either this step is still to be validated, or the next one would be.
        no_room = self.time_limit is not None and self.seconds + self.evaluation_seconds >= self.time_limit
        if no_room and self.step > 0:
            return "time_limit"
        return None

    def _schedule_step(self, step: int) -> int:
        """Where the schedule stands: a time limit that ends the run before `max_steps` completes the decay in time."""
        if self.time_limit is None or self.max_steps is None:
            return step
        return max(step, min(self.max_steps, int(self.seconds / self.time_limit * self.max_steps)))

    def _step(self, shown: TrainingProgress) -> None:
        step = self.step + 1
        rate = math.nan
        for optimizer, peaks in zip(self.task.optimizers, self.peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = self._rate(step, peak)
                rate = group["lr"] if math.isnan(rate) else rate
        rows = self.order.next()
        parts = np.array_split(rows, min(self.config.accumulate, len(rows)))
        self.task.model.train()
        if isinstance(self.task, OwnStep):
            result = self.task.update(self.task.batch(rows), step=step, clip_norm=self.config.clip_norm)
        else:
            result = train_step(
                self.task.loss,
                (self.task.batch(part) for part in parts),
                self.task.model,
                self.task.optimizers,
                step=step,
                shares=[len(part) / len(rows) for part in parts],
                clip_norm=self.config.clip_norm,
            )
        self.step = step
        self.loss_sum += result.loss
        self.loss_steps += 1
        self.examples += len(rows)
        self._log_step(rate, shown)

    def _rate(self, step: int, peak: float) -> float:
        rate = self.rates.learning_rate(self._schedule_step(step), peak, self.max_steps)
        since = step - self.renewed_step
        if self.renewed_step and since < self.config.warmup_steps:
            rate *= since / self.config.warmup_steps
        return rate

    def _log_step(self, rate: float, shown: TrainingProgress) -> None:
        loss, seconds = self.loss_sum / self.loss_steps, self.seconds
        speed = self.examples / max(seconds - self.examples_since, 1e-9)
        shown.stepped(self.step, loss, speed)
        if self.step % self.config.log_every == 0:
            facts = self.task.facts() if isinstance(self.task, OwnStep) else {}
            self._write({"loss": loss, "lr": rate, "examples_per_second": round(speed, 1), **facts})
            self.loss_sum, self.loss_steps, self.examples, self.examples_since = 0.0, 0, 0, seconds

    def _write(self, values: dict[str, float]) -> None:
        if self.log is not None:
            epoch = round(self.step / self.order.batches_per_epoch, 4)
            self.log.append({"step": self.step, "epoch": epoch, "seconds": round(self.seconds, 3), **values})

    def _validate(self, guard: InterruptGuard, shown: TrainingProgress) -> None:
        if self.evaluate is None:
            self.evaluated_step = self.step
            return
        started = time.monotonic()
        self.task.model.eval()
        with guard.at_once(), torch.random.fork_rng(self.devices), torch.no_grad():
            metrics = {name: float(value) for name, value in self.evaluate().items()}
        if self.monitor not in metrics:
            raise InputError(f"monitor={self.monitor!r} is not measured{nearest(self.monitor, metrics)}")
        value = metrics[self.monitor]
        if not math.isfinite(value):
            raise InputError(f"step {self.step}: the metric {self.monitor} is {value}; check the validation data")
        self.latest_metric = value
        best = self.best_metric is None or value > self.best_metric
        if best:
            weights = {name: tensor.detach().clone() for name, tensor in self.task.model.state_dict().items()}
            self.best_metric, self.best_step, self.best_weights = value, self.step, weights
        self.stale = 0 if best else self.stale + 1
        self.evaluated_step = self.step
        took = time.monotonic() - started
        self.evaluation_seconds = max(self.evaluation_seconds, took)
        # The speed is that of training.
        self.examples_since += took
        self._write({_PREFIX + name: value for name, value in metrics.items()})
        shown.evaluated(self.step, metrics, self.monitor, best)

    # ---- checkpoints

    def _save_if_due(self) -> None:
        config = self.config
        by_steps = config.checkpoint_steps is not None and self.step and self.step % config.checkpoint_steps == 0
        late = config.checkpoint_seconds is not None and time.monotonic() - self.saved_at >= config.checkpoint_seconds
        if by_steps or late:
            self._save()

    def _save(self) -> None:
        now = (self.step, self.evaluated_step)
        if self.log is None or self.saved == now:
            return
        self.log.save(self._state())
        self.saved, self.saved_at = now, time.monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "step": self.step,
            "seconds": self.seconds,
            "model": self.task.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.task.optimizers],
            "peaks": self.peaks,
            "task": self.task.state(),
            "order": self.order.state(),
            "torch": torch.get_rng_state(),
            "cuda": [torch.cuda.get_rng_state(device) for device in self.devices],
            "best_metric": self.best_metric,
            "best_step": self.best_step,
            "best_weights": self.best_weights,
            "stale": self.stale,
            "latest_metric": self.latest_metric,
            "renewed_step": self.renewed_step,
            "evaluated_step": self.evaluated_step,
            "evaluation_seconds": self.evaluation_seconds,
            "since_line": [self.loss_sum, self.loss_steps, self.examples, self.seconds - self.examples_since],
        }

    def _load(self, state: dict[str, Any]) -> None:
        if state["seed"] != self.seed:
            raise InputError(
                f"the checkpoint was made with seed={state['seed']}, this run has {self.seed}; use the same"
            )
        if state["peaks"] != self.peaks:
            raise InputError(
                f"the checkpoint was made with learning rates {state['peaks']}, this run has {self.peaks}; use the same"
            )
        counted = _Counted.model_validate(state)
        self.order.load_state(state["order"])
        model = self.task.model.state_dict()
        check_tensors(state["model"], model)
        self.task.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.task.optimizers, state["optimizers"], strict=True):
            load_optimizer(optimizer, saved)
        self.task.load_state(state["task"])
        torch.set_rng_state(state["torch"])
        for device, generator in zip(self.devices, state["cuda"], strict=True):
            torch.cuda.set_rng_state(generator, device)
        self.best_weights = state["best_weights"]
        if self.best_weights is not None:
            check_tensors(self.best_weights, model)
        self.step, self.seconds_before = counted.step, counted.seconds
        self.best_metric, self.best_step = counted.best_metric, counted.best_step
        self.stale, self.evaluated_step = counted.stale, counted.evaluated_step
        self.latest_metric, self.renewed_step = counted.latest_metric, counted.renewed_step
        self.saved = (self.step, self.evaluated_step)
        self.evaluation_seconds = counted.evaluation_seconds
        self.loss_sum, self.loss_steps, self.examples, since = counted.since_line
        self.examples_since = self.seconds_before - since

    def _interrupted(self, *, whole: bool) -> NoReturn:
        if self.log is None:
            raise Interrupted(f"interrupted at step {self.step}; without a run folder nothing was kept") from None
        if whole:
            self._save()
        if self.saved is None:
            raise Interrupted(f"interrupted within step {self.step + 1}, before the first checkpoint") from None
        raise Interrupted(
            f"interrupted; the checkpoint of step {self.saved[0]} is in {self.log.folder.checkpoint_path}; run the "
            f"same command with --resume to go on"
        ) from None
