"""The settings of MELT."""

from __future__ import annotations

from pydantic import Field

from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.settings import LoopSettings
from beamwood.fitting.vectors.settings import FolderStartSettings, MaxContexts, VectorConfig

__all__ = ["MeltConfig"]


class MeltExampleSettings(SettingsGroup):
    """Which users and items are rare, and the contexts of items."""

    user_quantile: float = Field(0.8, gt=0, lt=1, description="quantile of history length below which users are rare")
    item_quantile: float = Field(0.78, gt=0, lt=1, description="quantile of interactions below which items are rare")
    max_contexts: MaxContexts = 50


class MeltConfig(VectorConfig):
    """Two branches beside a fitted encoder; a step has as many users as items."""

    start: FolderStartSettings = FolderStartSettings()
    examples: MeltExampleSettings = MeltExampleSettings()
    loop: LoopSettings = LoopSettings(batch_size=128, max_steps=600, evaluate_every=100)
