"""A fixed similarity of what a history holds and a node, in more columns than a scorer's own embeddings have.

Shape legend: B rows, L history length, M nodes a row, V nodes of the tree, R columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamwood.kernels.din import Similarity
from beamwood.tree.tree import Shape

__all__ = ["PACE", "NodeSimilarity"]

PACE = 20.0
"""A step of Adam moves a weight of repeats, or of a place's neighbours, so many times as far as another: the former has
to come from 0 to where an item's likeness to itself is made up for."""


class NodeSimilarity(nn.Module):
    """`sum over l of place_l s(a_l) . s(n)`, a_l the ancestors of the history on the level of node n.

    `vectors` [V, R] hold s; training learns `places` [L] alone. What lies near what is remembered, not learned: on a
    log of many items with few interactions each, a hundred columns more tell them apart that no training could fill.
    On the last level a leaf gets `20 repeat_l` more for each place that holds it, `repeats` [L] learned from 0: an item
    lies nearest to itself, and whether it is wanted again is another matter in every log.
    """

    vectors: Tensor

    def __init__(self, shape: Shape, width: int, history_length: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("vectors", torch.zeros(shape.num_nodes, width))
        self.places = nn.Parameter(torch.zeros(history_length))
        self.repeats = nn.Parameter(torch.zeros(history_length))

    @property
    def width(self) -> int:
        """R."""
        return int(self.vectors.shape[1])

    def forward(self, leaves_BL: Tensor, level: int, nodes_BM: Tensor | None) -> Tensor:
        """float32[B, M], of all nodes of the level where `nodes_BM` is None; leaves of the latest, -1 absent."""
        offset, size = self.shape.level_offset(level), self.shape.level_size(level)
        history_BL = torch.div(leaves_BL, self.shape.leaves_below(level), rounding_mode="floor")
        with torch.autocast(self.vectors.device.type, enabled=False):
            places_BL = self.places[-leaves_BL.shape[1] :] * (history_BL >= 0)
            rows_BL = history_BL.clamp(min=0) + offset
            query_BR = torch.einsum("bl,blr->br", places_BL, functional.embedding(rows_BL, self.vectors))
            if nodes_BM is None:
                scores_BM = functional.linear(query_BR, self.vectors[offset : offset + size])
            else:
                vectors_BMR = functional.embedding(nodes_BM + offset, self.vectors)
                scores_BM = torch.bmm(vectors_BMR, query_BR[:, :, None]).squeeze(2)
            return scores_BM + self.of_repeats(leaves_BL, nodes_BM) if level == self.shape.depth else scores_BM

    def of_repeats(self, leaves_BL: Tensor, nodes_BM: Tensor | None) -> Tensor:
        """float32[B, M], what leaves get for the places of the history that hold them."""
        weights_BL = PACE * self.repeats[-leaves_BL.shape[1] :] * (leaves_BL >= 0)
        if nodes_BM is None:
            empty = weights_BL.new_zeros(len(leaves_BL), self.shape.capacity)
            return empty.scatter_add(1, leaves_BL.clamp(min=0), weights_BL)
        same_BML = nodes_BM[:, :, None] == leaves_BL[:, None, :]
        return torch.bmm(same_BML.to(weights_BL.dtype), weights_BL[:, :, None]).squeeze(2)

    @torch.no_grad()
    def start(self, leaf_vectors: Tensor, places: Tensor) -> None:
        """Set what the leaves' vectors are, [capacity, R], 0 where there is no item, and what the places weigh."""
        self.set_leaves(leaf_vectors)
        self.places.copy_(places)

    @torch.no_grad()
    def start_repeats(self, weight: float) -> None:
        """Let every place that holds a leaf add `weight` to its score."""
        self.repeats.fill_(weight / PACE)

    @torch.no_grad()
    def add_to_repeats(self, weight: float) -> None:
        """Let every place that holds a leaf add `weight` more to its score."""
        self.repeats.add_(weight / PACE)

    def leaves(self) -> Tensor:
        """[capacity, R], the vectors of the last level."""
        return self.vectors[self.shape.level_offset(self.shape.depth) :]

    @torch.no_grad()
    def set_leaves(self, leaf_vectors: Tensor) -> None:
        """The vectors of the leaves, and of every node above: where the sum of its leaves' points."""
        for level in range(1, self.shape.depth + 1):
            offset, size = self.shape.level_offset(level), self.shape.level_size(level)
            sums = leaf_vectors.reshape(size, -1, leaf_vectors.shape[1]).sum(dim=1)
            self.vectors[offset : offset + size] = functional.normalize(sums, dim=1)

    def export(self) -> Similarity:
        """Plain arrays for search."""
        parts = (self.vectors, self.places.clone(), PACE * self.repeats)
        return Similarity(*(part.detach().cpu().contiguous().numpy() for part in parts))
