"""The arguments of a search, checked and in the form of the native core.

Shape legend: B rows, M nodes a row, L history length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kernels.arrays import aligned
from beamwood.kernels.reference import ExcludedLeaves, LiveCounts
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = [
    "MAX_K",
    "MAX_THREADS",
    "check_k",
    "check_width",
    "checked_excluded",
    "checked_histories",
    "checked_live",
    "checked_nodes",
    "no_lists",
]

MAX_K = 2**31
"""The largest k of the native core."""
MAX_THREADS = 1024
"""The most threads of the native core."""


def check_width(k: int, beam_width: int) -> None:
    """Raise `InputError` unless a beam of this width can give k leaves, and the native core can hold them."""
    if not 1 <= k <= beam_width:
        raise InputError(f"k={k} is outside 1..beam_width={beam_width}; raise beam_width or lower k")
    check_k(k)


def check_k(k: int) -> None:
    """Raise `InputError` for a k that the native core cannot hold."""
    if k > MAX_K:
        raise InputError(f"k={k} is above {MAX_K}; lower k")


def checked_histories(shape: Shape, length: int, history_BL: IndexArray) -> NDArray[np.int32]:
    """int32[B, L], histories of a scorer whose windows cover `length` leaves. Errors: another form, no such leaf."""
    history = checked_nodes(shape, "history_BL", history_BL, shape.depth)
    if history.shape[1] != length:
        raise InputError(f"history_BL has {history.shape[1]} columns; the scorer's windows cover {length}")
    return history


def checked_nodes(shape: Shape, name: str, nodes: IndexArray, level: int) -> NDArray[np.int32]:
    """int32[B, M], nodes of a level. Errors: another form, or a node outside the level, -1 apart."""
    nodes, size = np.asarray(nodes), shape.level_size(level)
    if nodes.ndim != 2 or not np.issubdtype(nodes.dtype, np.integer):
        raise InputError(f"{name} has shape {nodes.shape} and type {nodes.dtype}; expected two-dimensional integers")
    if nodes.size and (nodes.min() < -1 or nodes.max() >= size):
        what = "leaves" if level == shape.depth else f"the nodes of level {level}"
        raise InputError(f"{name} holds {nodes.min()}..{nodes.max()}; {what} are 0..{size - 1}, -1 for none")
    return aligned(nodes, np.int32)


def checked_live(shape: Shape, live: LiveCounts, last: int | None = None) -> LiveCounts:
    """The counts of all levels down to `last` (None: the leaves). Errors: other levels, sizes or types."""
    if len(live) < 2 or len(live) != (shape.depth if last is None else last) + 1:
        raise InputError(f"live has {len(live)} levels; a tree of depth {shape.depth} has {shape.depth + 1}")
    for level, counts in enumerate(live):
        size = shape.level_size(level)
        if counts.shape != (size,) or counts.dtype != np.int32:
            raise InputError(f"live[{level}] is {counts.dtype}{counts.shape}; expected int32({size},)")
    return tuple(aligned(counts, np.int32) for counts in live)


def checked_excluded(shape: Shape, excluded: ExcludedLeaves, num_rows: int) -> ExcludedLeaves:
    """The lists of `num_rows` rows. Errors: a list that is not ascending, or leaves outside the shape."""
    indptr = aligned(excluded[0], np.int64)
    leaves = checked_nodes(shape, "excluded", np.asarray(excluded[1])[None], shape.depth)[0]
    if indptr.shape != (num_rows + 1,) or indptr[0] != 0 or indptr[-1] != len(leaves) or (np.diff(indptr) < 0).any():
        raise InputError(
            f"excluded's indptr must hold {num_rows + 1} rising numbers from 0 to {len(leaves)}, one row a history"
        )
    keys = leaves
    if num_rows > 1:
        keys = np.repeat(np.arange(num_rows), np.diff(indptr)) * (shape.capacity + 1) + leaves
    if len(leaves) and (leaves.min() < 0 or (keys[1:] <= keys[:-1]).any()):
        raise InputError("excluded must hold leaves of 0 or more, ascending and without repeats within a row")
    return indptr, leaves


def no_lists(num_rows: int) -> ExcludedLeaves:
    """Lists that exclude nothing."""
    return np.zeros(num_rows + 1, np.int64), np.empty(0, np.int32)
