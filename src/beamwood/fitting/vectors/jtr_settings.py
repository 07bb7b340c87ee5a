"""The settings of JTR."""

from __future__ import annotations

from pydantic import Field

from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.vectors.settings import ContinuedConfig, SequenceLossSettings, SequenceModelSettings
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import sasrec
from beamwood.retrieval.index.clusters import ClusterSettings

__all__ = ["JtrConfig"]


class JtrModelSettings(sasrec.Sizes, SequenceModelSettings):
    """SASRec and the items' vectors."""


class JtrLossSettings(SequenceLossSettings):
    """The softmax over the catalogue, and one over the nodes of each level."""

    level_negatives: int | None = Field(
        None, ge=1, description="negatives per node: siblings first, then others of its level; null: the whole level"
    )


class JtrIndexSettings(ClusterSettings, SettingsGroup):
    """The tree of clusters, and how it is searched."""


class JtrConfig(ContinuedConfig):
    """SASRec and a tree of clusters, trained together."""

    model: JtrModelSettings = JtrModelSettings()
    loss: JtrLossSettings = JtrLossSettings()
    index: JtrIndexSettings = JtrIndexSettings()

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.sasrec`."""
        return sasrec.ENCODER
