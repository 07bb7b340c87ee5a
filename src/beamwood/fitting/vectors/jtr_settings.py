"""The settings of JTR."""

from __future__ import annotations

from pydantic import Field

from beamwood.fitting.settings import Group
from beamwood.fitting.vectors.settings import ContinuedConfig, SequenceLoss, SequenceModel
from beamwood.models.encoders import sasrec
from beamwood.retrieval.index.clusters import ClusterSettings

__all__ = ["JtrConfig"]


class JtrModel(sasrec.Sizes, SequenceModel):
    """SASRec and the items' vectors."""


class JtrLoss(SequenceLoss):
    """The softmax over the catalogue, and one over the nodes of each level."""

    level_negatives: int | None = Field(
        None, ge=1, description="negatives of a node: siblings first, then others of its level; null: the whole level"
    )


class JtrIndex(ClusterSettings, Group):
    """The tree of clusters, and how it is searched."""


class JtrConfig(ContinuedConfig):
    """SASRec and a tree of clusters, trained together."""

    model: JtrModel = JtrModel()
    loss: JtrLoss = JtrLoss()
    index: JtrIndex = JtrIndex()
