"""Counted neighbours of a history's items: they separate items that a low-rank similarity cannot.

Shape legend: B rows, L history length, E entries of histories, M nodes a row, V nodes of the tree, C leaves, K
neighbours of a node, F folds of users.
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
from beamwood.kernels.terms import Array, Counted, Held, Term, TermQuery, added_up, moved_leaves
from beamwood.models.terms.pace import PACE
from beamwood.tree.tree import Shape
from beamwood.types import FloatArray, IndexArray

__all__ = ["Neighbours"]

# The initial gain, weight of the newest place, and its decay with age; chosen on validation users of
# `nowplaying_sessions`, `tmall_sessions` and `retailrocket_sessions`.
_GAIN, _WEIGHT, _FADE = 1.0, 0.3, 0.9


class NeighbourLists(NamedTuple):
    """For each node the K most frequent neighbours on its level: `nodes` int32[V, K], and `lifts` float32[V, K].

    A lift is the neighbour's share of the node's counts over its share of all interactions; -1 and 0 where there are
    fewer neighbours. `totals` float32[C]: the counts of each leaf, its weight in its ancestors.
    """

    nodes: NDArray[np.int32]
    lifts: NDArray[np.float32]
    totals: NDArray[np.float32]


@dataclass(frozen=True)
class Neighbours(Term):
    """`gain log(1 + sum over l of place_l lift(a_l, n))`, a_l the ancestors of the history on the level of node n.

    With a gain of 1, and scores that are log frequencies, the sum is the log of a mixture of the frequencies and of
    each history entry's neighbour distribution. Training learns `gain` [1] and the weights of places, softplus(20
    `places`) [L]. `nodes` and `lifts` count all users; those `held_out` [F, V, K] leave out a fold of users: a model
    trained with lists that count the user's own steps would trust them too much.
    """

    name: ClassVar[str] = "neighbours"
    native: ClassVar[str] = "neighbours"
    sparse: ClassVar[bool] = True
    by_others: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("places", "gain")
    by_node: ClassVar[tuple[str, ...]] = ("nodes", "lifts")
    by_place: ClassVar[tuple[str, ...]] = ("places",)
    training: ClassVar[tuple[str, ...]] = (
        "totals",
        "shares",
        "held_out_nodes",
        "held_out_lifts",
        "held_out_totals",
    )

    count: int = 0
    folds: int = 0
    latest: int | None = None
    """The latest places that count; None for all. The time of a step is proportional to their lists."""

    def arrays(self, shape: Shape, history_length: int) -> dict[str, NDArray[Any]]:
        apart = {f"held_out_{name}": array for name, array in self._lists(shape, self.folds).items()}
        own = {name: array[0] for name, array in self._lists(shape, 1).items()}
        places, gain = np.zeros(history_length, np.float32), np.zeros(1, np.float32)
        return own | apart | {"shares": np.zeros(shape.capacity, np.float32), "places": places, "gain": gain}

    def _lists(self, shape: Shape, copies: int) -> dict[str, NDArray[Any]]:
        size = (copies, shape.num_nodes, self.count)
        totals = np.zeros((copies, shape.capacity), np.float32)
        return {"nodes": np.full(size, -1, np.int32), "lifts": np.zeros(size, np.float32), "totals": totals}

    def weights(self, held: Held) -> Held:
        from torch.nn.functional import softplus

        places = softplus(PACE * held["places"])
        if self.latest is not None:
            places = places * (places.new_ones(len(places)).cumsum(0) > len(places) - self.latest)
        return {**held, "places": places}

    def score(self, held: Held, query: TermQuery) -> Array:
        leaves_BL, nodes_BM, size, history_BL = query.leaves, query.nodes, query.size, query.history
        xp, device = array_namespace(leaves_BL), leaves_BL.device
        if self.latest is not None:
            history_BL = history_BL[:, -self.latest :]
        # E entries of all histories together, as short histories have mostly empty places.
        row_E, place_E = xp.nonzero(history_BL >= 0)
        fold_E = None if query.folds is None else query.folds[row_E]
        near_EK, lift_EK = lists_of_nodes(held, history_BL[row_E, place_E] + query.offset, fold_E)
        # A key for each row and node of the level; an absent neighbour, of lift 0, gets the key before its row's.
        row_B1 = xp.arange(len(leaves_BL), device=device)[:, None] * (size + 1) + 1
        at = wanted_at = (row_B1[row_E] + near_EK).reshape(-1)
        if nodes_BM is None:
            place_BM, count = row_B1 + xp.arange(size, device=device), len(leaves_BL) * (size + 1)
            hits = xp.arange(len(at), device=device)
        else:
            # Only few of the listed nodes are needed, and a level may have hundreds of thousands.
            wanted, place_BM = xp.unique_inverse(row_B1 + nodes_BM)
            at, count = xp.clip(xp.searchsorted(wanted, wanted_at), 0, len(wanted) - 1), len(wanted)
            hits = xp.nonzero(wanted[at] == wanted_at)[0]
        weights_E = held["places"][-history_BL.shape[1] :][place_E]
        added = weights_E[hits // near_EK.shape[1]] * lift_EK.reshape(-1)[hits]
        return held["gain"][0] * xp.log1p(added_up(added, at[hits], count))[place_BM]

    def start(self, held: Mapping[str, NDArray[Any]], counted: Counted) -> None:
        import torch

        shape, shares = counted.tree.shape, counted.leaf_shares()
        held["shares"][:] = shares
        for lists, counts in zip(all_lists(held), counted.neighbour_matrices(self.folds), strict=True):
            lists.totals[:] = np.asarray(counts.sum(axis=1), np.float32).ravel()
            set_lists(lists, counts, shares, shape)
        places = _WEIGHT * torch.tensor(_FADE) ** torch.arange(len(held["places"]) - 1, -1, -1)
        # The weights of distant places may underflow.
        held["places"][:] = (torch.log(torch.expm1(places.clamp(min=1e-30))) / PACE).numpy()
        held["gain"][:] = _GAIN

    def move(self, held: Mapping[str, NDArray[Any]], place: IndexArray, shape: Shape) -> None:
        """The counts are reconstructed from the lists."""
        before = held["shares"].astype(float)
        after = moved_leaves(before, place)
        held["shares"][:] = after
        for lists in all_lists(held):
            move_lists(lists, place, before, after, shape)

    def mixed(self, held: Held, leaves: Mixtures, shape: Shape) -> dict[str, NDArray[Any]]:
        """The strongest entries of all their lists."""
        rows = leaves.lists.items + shape.level_offset(shape.depth)
        theirs = from_padded_rows(held["nodes"][rows], held["lifts"][rows], shape.capacity)
        gather = (leaves.weights, np.arange(len(rows)), leaves.lists.indptr)
        whole = sparse.csr_matrix(gather, shape=(len(leaves), len(rows))) @ theirs
        nodes, lifts = padded_rows(sparse.csr_matrix(whole), held["nodes"].shape[1])
        return {"nodes": nodes, "lifts": lifts}

    def check(self, held: Mapping[str, NDArray[Any]], num_nodes: int, history_length: int) -> None:
        super().check(held, num_nodes, history_length)
        nodes, lifts = held["nodes"], held["lifts"]
        if lifts.shape != nodes.shape:
            raise ArtefactError(f"neighbours.lifts has shape {lifts.shape}; expected {nodes.shape}")
        if held["gain"].shape != (1,):
            raise ArtefactError(f"neighbours.gain has shape {held['gain'].shape}; expected (1,)")
        # The native core skips nodes out of range, and lifts of 0 or less.
        if unread():
            return
        if (nodes < -1).any():
            raise ArtefactError(f"neighbours.nodes holds {nodes.min()}; expected contiguous int32 of -1 or more")
        for name in ("lifts", "places"):
            if (held[name] < 0).any():
                raise ArtefactError(
                    f"neighbours.{name} holds values below 0; the model was not saved as it was trained"
                )

    def check_tree(self, held: Mapping[str, NDArray[Any]], shape: Shape) -> None:
        for level in range(1, 1 if unread() else shape.depth + 1):
            first, size = shape.level_offset(level), shape.level_size(level)
            highest = int(held["nodes"][first : first + size].max())
            if highest >= size:
                raise ArtefactError(f"neighbours.nodes lists node {highest} of level {level}, which has {size}")


def lists_of_nodes(held: Held, nodes_E: Array, folds_E: Array | None) -> tuple[Array, Array]:
    """The neighbours and lifts of nodes, [E, K] each; rows with a fold use the lists that leave it out."""
    if folds_E is None:
        return held["nodes"][nodes_E], held["lifts"][nodes_E]
    return held["held_out_nodes"][folds_E, nodes_E], held["held_out_lifts"][folds_E, nodes_E]


def all_lists(held: Mapping[str, NDArray[Any]]) -> list[NeighbourLists]:
    """The lists of all users, then those that leave out a fold."""
    apart = zip(held["held_out_nodes"], held["held_out_lifts"], held["held_out_totals"], strict=True)
    return [NeighbourLists(held["nodes"], held["lifts"], held["totals"]), *(NeighbourLists(*parts) for parts in apart)]


def set_lists(lists: NeighbourLists, counts: sparse.csr_matrix, shares: FloatArray, shape: Shape) -> None:
    """Set the neighbours of the leaves, and of every node above: those of all its leaves together."""
    totals, leaves = lists.totals.astype(float), np.arange(shape.capacity)
    for level in range(1, shape.depth + 1):
        offset, size = shape.level_offset(level), shape.level_size(level)
        ends = np.ones(shape.capacity), (shape.ancestors(leaves, level), leaves)
        gather = sparse.csr_matrix(ends, shape=(size, shape.capacity))
        among = sparse.diags(1 / np.maximum(gather @ totals, 1e-9)) @ (gather @ counts @ gather.T)
        columns, values = padded_rows(sparse.csr_matrix(among), lists.nodes.shape[1])
        lists.nodes[offset : offset + size] = columns
        lists.lifts[offset : offset + size] = values / np.maximum((gather @ shares)[columns], 1e-12)


def move_lists(lists: NeighbourLists, place: IndexArray, before: FloatArray, after: FloatArray, shape: Shape) -> None:
    """Move the lists of leaf l to `place[l]`; `before` and `after`: the leaves' shares then and now."""
    first, totals = shape.level_offset(shape.depth), lists.totals.astype(float)
    columns = lists.nodes[first:]
    rows, _ = np.nonzero(columns >= 0)
    near = columns[columns >= 0]
    among = lists.lifts[first:][columns >= 0] * before[near]
    counts = sparse.csr_matrix((among * totals[rows], (place[rows], place[near])), shape=(len(place), len(place)))
    lists.totals[:] = moved_leaves(totals, place)
    set_lists(lists, counts, after, shape)
