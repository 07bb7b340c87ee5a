"""The length of a run, its learning rate, and the times of validations."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from beamwood.training.schedule import Schedule, ScheduleKind

__all__ = ["LAZY_FROM", "DeviceName", "EmbeddingOptimiser", "LoopConfig"]

EmbeddingOptimiser = Literal["auto", "adam", "lazy-adam", "large"]
"""The optimiser of embedding tables: see `lazy_adam.sparse_gradients`; a plan resolves "auto"."""

DeviceName = Literal["cpu", "cuda"]
"""The device of a training: see `device.device_of`."""

LAZY_FROM = 100_000
"""The number of rows from which a table counts as large."""


class LoopConfig(BaseModel):
    """The length of a run, its learning rate, and the times of validations; steps count updates.

    `max_steps` or `max_epochs` bounds the run (the smaller of the two). Every `evaluate_every` steps the metric
    `monitor` (larger is better) is measured; after `patience` validations without a new best the run ends. With
    `evaluate_start` it is also measured before the first step, so that an initial model that training does not improve
    is returned. `schedule` and the following are those of `Schedule`; `learning_rate` applies to parameters for which
    the trainable gives none. `device`: of steps and updates; validation runs on the CPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(1e-3, gt=0)
    batch_size: int = Field(256, ge=1)
    max_steps: int | None = Field(None, ge=1)
    max_epochs: int | None = Field(None, ge=1)
    clip_norm: float | None = Field(None, gt=0)
    schedule: ScheduleKind = "constant"
    warmup_steps: int = Field(0, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    floor: float = Field(0.0, ge=0)
    evaluate_every: int = Field(1000, ge=1)
    evaluate_start: bool = False
    monitor: str | None = None
    patience: int | None = Field(None, ge=1)
    log_every: int = Field(50, ge=1)
    device: DeviceName = "cpu"

    def rates(self) -> Schedule:
        """The schedule of the learning rate."""
        return Schedule(
            kind=self.schedule, warmup_steps=self.warmup_steps, decay_steps=self.decay_steps, floor=self.floor
        )

    def bound(self, batches_per_epoch: int) -> tuple[int | None, Literal["max_steps", "max_epochs"]]:
        """The number of steps that ends the run, None without a bound, and the setting that gives it."""
        if self.max_epochs is not None:
            in_epochs = self.max_epochs * batches_per_epoch
            if self.max_steps is None or in_epochs < self.max_steps:
                return in_epochs, "max_epochs"
        return self.max_steps, "max_steps"
