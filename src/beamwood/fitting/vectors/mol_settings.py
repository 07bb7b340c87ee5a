"""The settings of `mol`, a mixture of logits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from beamwood.fitting.effect import NotBoth
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceLossSettings, SequenceModelSettings
from beamwood.models import mol
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import sasrec

__all__ = ["MolConfig"]


class MolModelSettings(mol.Sizes, sasrec.Sizes, SequenceModelSettings):
    """SASRec, and the components of its mixture."""

    temperature: float = Field(0.05, gt=0, description="divisor of the scores")
    num_candidates: int | None = Field(
        100, ge=1, description="candidates per pair of components; null: all items, exactly"
    )


class MolLossSettings(SequenceLossSettings):
    """The sampled softmax of a mixture."""

    sampled_negatives: int = Field(128, ge=1, description="uniform negatives shared by a batch, with log q correction")
    load_balance: Annotated[float, NotBoth(("model.query_components", 1), ("model.item_components", 1))] = Field(
        1e-3, ge=0, description="weight of the load-balancing loss of the gates"
    )


class MolConfig(SequenceConfig):
    """Mixture of logits over SASRec."""

    model: MolModelSettings = MolModelSettings()
    loss: MolLossSettings = MolLossSettings()

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.sasrec`."""
        return sasrec.ENCODER
