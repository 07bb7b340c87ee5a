"""The settings of LPO4Rec and its rivals: an encoder by name, and a preference loss beside its cross-entropy."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field

from beamwood.evaluation.tail import TailOf
from beamwood.fitting.effect import Condition, Not, NotBoth, Only
from beamwood.fitting.plan import Facts
from beamwood.fitting.settings import LoopSettings, NumNegatives
from beamwood.fitting.vectors.settings import (
    ContinuedConfig,
    SequenceLossSettings,
    SequenceModelSettings,
    VectorConfig,
    sizes_by,
)
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import ENCODERS, AnySizes, EncoderName

__all__ = ["PreferenceConfig"]

_PREFERS = Not("loss.preference", ("none",))
_TELLS_THE_TAIL = NotBoth(("loss.preference", "none"), ("loss.reweight", False))


class AlignedModelSettings(AnySizes, SequenceModelSettings):
    """An encoder by name."""

    encoder: EncoderName = Field("sasrec", description="encoder of histories")

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Each encoder reads its own sizes."""
        return super().conditions() | sizes_by("model.encoder")


class PreferenceLossSettings(SequenceLossSettings):
    """A preference loss beside the cross-entropy."""

    preference: Literal["lpo", "dpo", "s-dpo", "simpo", "orpo", "none"] = Field(
        "lpo", description="preference loss; dpo and s-dpo need start.folder"
    )
    pi: Annotated[Literal["prob", "logit", "logprob"], _PREFERS] = Field(
        "logit", description="what LPO compares, with Gumbel noise added; logit and logprob give the same loss"
    )
    tau: Annotated[float, Only("loss.preference", ("lpo",))] = Field(1.0, gt=0, description="temperature of LPO")
    strength: Annotated[float, _PREFERS] = Field(0.5, ge=0, description="lambda: weight of the preference loss")
    beta: Annotated[float, Only("loss.preference", ("dpo", "s-dpo", "simpo"))] = Field(
        1.0, gt=0, description="beta of DPO, S-DPO and SimPO"
    )
    gamma: Annotated[float, Only("loss.preference", ("simpo",))] = Field(0.5, description="margin of SimPO")
    num_negatives: Annotated[NumNegatives, _PREFERS] = 10
    negatives: Annotated[Literal["gumbel", "top", "uniform"], _PREFERS] = Field(
        "gumbel", description="sampling of the head items used as negatives"
    )
    reweight: bool = Field(True, description="weight tail labels e^reweight_strength : 1 within a batch")
    reweight_strength: Annotated[float, Only("loss.reweight", (True,))] = Field(
        1.0, ge=0, description="alpha of tail labels; 1: LPO4Rec, 2: R2Rec"
    )
    tail_of: Annotated[TailOf, _TELLS_THE_TAIL] = Field(
        "items", description="unit of tail_share; prefixes: as in the authors' code"
    )
    tail_share: Annotated[float, _TELLS_THE_TAIL] = Field(0.2, gt=0, lt=1, description="share that forms the tail")

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Beside LPO, pi only draws the negatives, and each pi has the same highest ones."""
        known = super().conditions()
        draws_alone = itertools.product(("dpo", "s-dpo", "simpo", "orpo"), ("top", "uniform"))
        unread = (NotBoth(("loss.preference", loss), ("loss.negatives", drawn)) for loss, drawn in draws_alone)
        return known | {"pi": (*known["pi"], *unread)}

    @property
    def compares_probabilities(self) -> bool:
        """Whether the loss needs the denominator of the softmax, which cancels in all other losses."""
        return self.preference == "orpo" or (self.preference != "none" and self.pi == "prob")


class CpuLoopSettings(LoopSettings):
    """The loop of a training on the CPU."""

    device: Literal["cpu"] = Field("cpu", description="training device: this method trains on the CPU only")


class PreferenceConfig(ContinuedConfig, VectorConfig):
    """A preference loss beside the cross-entropy."""

    model: AlignedModelSettings = AlignedModelSettings()
    loss: PreferenceLossSettings = PreferenceLossSettings()
    loop: CpuLoopSettings = CpuLoopSettings(batch_size=32, max_steps=3000)

    @property
    def encoder(self) -> Encoder:
        """That of the name in the settings."""
        return ENCODERS[self.model.encoder]

    def sampled(self, facts: Facts) -> int | None:
        """As `WindowConfig`, but None where exact probabilities are compared, unless given."""
        exact = self.loss.compares_probabilities and self.loss.sampled_negatives == "auto"
        return None if exact else super().sampled(facts)
