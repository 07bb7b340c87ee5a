"""The definition of a ranker's score: tables, parameters, and one forward pass for torch and numpy.

Shape legend: B rows, L history length, M items a row, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beamwood.models.ops import Array, Parameters
from beamwood.models.parameters import Parameter, Sizes

__all__ = ["PairScore", "Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Looked-up vectors: `users` [B, ..] and `items` [B, M, ..] by table, and the history's from "items".

    Context vectors are added to "users"; without these and without user vectors `users` is empty.
    """

    users: Mapping[str, Array]
    items: Mapping[str, Array]
    history_BLD: Array = None
    real_BL: Array = None


@dataclass(frozen=True, slots=True)
class PairScore:
    """A score of users, histories and items; `sizes` is the class of its sizes.

    `tables(width, sizes)`: the width of each table by name, "users" [U + 1, D], the last row for unknown users, "items"
    [N, D] and others whose names end in these words. `parameters(width, sizes, about)` as an encoder's; `about`:
    whether there is a vector of the user or the context. `forward(parameters, rows, sizes)` returns [B, M].
    `held(width, sizes, length)`: the intermediate values of each pair held at a time. Without `needs_users` the only
    table of users is "users", where they have columns; with `reads_history` there is a history.
    `catalogue(rows, sizes)`: `forward` for items [M, ..] shared by all rows, where that is cheaper.
    """

    kind: str
    sizes: type[Sizes]
    tables: Callable[[int, Any], dict[str, int]]
    parameters: Callable[[int, Any, bool], Iterator[Parameter]]
    forward: Callable[[Parameters, Rows, Any], Array]
    held: Callable[[int, Any, int], int]
    needs_users: bool
    reads_history: bool
    catalogue: Callable[[Rows, Any], Array] | None = None
