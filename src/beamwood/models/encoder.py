"""The definition of a sequence encoder: sizes, parameters, and one forward pass for torch and numpy.

Shape legend: B rows, L history length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import Field

from beamwood.models.ops import Array, Parameters
from beamwood.models.parameters import Parameter, Sizes

__all__ = ["Encoder", "Forward", "NumBlocks", "NumHeads"]

# Sizes that several encoders have.
NumBlocks = Annotated[int, Field(ge=1, description="number of encoder blocks")]
NumHeads = Annotated[int, Field(ge=1, description="attention heads; must divide the width")]


class Forward(Protocol):
    """An encoder's pass over item vectors: [B, L, D], or [B, 1, D] where it is not causal or only `last` is needed."""

    def __call__(
        self, parameters: Parameters, x_BLD: Array, real_BL: Array, sizes: Any, dropout: float, last: bool, /
    ) -> Array:
        """`x_BLD` has length sqrt(D) at a real position and is 0 at padding, which is on the left.

        `dropout` is 0 outside of training. `last`: only the last position's vector is needed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder of histories as vectors; `sizes` is the class of its sizes: integers, or tuples of them.

    `parameters(width, length, sizes)` declares them in the order in which they are drawn; errors: `InputError` on
    inconsistent sizes. In a causal encoder a position's vector depends on the items up to it, so that each position is
    an example; otherwise the one vector depends on the whole window. With `whole_window` the input is always padded to
    L columns; else padding may be dropped where no row needs it. Item vectors, output vectors and empty histories are
    handled outside.
    """

    name: str
    causal: bool
    sizes: type[Sizes]
    parameters: Callable[[int, int, Any], Iterator[Parameter]]
    forward: Forward
    whole_window: bool = False
