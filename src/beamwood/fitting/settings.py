"""What the settings of all methods have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from beamwood.kernels.din import MAX_HISTORY
from beamwood.retrieval.stored import MOST

__all__ = ["HistoryLength", "LayerWidth", "MethodConfig"]

HistoryLength = Annotated[int, Field(ge=1, le=MAX_HISTORY)]
"""How many of the latest items of a history count."""

LayerWidth = Annotated[int, Field(ge=1, lt=2**14)]
"""How many values a layer, or a vector of an item or a node, has: the native kernels take no more."""


class MethodConfig(BaseModel):
    """Frozen settings without unknown keys; no number is beyond what all that computes with it can hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _numbers_fit(cls, value: Any) -> Any:
        for number in _numbers(value):
            if abs(number) > MOST:
                raise ValueError(f"a number is between -{MOST} and {MOST} here; take a smaller one")
        return value


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)
