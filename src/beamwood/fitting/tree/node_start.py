"""Where a tree and its scorer start when nothing is given: both from what follows what in the training histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.vectors.item_start import directions, surroundings, transition_vectors
from beamwood.models.din import DinScorer
from beamwood.models.din_start import FIRST_FREE, start_as_similarity, start_neighbours
from beamwood.tree import Tree
from beamwood.types import FloatArray, IndexArray

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

    def __call__(self, width: int) -> FloatArray:
        """float32[N, width]."""
        if self._made is None:
            own = self.config.model.width - FIRST_FREE
            columns = max(TREE_WIDTH, own, self.config.similarity_columns(self.train.num_items))
            self._made = transition_vectors(self.train, columns, self.seed)
        return directions(self._made[:, :width])

    def start(self, scorer: DinScorer, tree: Tree, folds: IndexArray) -> None:
        """Let the scorer start as the similarity of history and node.

        A node lies where the sum of its items' vectors points, and is as frequent as they are together. `folds`
        [users]: the fold of each user, for neighbours that leave it out.
        """
        shape = tree.shape
        of_leaf = self.vectors_by_leaf(tree, scorer.nodes.embedding_dim - FIRST_FREE)
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
            None
            if scorer.similarity is None
            else torch.from_numpy(self.vectors_by_leaf(tree, scorer.similarity.width)),
        )
        if scorer.neighbours is not None:
            start_neighbours(scorer, self.counts_by_leaf(tree, folds, scorer.neighbours.folds), smoothed(taken, tree))

    def counts_by_leaf(self, tree: Tree, folds: IndexArray, num_folds: int) -> Iterator[sparse.csr_matrix]:
        """How often leaves were within ten steps of others, [capacity, capacity]: of all users, then without each fold.

        All steps count alike: what a session holds is near all of it, and validation prefers it.
        """
        every = range(num_folds) if num_folds else (0,)
        parts = [surroundings(self.train, of_users=folds == fold if num_folds else None, power=0) for fold in every]
        parts = [part.astype(np.float32) for part in parts]
        yield by_leaf(added(parts), tree)
        # One at a time, as each may be hundreds of MiB, and added anew: what is taken from a sum of roots leaves rests.
        for fold in range(num_folds):
            yield by_leaf(added(parts[:fold] + parts[fold + 1 :]), tree)

    def vectors_by_leaf(self, tree: Tree, width: int) -> FloatArray:
        """float32[capacity, width], 0 where there is no item."""
        vectors = np.zeros((tree.shape.capacity, width), np.float32)
        vectors[tree.leaf_of_item] = self(width)
        return vectors


def added(parts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
    """The sum of matrices of one shape."""
    return sum(parts[1:], parts[0])


def smoothed(taken: FloatArray, tree: Tree) -> FloatArray:
    """[capacity]: each leaf's share of all interactions, with one more for every item; 0 where no item stands."""
    more = taken + (tree.item_of_leaf >= 0)
    result: FloatArray = more / more.sum()
    return result


def by_leaf(counts: sparse.csr_matrix, tree: Tree) -> sparse.csr_matrix:
    """[capacity, capacity], `counts` of items between the leaves where they stand."""
    counts.eliminate_zeros()
    own, place = counts.tocoo(), tree.leaf_of_item
    return sparse.csr_matrix((own.data, (place[own.row], place[own.col])), shape=2 * (tree.shape.capacity,))
