"""The settings of an index: its kind, and the settings of each kind, as defined by the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer, model_validator

from beamwood.fitting.settings import SettingsGroup
from beamwood.retrieval.index import INDEXES, IndexName

__all__ = ["IndexChoiceSettings"]


class IndexKindSettings(SettingsGroup):
    """The index that finds the largest products.

    Errors: `ValueError` on a setting of another index than the chosen one, unless it is its default.
    """

    kind: IndexName = Field("exact", description="index for the largest inner products; hnsw needs the extra ann")

    @model_validator(mode="after")
    def _the_index_has_it(self) -> Self:
        others, fields = _others(self.kind), type(self).model_fields
        for name, value in self:
            if name in others and value != fields[name].default:
                own = [kind for kind, each in INDEXES.items() if name in each.Settings.model_fields]
                raise ValueError(f"index.{name} is not for index.kind={self.kind}; it is for {', '.join(own)}")
        return self

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
