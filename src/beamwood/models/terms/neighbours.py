"""Counted neighbours of a history's items: they separate items that a low-rank similarity cannot.

Shape legend: B rows, L history length, E entries of histories, M nodes a row, V nodes of the tree, C leaves, K
neighbours of a leaf, F folds of users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from scipy import sparse

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import unread
from beamwood.kernels.lists import from_padded_rows, padded_rows
from beamwood.kernels.mixtures import Mixtures
from beamwood.kernels.terms import Array, Counted, Held, Term, TermQuery, added_up, moved_leaves, sums_of_leaves
from beamwood.models.terms.step_scale import STEP_SCALE
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = ["Neighbours"]

# The initial gain, weight of the newest place, and its decay with age; chosen on validation users of
# `nowplaying_sessions`, `tmall_sessions` and `retailrocket_sessions`.
_GAIN, _WEIGHT, _FADE = 1.0, 0.3, 0.9
# A smaller share of all interactions counts as this one.
_LEAST_SHARE = 1e-12


class NeighbourLists(NamedTuple):
    """For each leaf its K most frequent neighbours: `leaves` int32[V, K], and `chances` float32[V, K].

    A chance is the neighbour's share of the leaf's counts; -1 and 0 where there are fewer neighbours, and in the rows
    of the nodes above the leaves.
    """

    leaves: NDArray[np.int32]
    chances: NDArray[np.float32]


@dataclass(frozen=True)
class Neighbours(Term):
    """`gain log(1 + sum over l of place_l chance(a_l, n) / share(n))`, a_l the leaves of the history.

    `chance(a, n)`: the sum of the chances of the neighbours of a below node n; `share(n)`: of all interactions. With a
    gain of 1, and scores that are log frequencies, the sum is the log of a mixture of the frequencies and of each
    history entry's neighbour distribution. A node has the sum of its leaves' chances, so a beam finds them. Training
    learns `gain` [1] and the weights of places, softplus(20 `places`) [L]. `leaves` and `chances` count all users;
    those `held_out` [F, V, K] leave out a fold of users: a model trained with lists that count the user's own steps
    would trust them too much.
    """

    name: ClassVar[str] = "neighbours"
    native: ClassVar[str] = "neighbours"
    sparse: ClassVar[bool] = True
    by_others: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("places", "gain")
    by_node: ClassVar[tuple[str, ...]] = ("leaves", "chances", "shares")
    by_place: ClassVar[tuple[str, ...]] = ("places",)
    training: ClassVar[tuple[str, ...]] = ("held_out_leaves", "held_out_chances")

    count: int = 0
    folds: int = 0
    latest: int | None = None
    """The latest places that count; None for all. The time of a step is proportional to their lists."""

    def arrays(self, shape: Shape, history_length: int) -> dict[str, NDArray[Any]]:
        apart = {f"held_out_{name}": array for name, array in self._lists(shape, self.folds).items()}
        own = {name: array[0] for name, array in self._lists(shape, 1).items()}
        places, gain = np.zeros(history_length, np.float32), np.zeros(1, np.float32)
        return own | apart | {"shares": np.zeros(shape.num_nodes, np.float32), "places": places, "gain": gain}

    def _lists(self, shape: Shape, copies: int) -> dict[str, NDArray[Any]]:
        size = (copies, shape.num_nodes, self.count)
        return {"leaves": np.full(size, -1, np.int32), "chances": np.zeros(size, np.float32)}

    def weights(self, held: Held) -> Held:
        from torch.nn.functional import softplus

        places = softplus(STEP_SCALE * held["places"])
        if self.latest is not None:
            places = places * (places.new_ones(len(places)).cumsum(0) > len(places) - self.latest)
        return {**held, "places": places}

    def score(self, held: Held, query: TermQuery) -> Array:
        leaves_BL, nodes_BM, size, shape = query.leaves, query.nodes, query.size, query.shape
        xp, device = array_namespace(leaves_BL), leaves_BL.device
        if self.latest is not None:
            leaves_BL = leaves_BL[:, -self.latest :]
        # E entries of all histories together, as short histories have mostly empty places.
        row_E, place_E = xp.nonzero(leaves_BL >= 0)
        fold_E = None if query.folds is None else query.folds[row_E]
        rows_E = leaves_BL[row_E, place_E] + shape.level_offset(shape.depth)
        near_EK, chance_EK = _lists_of_leaves(held, rows_E, fold_E)
        # A key for each row and node of the level; an absent neighbour, of chance 0, gets the key before its row's.
        row_B1 = xp.arange(len(leaves_BL), device=device)[:, None] * (size + 1) + 1
        at = wanted_at = (row_B1[row_E] + shape.ancestors(near_EK, query.level)).reshape(-1)
        if nodes_BM is None:
            place_BM, count = row_B1 + xp.arange(size, device=device), len(leaves_BL) * (size + 1)
            hits = xp.arange(len(at), device=device)
        else:
            # Only few of the listed nodes are needed, and a level may have hundreds of thousands.
            wanted, place_BM = xp.unique_inverse(row_B1 + nodes_BM)
            at, count = xp.clip(xp.searchsorted(wanted, wanted_at), 0, len(wanted) - 1), len(wanted)
            hits = xp.nonzero(wanted[at] == wanted_at)[0]
        weights_E = held["places"][-leaves_BL.shape[1] :][place_E]
        added = weights_E[hits // near_EK.shape[1]] * chance_EK.reshape(-1)[hits]
        sums, shares = added_up(added, at[hits], count)[place_BM], query.of_nodes(held["shares"])
        # An infinite share must not pass as a chance of 0.
        shares = xp.where(xp.isfinite(shares), xp.clip(shares, _LEAST_SHARE, None), xp.nan)
        return held["gain"][0] * xp.log1p(sums / shares)

    def start(self, held: Mapping[str, NDArray[Any]], counted: Counted) -> None:
        import torch

        shape = counted.tree.shape
        held["shares"][:] = sums_of_leaves(counted.leaf_shares(), shape)
        for lists, counts in zip(all_lists(held), counted.neighbour_matrices(self.folds), strict=True):
            set_lists(lists, counts)
        places = _WEIGHT * torch.tensor(_FADE) ** torch.arange(len(held["places"]) - 1, -1, -1)
        # The weights of distant places may underflow.
        held["places"][:] = (torch.log(torch.expm1(places.clamp(min=1e-30))) / STEP_SCALE).numpy()
        held["gain"][:] = _GAIN

    def move(self, held: Mapping[str, NDArray[Any]], place: IndexArray, shape: Shape) -> None:
        """The lists move with their leaves, and name the leaves' new numbers."""
        first = shape.level_offset(shape.depth)
        held["shares"][:] = sums_of_leaves(moved_leaves(held["shares"][first:].astype(float), place), shape)
        for lists in all_lists(held):
            _move_lists(lists, place)

    def mixed(self, held: Held, leaves: Mixtures, shape: Shape) -> dict[str, NDArray[Any]]:
        """The strongest entries of all their lists."""
        first = shape.level_offset(shape.depth)
        rows = leaves.lists.items + first
        theirs = from_padded_rows(held["leaves"][rows], held["chances"][rows], shape.capacity)
        gather = (leaves.weights, np.arange(len(rows)), leaves.lists.indptr)
        whole = sparse.csr_matrix(gather, shape=(len(leaves), len(rows))) @ theirs
        near, chances = padded_rows(sparse.csr_matrix(whole), held["leaves"].shape[1])
        return {"leaves": near, "chances": chances, "shares": leaves.mixed(held["shares"], first).astype(np.float32)}

    def check(self, held: Mapping[str, NDArray[Any]], num_nodes: int, history_length: int) -> None:
        super().check(held, num_nodes, history_length)
        leaves, chances = held["leaves"], held["chances"]
        if chances.shape != leaves.shape:
            raise ArtefactError(f"neighbours.chances has shape {chances.shape}; expected {leaves.shape}")
        if held["gain"].shape != (1,):
            raise ArtefactError(f"neighbours.gain has shape {held['gain'].shape}; expected (1,)")
        # The native core skips leaves out of range, and chances of 0 or less.
        if unread():
            return
        if (leaves < -1).any():
            raise ArtefactError(f"neighbours.leaves holds {leaves.min()}; expected contiguous int32 of -1 or more")
        for name in ("chances", "shares", "places"):
            if (held[name] < 0).any():
                raise ArtefactError(
                    f"neighbours.{name} holds values below 0; the model was not saved as it was trained"
                )

    def check_tree(self, held: Mapping[str, NDArray[Any]], shape: Shape) -> None:
        if unread():
            return
        highest = int(held["leaves"].max())
        if highest >= shape.capacity:
            raise ArtefactError(f"neighbours.leaves lists leaf {highest} of a tree that has {shape.capacity}")


