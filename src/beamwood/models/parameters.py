"""Declarations of a model: its sizes, and the names, shapes and initialisation of its parameters; without torch.

They are drawn from one generator in the order of declaration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import Arrays, check_floats

__all__ = ["Draw", "LayerWidth", "Parameter", "Sizes", "check_declared", "layer_norm_parameters", "linear_parameters"]

Draw = Literal["constant", "normal", "uniform", "xavier", "kaiming"]

LayerWidth = Annotated[int, Field(ge=1, lt=2**14)]
"""The width of a layer or of a vector, up to the limit of the native kernels."""


class Sizes(BaseModel):
    """The sizes of a model besides the width of its vectors, each with a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def among(cls, settings: BaseModel) -> Self:
        """These sizes from settings that have fields of these names; a size without one keeps its default."""
        return cls(**settings.model_dump(include=set(cls.model_fields)))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One array and its initialisation: the constant `scale`, N(0, scale^2), U(-scale, scale), or by its shape.

    "xavier": Glorot's uniform; "kaiming": He's uniform for PReLU layers of slope `scale`. Dots in a name separate
    modules.
    """

    name: str
    shape: tuple[int, ...]
    draw: Draw = "constant"
    scale: float = 0.0


def linear_parameters(
    name: str, inputs: int, outputs: int, draw: Draw = "xavier", scale: float = 0.0
) -> Iterator[Parameter]:
    """A linear map's `name.weight` and `name.bias`, which starts at 0; see `ops.linear`."""
    yield Parameter(f"{name}.weight", (outputs, inputs), draw, scale)
    yield Parameter(f"{name}.bias", (outputs,))


def layer_norm_parameters(name: str, width: int) -> Iterator[Parameter]:
    """A layer normalisation's `name.weight` and `name.bias`; see `ops.layer_norm`."""
    yield Parameter(f"{name}.weight", (width,), scale=1.0)
    yield Parameter(f"{name}.bias", (width,))


def check_declared(arrays: Arrays, declared: Iterable[Parameter], others: Iterable[str] = ()) -> None:
    """Raise `ArtefactError` unless the arrays are those declared, with their shapes and finite, or in `others`."""
    known = set(others)
    # Checked lazily: huge declared sizes fail at the first missing array.
    for parameter in declared:
        check_floats(arrays, {parameter.name: parameter.shape})
        known.add(parameter.name)
    strangers = sorted(set(arrays) - known)
    if strangers:
        raise ArtefactError(f"the array '{strangers[0]}' is not expected here; was it written with other sizes?")
