"""What surrounded the items of a history, counted: whom a similarity in few columns cannot tell apart, lists can.

Shape legend: B rows, L history length, E entries of histories, M nodes a row, V nodes of the tree, K neighbours of a
node, F folds of users.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from beamwood.kernels.din import Neighbours
from beamwood.kernels.lists import as_lists
from beamwood.models.similarity import PACE
from beamwood.tree.tree import Shape
from beamwood.types import FloatArray, IndexArray

__all__ = ["NodeNeighbours"]


class Lists(nn.Module):
    """Of each node the K nodes of its level that surrounded it most, `nodes` int32[V, K], and by how much they did so
    more often than they are frequent, `lifts` float32[V, K]: the share of all that surrounded the node over the share
    of all interactions; -1 and 0 where there are fewer.
    """

    nodes: Tensor
    lifts: Tensor
    totals: Tensor

    def __init__(self, shape: Shape, count: int, *, saved: bool) -> None:
        super().__init__()
        self.shape, self.count = shape, count
        nodes = torch.full((shape.num_nodes, count), -1, dtype=torch.int32)
        self.register_buffer("nodes", nodes, persistent=saved)
        self.register_buffer("lifts", torch.zeros(shape.num_nodes, count), persistent=saved)
        # How much surrounded each leaf, which says what it weighs in its parents.
        self.register_buffer("totals", torch.zeros(shape.capacity), persistent=saved)

    @torch.no_grad()
    def start(self, counts: sparse.csr_matrix, frequencies: FloatArray) -> None:
        """Set whom each leaf's surroundings held how often, [capacity, capacity]."""
        self.totals.copy_(torch.from_numpy(np.asarray(counts.sum(axis=1), np.float32).ravel()))
        self.set_leaves(counts, frequencies)

    @torch.no_grad()
    def set_leaves(self, counts: sparse.csr_matrix, frequencies: FloatArray) -> None:
        """The neighbours of the leaves, and of every node above: those of all its leaves together."""
        totals = self.totals.cpu().numpy().astype(float)
        for level in range(1, self.shape.depth + 1):
            offset, size = self.shape.level_offset(level), self.shape.level_size(level)
            below = np.arange(self.shape.capacity) // self.shape.leaves_below(level)
            ends = np.ones(self.shape.capacity), (below, np.arange(self.shape.capacity))
            gather = sparse.csr_matrix(ends, shape=(size, self.shape.capacity))
            shares = sparse.diags(1 / np.maximum(gather @ totals, 1e-9)) @ (gather @ counts @ gather.T)
            columns, values = as_lists(sparse.csr_matrix(shares), self.count)
            self.nodes[offset : offset + size] = torch.from_numpy(columns)
            lifts = values / np.maximum((gather @ frequencies)[columns], 1e-12)
            self.lifts[offset : offset + size] = torch.from_numpy(lifts.astype(np.float32))

    @torch.no_grad()
    def move(self, place: IndexArray, before: FloatArray, after: FloatArray) -> None:
        """Let what stood on leaf l, `place[l]` being 0 or more, stand there; of the counts what the lists hold is left.

        `before`, `after`: the leaves' frequencies then and now.
        """
        first, totals = self.shape.level_offset(self.shape.depth), self.totals.cpu().numpy().astype(float)
        columns = self.nodes[first:].cpu().numpy()
        rows, _ = np.nonzero(columns >= 0)
        near = columns[columns >= 0]
        shares = self.lifts[first:].cpu().numpy()[columns >= 0] * before[near]
        counts = sparse.csr_matrix((shares * totals[rows], (place[rows], place[near])), shape=(len(place), len(place)))
        self.totals.copy_(torch.from_numpy(moved(totals, place)))
        self.set_leaves(counts, after)


def moved(values: FloatArray, place: IndexArray) -> FloatArray:
    """`values` of leaves where their items stand now."""
    result = np.zeros_like(values)
    result[place[place >= 0]] = values[place >= 0]
    return result


