"""GRU4Rec: a recurrent encoder; every position predicts what comes after it.

Shape legend: B rows, L history length, D width, H hidden units.
Source: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks", trained by softmax over the
catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from beamwood.models import parameters as declared
from beamwood.models.encoder import Encoder
from beamwood.models.ops import Array, Parameters, gru, linear
from beamwood.models.parameters import Parameter, linear_parameters

__all__ = ["ENCODER", "Sizes"]


class Sizes(declared.Sizes):
    """Those of GRU4Rec."""

    hidden: int = Field(128, ge=1, description="units of the GRU layer")


def parameters(width: int, length: int, sizes: Sizes) -> Iterator[Parameter]:
    """Recurrent weights U(-1 / sqrt(H), 1 / sqrt(H)), then the map to D; `length` is ignored."""
    bound, gates = sizes.hidden**-0.5, 3 * sizes.hidden
    yield Parameter("gru.weight_ih_l0", (gates, width), "uniform", bound)
    yield Parameter("gru.weight_hh_l0", (gates, sizes.hidden), "uniform", bound)
    yield Parameter("gru.bias_ih_l0", (gates,), "uniform", bound)
    yield Parameter("gru.bias_hh_l0", (gates,), "uniform", bound)
    yield from linear_parameters("output", sizes.hidden, width)


def forward(p: Parameters, x_BLD: Array, real_BL: Array, sizes: Sizes, dropout: float, last: bool) -> Array:
    """Positions before the first item are undefined."""
    return linear(gru(x_BLD, real_BL, p, "gru", dropout=dropout, last=last), p, "output")


ENCODER = Encoder("gru4rec", causal=True, sizes=Sizes, parameters=parameters, forward=forward)
