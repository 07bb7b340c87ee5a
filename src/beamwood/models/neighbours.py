"""What surrounded the items of a history, counted: whom a similarity in few columns cannot tell apart, lists can.

Shape legend: B rows, L history length, M nodes a row, V nodes of the tree, K neighbours of a node.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from beamwood.kernels.din import Neighbours
from beamwood.kernels.lists import as_lists
from beamwood.models.similarity import PACE
from beamwood.tree.tree import Shape
from beamwood.types import FloatArray, IndexArray

__all__ = ["NodeNeighbours"]


class NodeNeighbours(nn.Module):
    """`sum over l of place_l strength(a_l, n)`, a_l the ancestors of the history on the level of node n.

    `nodes` int32[V, K] and `strengths` float32[V, K] are each node's neighbours on its level and the root of the share
    that each has of all that surrounded it; -1 and 0 where there are fewer. Training learns `places` [L] alone.
    """

    nodes: Tensor
    strengths: Tensor
    totals: Tensor

    def __init__(self, shape: Shape, count: int, history_length: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("nodes", torch.full((shape.num_nodes, count), -1, dtype=torch.int32))
        self.register_buffer("strengths", torch.zeros(shape.num_nodes, count))
        # How much surrounded each leaf, which says what it weighs in its parents.
        self.register_buffer("totals", torch.zeros(shape.capacity))
        self.places = nn.Parameter(torch.zeros(history_length))

    @property
    def count(self) -> int:
        """K."""
        return int(self.nodes.shape[1])

    def forward(self, leaves_BL: Tensor, level: int, nodes_BM: Tensor | None) -> Tensor:
        """float32[B, M], of all nodes of the level where `nodes_BM` is None; leaves of the history, -1 absent."""
        offset, size = self.shape.level_offset(level), self.shape.level_size(level)
        history_BL = torch.div(leaves_BL, self.shape.leaves_below(level), rounding_mode="floor")
        rows_BL = history_BL.clamp(min=0) + offset
        # One number for a row and a node of the level; an absent neighbour, of strength 0, falls before its row.
        row_B1 = torch.arange(len(leaves_BL), device=leaves_BL.device)[:, None] * (size + 1) + 1
        at = listed = (row_B1[:, :, None] + self.nodes[rows_BL]).flatten()
        if nodes_BM is None:
            place_BM, count = row_B1 + torch.arange(size, device=leaves_BL.device), len(leaves_BL) * (size + 1)
            hits = torch.arange(len(listed), device=leaves_BL.device)
        else:
            # Of what is listed little is wanted, and a level may have hundreds of thousands of nodes.
            wanted, place_BM = torch.unique(row_B1 + nodes_BM, return_inverse=True)
            at, count = torch.searchsorted(wanted, listed).clamp(max=len(wanted) - 1), len(wanted)
            hits = torch.nonzero(wanted[at] == listed)[:, 0]
        entries, which = hits // self.count, hits % self.count
        with torch.autocast(self.strengths.device.type, enabled=False):
            places_E = (PACE * self.places * (history_BL >= 0)).flatten()
            added = places_E[entries] * self.strengths[rows_BL.flatten()[entries], which]
            return added.new_zeros(count).index_add(0, at[hits], added)[place_BM]

    @torch.no_grad()
    def start(self, counts: sparse.csr_matrix, places: Tensor) -> None:
        """Set whom each leaf's surroundings held how often, [capacity, capacity], and what the places weigh."""
        self.totals.copy_(torch.from_numpy(np.asarray(counts.sum(axis=1), np.float32).ravel()))
        self.set_leaves(counts)
        self.places.copy_(places / PACE)

    @torch.no_grad()
    def set_leaves(self, counts: sparse.csr_matrix) -> None:
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
            self.strengths[offset : offset + size] = torch.from_numpy(np.sqrt(values))

    @torch.no_grad()
    def move(self, old: IndexArray, new: IndexArray) -> None:
        """Let what stood on the leaves `old` stand on `new`; of the counts what the lists hold is left."""
        first, totals = self.shape.level_offset(self.shape.depth), self.totals.cpu().numpy()
        place = np.full(self.shape.capacity, -1)
        place[old] = new
        columns = self.nodes[first:].cpu().numpy()
        rows, _ = np.nonzero(columns >= 0)
        near = columns[columns >= 0]
        shares: FloatArray = self.strengths[first:].cpu().numpy()[columns >= 0].astype(float) ** 2
        counts = sparse.csr_matrix((shares * totals[rows], (place[rows], place[near])), shape=(len(place), len(place)))
        moved = np.zeros_like(totals)
        moved[new] = totals[old]
        self.totals.copy_(torch.from_numpy(moved))
        self.set_leaves(counts)

    def export(self) -> Neighbours:
        """Plain arrays for search."""
        parts = (self.nodes, self.strengths, PACE * self.places)
        return Neighbours(*(part.detach().cpu().contiguous().numpy() for part in parts))
