"""The settings of an index: its kind, and the settings of each kind, as defined by the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer

from beamwood.fitting.effect import Condition, by_choice
from beamwood.fitting.method_config import SettingsGroup
from beamwood.retrieval.index import INDEXES, IndexKind

__all__ = ["IndexChoiceSettings"]


class IndexKindSettings(SettingsGroup):
    """The index that finds the largest products."""

    kind: IndexKind = Field("exact", description="index for the largest inner products; hnsw needs the extra ann")

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Each index reads its own settings."""
        own = {kind: each.Settings.model_fields for kind, each in INDEXES.items()}
        return super().conditions() | by_choice("index.kind", own)

    @model_serializer(mode="wrap")
    def _its_own(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The settings of other indexes are omitted.
        values, others = handler(self), _others(self.kind)
        return {name: value for name, value in values.items() if name not in others}


def _others(kind: str) -> set[str]:
    """The settings that only other indexes have."""
    own = INDEXES[kind].Settings.model_fields
    return {name for each in INDEXES.values() for name in each.Settings.model_fields if name not in own}


if TYPE_CHECKING:

    class IndexChoiceSettings(IndexKindSettings):
        """The settings of all indexes; each index takes its own."""
else:
    _own = dict.fromkeys(each.Settings for each in reversed(INDEXES.values()))
    IndexChoiceSettings = create_model("IndexChoiceSettings", __base__=(*_own, IndexKindSettings))
