"""The settings of LightGCN."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from beamwood.fitting.effect import Not
from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.settings import LoopSettings, OptimiserSettings, SeenChoiceSettings, Width
from beamwood.fitting.vectors.settings import VectorConfig

__all__ = ["LightGcnConfig"]


class LightGcnModelSettings(SettingsGroup):
    """The width of the vectors, and the layers of the graph."""

    width: Width = 64
    num_layers: int = Field(3, ge=0, le=16, description="K, graph layers; 0: matrix factorisation by user id")
    known_users: Annotated[Literal["trained", "history"], Not("model.num_layers", (0,))] = Field(
        "history", description="training users by their own vectors, or by their history like all other users"
    )


class LightGcnLossSettings(SettingsGroup):
    """The regularisation of BPR."""

    regularisation: float = Field(1e-4, ge=0, description="lambda: L2 penalty on the vectors of a batch")


class LightGcnConfig(VectorConfig):
    """LightGCN; an epoch has as many pairs as the graph has edges."""

    model: LightGcnModelSettings = LightGcnModelSettings()
    loss: LightGcnLossSettings = LightGcnLossSettings()
    optimiser: OptimiserSettings = OptimiserSettings(learning_rate=5e-3, schedule="constant", clip_norm=None)
    loop: LoopSettings = LoopSettings(batch_size=2048, max_epochs=200)
    choose: SeenChoiceSettings = SeenChoiceSettings(monitor="removed/ndcg@20")
