"""The settings of methods that score by inner products of vectors, as far as methods share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from beamwood.errors import InputError
from beamwood.fitting.effect import Condition, Only, by_choice
from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.plan import Facts, embeddings_of, start_of
from beamwood.fitting.settings import (
    Dropout,
    HistoryLength,
    Horizon,
    ItemStartSettings,
    LoopSettings,
    SeenConfig,
    TableOptimiserSettings,
    TrainedConfig,
    Width,
)
from beamwood.fitting.vectors.index_settings import IndexChoiceSettings
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import ENCODERS

__all__ = [
    "AlignedStartSettings",
    "ContinuedConfig",
    "EncoderModelSettings",
    "FolderStartSettings",
    "HorizonConfig",
    "MaxContexts",
    "SequenceConfig",
    "SequenceLossSettings",
    "SequenceModelSettings",
    "VectorConfig",
    "WindowConfig",
    "sizes_by",
    "validations",
]

if TYPE_CHECKING:
    from beamwood.data.split import Split

# Up to so many items the softmax is over the whole catalogue, else over samples: it would take most of a step.
_WHOLE, _SAMPLED = 15_000, 4_000
# The fewest steps between validations, however short an epoch is.
_LEAST_STEPS = 20
# The most steps of an epoch of short histories.
_EPOCH_STEPS = 1000
# In a catalogue of up to so many items, the lists of validation tell too little to stop early by.
_FEW_ITEMS = 40

MaxContexts = Annotated[int, Field(ge=1, description="maximum occurrences used per item")]


class VectorConfig(SeenConfig):
    """The settings of all methods that score by inner products of vectors."""

    index: IndexChoiceSettings = IndexChoiceSettings()


class EncoderModelSettings(SettingsGroup):
    """The settings of every encoder of histories."""

    width: Width = 64
    length: HistoryLength = 69
    dropout: Dropout = 0.2


class SequenceModelSettings(EncoderModelSettings):
    """An encoder and the items' vectors."""

    tied: bool = Field(True, description="score with the encoder's input vectors; false: a separate table")
    item_column: str | None = Field(None, description="list column of the item table to compute item vectors from")


class SequenceExampleSettings(SettingsGroup):
    """Which items are the targets of a position."""

    horizon: Horizon = 1


class HorizonConfig(SeenConfig):
    """The settings of a training whose targets may lie several items ahead."""

    examples: SequenceExampleSettings = SequenceExampleSettings()

    def chosen(self, split: Split, options: Mapping[str, Any]) -> dict[str, Any]:
        """The horizon, unless it is given."""
        if "examples.horizon" in self.given:
            return {}
        from beamwood.fitting.neighbour_choice import chosen_horizon

        return {"examples.horizon": chosen_horizon(split, self.choose, options)}


class SequenceLossSettings(SettingsGroup):
    """The softmax over the catalogue."""

    sampled_negatives: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        "auto",
        description="uniform negatives per step, with log q correction; null: all items; auto: 4,000 above 15,000 "
        "items, else all",
    )


class SequenceOptimiserSettings(TableOptimiserSettings):
    """The optimiser of sequence encoders."""

    item_decay: float | None = Field(
        None, ge=0, description="separate weight decay of item vectors; null: weight_decay"
    )


