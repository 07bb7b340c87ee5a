"""What a ranker's score is: tables, parameters, and one forward pass that torch trains and numpy answers with.

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
    """What was looked up: `users` [B, ..] and `items` [B, M, ..] by table, and of "items" the history.

    What a context's columns say is added to "users"; without that and without user vectors `users` is empty.
    """

    users: Mapping[str, Array]
    items: Mapping[str, Array]
    history_BLD: Array = None
    real_BL: Array = None


@dataclass(frozen=True, slots=True)
class PairScore:
    """How users, histories and items become a score; `sizes` is the class of its sizes.

    `tables(width, sizes)`: the width of each table by name, "users" [U + 1, D], the last row for the unknown, "items"
    [N, D] and others that end in these words. `parameters(width, sizes, about)` as an encoder's; `about`: is there a
    vector of the user or the context? `forward(parameters, rows, sizes)` gives [B, M]. `held(width, sizes, length)`:
    how many numbers of each pair it holds at a time. Without `needs_users` there may be no user table; with
    `reads_history` there is a history. `catalogue(rows, sizes)`: `forward` of items [M, ..] that are the same for all
    rows, where that is cheaper.
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
