"""Where a tree and its scorer start when nothing is given: both from what follows what in the training histories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.methods.item_start import directions, surroundings, transition_vectors
from beamwood.methods.tree_config import TreeConfig
from beamwood.models.din import DinScorer
from beamwood.models.din_start import FIRST_FREE, start_as_similarity, start_neighbours
from beamwood.tree import Tree
from beamwood.types import FloatArray

__all__ = ["TREE_WIDTH", "ItemVectors"]

TREE_WIDTH = 64
"""Columns that a tree is made from."""


@dataclass
class ItemVectors:
    """The transition vectors of a catalogue, made once for the tree and the scorer, when one of them first asks."""

    train: Dataset
    config: TreeConfig
    seed: int
    _made: FloatArray | None = None
    _counts: sparse.csr_matrix | None = None

    def __call__(self, width: int) -> FloatArray:
        """float32[N, width]."""
        if self._made is None:
            own = self.config.width - FIRST_FREE
            columns = max(TREE_WIDTH, own, self.config.similarity_columns(self.train.num_items))
            self._counts = surroundings(self.train)
            self._made = transition_vectors(self.train, columns, self.seed, self._counts)
        return directions(self._made[:, :width])

    def start(self, scorer: DinScorer, tree: Tree) -> None:
        """Let the scorer start as the similarity of history and node.

        A node lies where the sum of its items' vectors points, and is as frequent as they are together.
        """
        shape = tree.shape
        of_leaf = self.by_leaf(tree, scorer.nodes.embedding_dim - FIRST_FREE)
        taken = np.zeros(shape.capacity)
        taken[tree.leaf_of_item] = self.train.item_counts
        levels, frequencies = [], []
        for level in range(1, shape.depth + 1):
            size = shape.level_size(level)
            levels.append(directions(of_leaf.reshape(size, -1, of_leaf.shape[1]).sum(axis=1)))
            frequency = np.log1p(taken.reshape(size, -1).sum(axis=1))
            frequencies.append(frequency - frequency.mean())
        start_as_similarity(
            scorer,
            torch.from_numpy(np.concatenate(levels)),
            torch.from_numpy(np.concatenate(frequencies).astype(np.float32)),
            None if scorer.similarity is None else torch.from_numpy(self.by_leaf(tree, scorer.similarity.width)),
        )
        if scorer.neighbours is not None:
            assert self._counts is not None
            near = self._counts.tocoo()
            place = tree.leaf_of_item.astype(np.int64)
            of_leaf_counts = sparse.csr_matrix(
                (near.data, (place[near.row], place[near.col])), shape=2 * (shape.capacity,)
            )
            start_neighbours(scorer, of_leaf_counts)

    def by_leaf(self, tree: Tree, width: int) -> FloatArray:
        """float32[capacity, width], 0 where there is no item."""
        vectors = np.zeros((tree.shape.capacity, width), np.float32)
        vectors[tree.leaf_of_item] = self(width)
        return vectors
