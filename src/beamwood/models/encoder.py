"""What a sequence encoder is: its sizes, its parameters, and one forward pass that torch trains and numpy answers with.

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
NumBlocks = Annotated[int, Field(ge=1, description="blocks of the encoder, one after the other")]
NumHeads = Annotated[int, Field(ge=1, description="heads of attention; they divide the width")]


class Forward(Protocol):
    """An encoder's pass over items' vectors: [B, L, D], or [B, 1, D] where it is not causal or only `last` is asked."""

    def __call__(
        self, parameters: Parameters, x_BLD: Array, real_BL: Array, sizes: Any, dropout: float, last: bool, /
    ) -> Array:
        """`x_BLD` has length sqrt(D) at a real position and is 0 at padding, which stands on the left.

        `dropout` is 0 in answers. `last`: no more than the last position's vector is needed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Encoder:
    """What a history becomes a vector by; `sizes` is the class of its sizes: whole numbers, or several in a row.

    `parameters(width, length, sizes)` declares them in the order in which they are drawn; errors: `InputError` on sizes
    that do not fit together. A causal encoder's vector at a position has seen the items up to it, so that each position
    is an example; another's one vector has seen the whole window. With `whole_window` the padding is always there, up
    to L columns; else it may be left out where no row needs it. Item vectors, what they are multiplied with and empty
    histories are no matter to an encoder.
    """

    name: str
    causal: bool
    sizes: type[Sizes]
    parameters: Callable[[int, int, Any], Iterator[Parameter]]
    forward: Forward
    whole_window: bool = False