def _lists_of_leaves(held: Held, rows_E: Array, folds_E: Array | None) -> tuple[Array, Array]:
    """The neighbours and chances of leaves by their rows, [E, K] each; those with a fold use the lists without it."""
    if folds_E is None:
        return held["leaves"][rows_E], held["chances"][rows_E]
    return held["held_out_leaves"][folds_E, rows_E], held["held_out_chances"][folds_E, rows_E]


def all_lists(held: Mapping[str, NDArray[Any]]) -> list[NeighbourLists]:
    """The lists of all users, then those that leave out a fold."""
    apart = zip(held["held_out_leaves"], held["held_out_chances"], strict=True)
    return [NeighbourLists(held["leaves"], held["chances"]), *(NeighbourLists(*parts) for parts in apart)]


def set_lists(lists: NeighbourLists, counts: sparse.csr_matrix) -> None:
    """Set the lists from the counts of leaves [C, C]."""
    totals = np.asarray(counts.sum(axis=1), float).ravel()
    chances = sparse.diags(1 / np.maximum(totals, 1e-9)) @ counts
    first = len(lists.leaves) - len(totals)
    lists.leaves[first:], lists.chances[first:] = padded_rows(sparse.csr_matrix(chances), lists.leaves.shape[1])


def _move_lists(lists: NeighbourLists, place: IndexArray) -> None:
    """Move the list of leaf l to `place[l]`, -1 for an empty leaf, and rename the leaves that it holds."""
    first = len(lists.leaves) - len(place)
    leaves, chances = lists.leaves[first:].copy(), lists.chances[first:].copy()
    lists.leaves[first:], lists.chances[first:] = -1, 0
    kept = place >= 0
    lists.leaves[first + place[kept]] = np.where(leaves >= 0, place[leaves], -1)[kept]
    lists.chances[first + place[kept]] = chances[kept]
