"""The groups of settings that methods share; each field is defined once, here or in its family's `settings.py`."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from beamwood.fitting.effect import Not
from beamwood.fitting.method_config import MethodConfig, SettingsGroup
from beamwood.fitting.plan import Start
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.parameters import LayerWidth
from beamwood.retrieval.stored import MOST
from beamwood.training.loop_config import DeviceName, EmbeddingOptimiser, LoopConfig
from beamwood.training.schedule import ScheduleKind

__all__ = [
    "AttentionStartSettings",
    "ChoiceSettings",
    "Dropout",
    "HistoryLength",
    "Horizon",
    "ItemColumns",
    "ItemStartSettings",
    "LoopSettings",
    "Mlp",
    "NumNegatives",
    "NumTargets",
    "OptimiserSettings",
    "SeenChoiceSettings",
    "SeenConfig",
    "TableOptimiserSettings",
    "TrainedConfig",
    "WeightChoiceSettings",
    "Width",
]

# Fields that several groups have, each with its description.
Width = Annotated[LayerWidth, Field(description="embedding width of items or nodes")]
HistoryLength = Annotated[int, Field(ge=1, le=MAX_HISTORY, description="number of latest history items used")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="dropout rate in training")]
Mlp = Annotated[tuple[LayerWidth, ...], Field(min_length=1, description="widths of the layers above the attention")]
ItemColumns = Annotated[tuple[str, ...], Field(description="columns of the item table, as name or name:kind")]
Horizon = Annotated[
    int,
    Field(
        ge=0,
        description="farthest target, in steps ahead; 1: only the next item; 0: unlimited; unless given, some methods "
        "choose by validation",
    ),
]
NumTargets = Annotated[int, Field(ge=1, description="future items used as targets of one history")]
NumNegatives = Annotated[
    int, Field(ge=1, description="negatives per target and level (trees), per example, or per list")
]


class OptimiserSettings(SettingsGroup):
    """The learning rate, its schedule and gradient clipping."""

    learning_rate: float | None = Field(
        1e-3, gt=0, description="peak learning rate; null: chosen by the initial scores (trees only)"
    )
    schedule: ScheduleKind = Field("linear", description="decay of the learning rate after the warm-up")
    warmup_steps: int = Field(0, ge=0, description="steps in which the learning rate rises to its peak")
    decay_steps: Annotated[int | None, Not("optimiser.schedule", ("constant",))] = Field(
        None, ge=1, description="decay length in steps; null: the rest of the run; exponential needs a number"
    )
    floor: Annotated[float, Not("optimiser.schedule", ("constant",))] = Field(
        0.0, ge=0, description="minimum learning rate"
    )
    clip_norm: float | None = Field(5.0, gt=0, description="maximum gradient norm; null: no clipping")


class TableOptimiserSettings(OptimiserSettings):
    """The optimiser of models with embedding tables: its weight decay too."""

    weight_decay: float = Field(
        0.0,
        ge=0,
        description="weight decay: decoupled (AdamW); trees exclude embeddings; two_tower uses coupled L2",
    )
    embeddings: EmbeddingOptimiser = Field(
        "auto",
        description="lazy-adam updates only vectors used in a step; large (and auto): for tables of 100,000 or more",
    )


class LoopSettings(SettingsGroup):
    """The length of a training, its batches, and its validations."""

    batch_size: int = Field(64, ge=1, description="examples per step: histories, windows, pairs, lists or items")
    max_steps: int | None = Field(None, ge=1, description="maximum steps; null: only max_epochs applies")
    max_epochs: int | None = Field(None, ge=1, description="maximum epochs; null: only max_steps applies")
    evaluate_every: int = Field(200, ge=1, description="steps between validations")
    patience: int = Field(8, ge=1, description="validations without improvement before training stops")
    log_every: int = Field(50, ge=1, description="steps between lines of the metrics file")
    device: DeviceName = Field("cpu", description="training device: cpu, or cuda (one NVIDIA GPU)")


class ChoiceSettings(SettingsGroup):
    """The validation users."""

    validation_users: int = Field(2000, ge=1, description="validation users for model selection, sampled once")


class WeightChoiceSettings(ChoiceSettings):
    """The validation users, and the metric that chooses the weights."""

    monitor: str = Field(
        "removed/f@20",
        description="metric for model selection: seen kept (kept/), seen removed (removed/), or their mean (both/)",
    )


class SeenChoiceSettings(WeightChoiceSettings):
    """The validation users, the metric that chooses the weights, and the weight of seen items."""

    seen_weight: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="added to the score of seen items; null: chosen on validation users; the papers: 0",
    )


class ItemStartSettings(SettingsGroup):
    """How item vectors are initialised."""

    items: Start = Field(
        "auto",
        description="item vectors: random (the papers) or from transitions; auto: transitions up to 2,000,000 items",
    )


class AttentionStartSettings(SettingsGroup):
    """How the attention is initialised."""

    attention: float | None = Field(
        0.3, description="initial output of the attention; null: random initialisation (the papers)"
    )


class TrainedConfig(MethodConfig):
    """The settings of a method that trains by steps."""

    optimiser: OptimiserSettings = OptimiserSettings()
    loop: LoopSettings = LoopSettings()
    choose: WeightChoiceSettings = WeightChoiceSettings()

    @model_validator(mode="after")
    def _something_ends_the_run(self) -> Self:
        if self.loop.max_steps is None and self.loop.max_epochs is None:
            raise ValueError("loop.max_steps and loop.max_epochs are both null; give one of them")
        return self

    @model_validator(mode="after")
    def _the_rate_is_known(self) -> Self:
        default: OptimiserSettings = type(self).model_fields["optimiser"].default
        if self.optimiser.learning_rate is None and default.learning_rate is not None:
            raise ValueError(f"optimiser.learning_rate=null: give a number; the default is {default.learning_rate}")
        return self

    @model_validator(mode="after")
    def _the_decay_has_a_length(self) -> Self:
        if self.optimiser.schedule == "exponential" and self.optimiser.decay_steps is None:
            raise ValueError("optimiser.schedule=exponential needs optimiser.decay_steps; give a number of steps")
        return self

    def loop_config(self, *, evaluate_start: bool) -> LoopConfig:
        """The configuration of the training loop."""
        fields = set(LoopConfig.model_fields)
        settings = self.optimiser.model_dump(include=fields) | self.loop.model_dump(include=fields)
        settings = {name: value for name, value in settings.items() if value is not None}
        return LoopConfig(monitor=f"valid/{self.choose.monitor}", evaluate_start=evaluate_start, **settings)


class SeenConfig(TrainedConfig):
    """The settings of a method that chooses the weight of seen items after training."""

    choose: SeenChoiceSettings = SeenChoiceSettings()