class WindowConfig(HorizonConfig):
    """A sequence encoder under a softmax; the defaults are SASRec's, chosen on validation data of `ml1m`.

    The examples of a step are windows: in a causal encoder each position is one, in others only the last. Unless
    `loop.batch_size` is given, a causal encoder takes more windows a step in large logs of short histories.
    """

    model: SequenceModelSettings = SequenceModelSettings()
    start: ItemStartSettings = ItemStartSettings()
    loss: SequenceLossSettings = SequenceLossSettings()
    optimiser: SequenceOptimiserSettings = SequenceOptimiserSettings(learning_rate=3e-3, warmup_steps=100)
    loop: LoopSettings = LoopSettings(batch_size=32, max_steps=3000)

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained; each method states its own."""
        raise InputError(f"{type(self).__qualname__} has no encoder; define its property `encoder`, as that of sasrec")

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """Item vectors that are projections of a column cannot start from transitions. At least each epoch of a small
        log is validated, as it is overfitted within a few. Errors: an optimiser for samples, without these.
        """
        optimiser, possible = self.optimiser, self.model.item_column is None
        sampled = self.sampled(facts)
        values: dict[str, Any] = {
            "loss.sampled_negatives": sampled,
            "start.items": start_of(self.start.items, facts.num_items, possible=possible),
            "optimiser.item_decay": optimiser.weight_decay if optimiser.item_decay is None else optimiser.item_decay,
            "loop.batch_size": self.windows(facts),
        }
        if facts.num_items > _FEW_ITEMS:
            values |= validations(self, self._windows_of_epoch(facts), values["loop.batch_size"])
        if sampled is not None:
            values["optimiser.embeddings"] = embeddings_of(optimiser.embeddings, facts.num_items)
        elif optimiser.embeddings == "lazy-adam":
            raise InputError(
                "optimiser.embeddings=lazy-adam has no effect with a softmax over all items, which updates every "
                "vector; leave it out, or set loss.sampled_negatives to a number"
            )
        return values

    def sampled(self, facts: Facts) -> int | None:
        """The negatives that a step's examples share, None where the softmax is over the whole catalogue."""
        given = self.loss.sampled_negatives
        if given == "auto":
            return None if facts.num_items <= _WHOLE else _SAMPLED
        return given

    def windows(self, facts: Facts) -> int:
        """The windows of a step: more in large logs of short histories, but not more examples than in full windows."""
        if "loop.batch_size" in self.given or not self.encoder.causal:
            return self.loop.batch_size
        examples = min(max(facts.mean_history - 1, 1.0), self.model.length)
        most = round(self.loop.batch_size * self.model.length / examples)
        return max(self.loop.batch_size, min(self._windows_of_epoch(facts) // _EPOCH_STEPS, most))

    def _windows_of_epoch(self, facts: Facts) -> int:
        """The windows of an epoch: few for a causal encoder, in which each position of a window is an example."""
        windows = facts.mean_history / self.model.length if self.encoder.causal else facts.mean_history
        return int(facts.num_users * max(1.0, windows))

    @model_validator(mode="after")
    def _a_window_has_two_items(self) -> Self:
        if self.model.length < 2:
            raise ValueError(f"model.length={self.model.length} is below 2, the shortest window; raise it")
        return self


def validations(config: TrainedConfig, num_examples: int, batch_size: int) -> dict[str, int]:
    """At least one validation an epoch of so many examples, unless the steps between them are given."""
    if "loop.evaluate_every" in config.given:
        return {}
    epoch = num_examples // batch_size
    return {"loop.evaluate_every": min(config.loop.evaluate_every, max(epoch, _LEAST_STEPS))}


class SequenceConfig(WindowConfig, VectorConfig):
    """A sequence encoder, and the index that its vectors get."""


def sizes_by(choice: str) -> dict[str, tuple[Only, ...]]:
    """The conditions of the encoders' sizes, where this setting names the encoder."""
    return by_choice(choice, {name: encoder.sizes.model_fields for name, encoder in ENCODERS.items()})


class FolderStartSettings(SettingsGroup):
    """A fitted model to start from."""

    folder: str | None = Field(None, description="folder of a fitted model (--from)")


class AlignedStartSettings(ItemStartSettings, FolderStartSettings):
    """How item vectors are initialised, or the fitted model with all weights."""

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """A fitted model brings its item vectors."""
        return super().conditions() | {"items": (Only("start.folder", (None,)),)}


class ContinuedConfig(WindowConfig):
    """A sequence encoder that may start from a fitted one."""

    start: AlignedStartSettings = AlignedStartSettings()

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """As `WindowConfig`; a fitted model brings its item vectors."""
        values = super().resolved(facts)
        return values if self.start.folder is None else {k: v for k, v in values.items() if k != "start.items"}
