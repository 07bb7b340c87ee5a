"""GraphRec's score: `sum_d relu(a_d b_d)`, which keeps both signs.

Shape legend: B rows, M items a row, D width.
Source: GraphRec (Rashed et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterator

from beamwood.models.ops import Array, Parameters, namespace, relu
from beamwood.models.parameters import Parameter, Sizes
from beamwood.models.scorer import PairScore, Rows

__all__ = ["SCORE"]


def tables(width: int, sizes: Sizes) -> dict[str, int]:
    """A vector each."""
    return {"users": width, "items": width}


def parameters(width: int, sizes: Sizes, about: bool) -> Iterator[Parameter]:
    """None."""
    yield from ()


def forward(p: Parameters, rows: Rows, sizes: Sizes) -> Array:
    """`relu(a b) = relu(a) relu(b) + relu(-a) relu(-b)`: a product is positive where both signs agree."""
    b_BMD = rows.items["items"]
    return namespace(b_BMD).sum(relu(rows.users["users"][:, None, :] * b_BMD), axis=2)


def catalogue(rows: Rows, sizes: Sizes) -> Array:
    """The same as two inner products."""
    a_BD, b_MD = rows.users["users"], rows.items["items"]
    return relu(a_BD) @ relu(b_MD).T + relu(-a_BD) @ relu(-b_MD).T


def held(width: int, sizes: Sizes, length: int) -> int:
    """A product."""
    return width


SCORE = PairScore(
    "graphrec", Sizes, tables, parameters, forward, held, needs_users=True, reads_history=False, catalogue=catalogue
)
