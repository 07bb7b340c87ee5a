"""The settings of CITIES."""

from __future__ import annotations

from pydantic import Field

from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.settings import Dropout, LoopSettings, OptimiserSettings
from beamwood.fitting.vectors.settings import FolderStartSettings, MaxContexts, VectorConfig
from beamwood.models.encoder import NumHeads

__all__ = ["CitiesConfig"]


class ContextModelSettings(SettingsGroup):
    """The network that infers a vector from contexts."""

    num_heads: NumHeads = 2
    dropout: Dropout = 0.1


class CitiesExampleSettings(SettingsGroup):
    """Which items are rare, and the contexts of items."""

    reach: int = Field(24, ge=1, description="context items on each side of an occurrence")
    max_contexts: MaxContexts = 10
    rare: int = Field(5, ge=1, description="items with at most this many interactions get a new vector")


class CitiesConfig(VectorConfig):
    """Vectors of rare items from their contexts."""

    model: ContextModelSettings = ContextModelSettings()
    start: FolderStartSettings = FolderStartSettings()
    examples: CitiesExampleSettings = CitiesExampleSettings()
    optimiser: OptimiserSettings = OptimiserSettings(warmup_steps=50)
    loop: LoopSettings = LoopSettings(max_steps=600, evaluate_every=100)