class NodeNeighbours(nn.Module):
    """`gain log(1 + sum over l of place_l lift(a_l, n))`, a_l the ancestors of the history on the level of node n.

    With a gain of 1 and scores that are the logarithms of frequencies the whole is that of a mixture: of frequencies,
    and of what surrounded each entry of the history. Training learns `gain` and what the places weigh, softplus(20
    `places`) [L].

    `lists` are of all users; `held_out[fold]` leave out the users of a fold: who trains with lists that count his own
    steps learns to trust them more than they deserve. These are made anew with each start, and saved only where the
    tree may change meanwhile (`moves`).
    """

    frequencies: Tensor

    def __init__(self, shape: Shape, count: int, history_length: int, *, folds: int = 0, moves: bool = False) -> None:
        super().__init__()
        self.shape, self.count, self.folds = shape, count, folds
        self.lists = Lists(shape, count, saved=True)
        self.held_out = nn.ModuleList(Lists(shape, count, saved=moves) for _ in range(folds))
        # The share that each leaf's item has of all interactions.
        self.register_buffer("frequencies", torch.zeros(shape.capacity))
        self.places = nn.Parameter(torch.zeros(history_length))
        self.gain = nn.Parameter(torch.zeros(()))

    def weights(self) -> Tensor:
        """float32[L], what the places weigh, all above 0."""
        return functional.softplus(PACE * self.places)

    def forward(self, leaves_BL: Tensor, level: int, nodes_BM: Tensor | None, folds_B: Tensor | None = None) -> Tensor:
        """float32[B, M], of all nodes of the level where `nodes_BM` is None; leaves of the latest, -1 absent.

        `folds_B`: whose counts are left out for each row; None for nobody's.
        """
        offset, size = self.shape.level_offset(level), self.shape.level_size(level)
        history_BL = torch.div(leaves_BL, self.shape.leaves_below(level), rounding_mode="floor")
        # E entries of all histories together: most places of short ones are empty.
        row_E, place_E = torch.nonzero(history_BL >= 0, as_tuple=True)
        near_EK, lift_EK = self.listed(history_BL[row_E, place_E] + offset, None if folds_B is None else folds_B[row_E])
        # One number for a row and a node of the level; an absent neighbour, of lift 0, falls before its row.
        row_B1 = torch.arange(len(leaves_BL), device=leaves_BL.device)[:, None] * (size + 1) + 1
        at = listed = (row_B1[row_E] + near_EK).flatten()
        if nodes_BM is None:
            place_BM, count = row_B1 + torch.arange(size, device=leaves_BL.device), len(leaves_BL) * (size + 1)
            hits = torch.arange(len(listed), device=leaves_BL.device)
        else:
            # Of what is listed little is wanted, and a level may have hundreds of thousands of nodes.
            wanted, place_BM = torch.unique(row_B1 + nodes_BM, return_inverse=True)
            at, count = torch.searchsorted(wanted, listed).clamp(max=len(wanted) - 1), len(wanted)
            hits = torch.nonzero(wanted[at] == listed)[:, 0]
        with torch.autocast(self.lists.lifts.device.type, enabled=False):
            weights_E = self.weights()[-leaves_BL.shape[1] :][place_E]
            added = weights_E[hits // self.count] * lift_EK.flatten()[hits]
            sums = added.new_zeros(count).index_add(0, at[hits], added)
            return self.gain * torch.log1p(sums)[place_BM]

    def listed(self, nodes_E: Tensor, folds_E: Tensor | None) -> tuple[Tensor, Tensor]:
        """Whom the nodes list, and with which lifts, [E, K] both."""
        if folds_E is None:
            return self.lists.nodes[nodes_E], self.lists.lifts[nodes_E]
        nodes = self.lists.nodes.new_empty(len(nodes_E), self.count)
        lifts = self.lists.lifts.new_empty(len(nodes_E), self.count)
        for fold, own in enumerate(self.every()[1:]):
            of_fold = folds_E == fold
            nodes[of_fold], lifts[of_fold] = own.nodes[nodes_E[of_fold]], own.lifts[nodes_E[of_fold]]
        return nodes, lifts

    def every(self) -> list[Lists]:
        """The lists of all users, then those that leave out a fold."""
        return [part for part in (self.lists, *self.held_out) if isinstance(part, Lists)]

    @torch.no_grad()
    def start(self, counts: Iterable[sparse.csr_matrix], frequencies: FloatArray, places: Tensor, gain: float) -> None:
        """Set whom each leaf's surroundings held how often, [capacity, capacity], what the places weigh and the gain.

        `counts`: of all users, then without each fold's; `frequencies` [capacity] sum to 1, 0 where no item stands.
        """
        self.frequencies.copy_(torch.from_numpy(np.asarray(frequencies, np.float32)))
        for lists, own in zip(self.every(), counts, strict=True):
            lists.start(own, frequencies)
        # The weights of places long ago may be too small for a float.
        self.places.copy_(torch.log(torch.expm1(places.clamp(min=1e-30))) / PACE)
        self.gain.fill_(gain)

    @torch.no_grad()
    def move(self, old: IndexArray, new: IndexArray) -> None:
        """Let what stood on the leaves `old` stand on `new`."""
        place = np.full(self.shape.capacity, -1)
        place[old] = new
        before = self.frequencies.cpu().numpy().astype(float)
        after = moved(before, place)
        self.frequencies.copy_(torch.from_numpy(after))
        for lists in self.every():
            lists.move(place, before, after)

    def export(self) -> Neighbours:
        """Plain arrays for search, of the lists of all users."""
        parts = (self.lists.nodes, self.lists.lifts, self.weights(), self.gain.reshape(1))
        return Neighbours(*(part.detach().cpu().contiguous().numpy() for part in parts))
