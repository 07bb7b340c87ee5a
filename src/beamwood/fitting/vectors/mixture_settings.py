"""The settings of a mixture of logits."""

from __future__ import annotations

from pydantic import Field

from beamwood.fitting.vectors.settings import SequenceConfig, SequenceLossSettings, SequenceModelSettings
from beamwood.models import mol
from beamwood.models.encoders import sasrec

__all__ = ["MixtureConfig"]


class MixtureModelSettings(mol.Sizes, sasrec.Sizes, SequenceModelSettings):
    """SASRec, and the components of its mixture."""

    temperature: float = Field(0.05, gt=0, description="scores are divided by it")
    num_candidates: int | None = Field(
        100, ge=1, description="items that each pair of components brings to be mixed; null: all, exactly"
    )


class MixtureLossSettings(SequenceLossSettings):
    """The sampled softmax of a mixture."""

    sampled_negatives: int = Field(128, ge=1, description="uniform negatives that a step's examples share, with log q")
    load_balance: float = Field(1e-3, ge=0, description="weight of what gates pay for leaving pairs of components idle")


class MixtureConfig(SequenceConfig):
    """Mixture of logits over SASRec."""

    model: MixtureModelSettings = MixtureModelSettings()
    loss: MixtureLossSettings = MixtureLossSettings()
