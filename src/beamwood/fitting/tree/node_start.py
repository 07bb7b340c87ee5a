"""The default initialisation of a tree and its scorer: from transition counts of the training histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.fitting.neighbour_counts import neighbour_counts
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.terms import terms_of
from beamwood.fitting.vectors.item_start import least_vector_seconds, transition_vectors, unit_vectors
from beamwood.kernels.terms import Term
from beamwood.models.din import DinScorer
from beamwood.models.din_start import FIRST_FREE, start_as_similarity
from beamwood.training.budget import Budget, Clock
from beamwood.tree import Tree
from beamwood.types import FloatArray, IndexArray, ItemLists

__all__ = ["TREE_WIDTH", "ItemVectors", "TreeCounts", "start_scorer"]

TREE_WIDTH = 64
"""The width of the vectors from which a tree is built."""


@dataclass
class ItemVectors:
    """The transition vectors of all items, computed once and used for both tree and scorer.

    `terms`: of the scorer, besides those of `config`; `budget`: the time limit.
    """

    train: Dataset
    config: TreeConfig
    seed: int
    terms: Sequence[Term]
    budget: Budget
    _vectors: FloatArray | None = None

    def __call__(self, width: int) -> FloatArray:
        """float32[N, width]."""
        if self._vectors is None:
            self._vectors = transition_vectors(self.train, self._columns, self.seed, self.budget)
        return unit_vectors(self._vectors[:, :width])

    def least_seconds(self, clock: Clock) -> float:
        """The estimated seconds that they take at least; 0 where the settings use none."""
        config = self.config
        if "transitions" not in (config.tree.start, config.start.scores):
            return 0.0
        return least_vector_seconds(self.train, self._columns, self.seed, clock)

    @property
    def _columns(self) -> int:
        own = self.config.model.width - FIRST_FREE
        return max(TREE_WIDTH, own, *(term.width for term in terms_of(self.config, self.terms)))


@dataclass(frozen=True)
class TreeCounts:
    """Counts of the training histories by leaf of a tree, from which the terms of its scorer are initialised.

    `folds` [users]: the fold of each user, for terms with counts by fold. See `kernels.terms.Counted`.
    """

    vectors: ItemVectors
    tree: Tree
    folds: IndexArray

    @property
    def histories(self) -> ItemLists:
        """The training histories."""
        return self.vectors.train.histories

    @property
    def item_counts(self) -> NDArray[np.int64]:
        """int64[N], the interactions of each item."""
        return self.vectors.train.item_counts

    def leaf_vectors(self, width: int) -> FloatArray:
        """[capacity, width], the vector of each leaf's item; zeros for an empty leaf."""
        vectors = np.zeros((self.tree.shape.capacity, width), np.float32)
        vectors[self.tree.leaf_of_item] = self.vectors(width)
        return vectors

    def leaf_shares(self) -> FloatArray:
        """[capacity], the share of each leaf's item in all interactions, with one added for each item; sums to 1."""
        more = self.leaf_counts() + (self.tree.item_of_leaf >= 0)
        result: FloatArray = more / more.sum()
        return result

    def leaf_counts(self) -> FloatArray:
        """[capacity], the interactions of each leaf's item."""
        counts = np.zeros(self.tree.shape.capacity)
        counts[self.tree.leaf_of_item] = self.item_counts
        return counts

    def neighbour_matrices(self, num_folds: int) -> Iterator[sparse.csr_matrix]:
        """Neighbour counts by leaf: of all users, then without each fold in turn.

        Their kind is `model.neighbours`, or "around" where that is None.
        """
        every, train = range(num_folds) if num_folds else (0,), self.vectors.train
        kind, budget = self.vectors.config.model.neighbours or "around", self.vectors.budget
        parts = []
        for fold in every:
            whose = self.folds == fold if num_folds else None
            parts.append(neighbour_counts(train, kind, of_users=whose, budget=budget).astype(np.float32))
        began = budget.clock()
        yield _by_leaf(_sum_of_matrices(parts), self.tree)
        # One at a time, as each may take hundreds of MiB. They are not subtracted from the whole, which would leave
        # rounding errors.
        for fold in range(num_folds):
            budget.require_rest(fold + 1, num_folds + 1, began)
            yield _by_leaf(_sum_of_matrices(parts[:fold] + parts[fold + 1 :]), self.tree)


def start_scorer(scorer: DinScorer, counted: TreeCounts, *, network: bool = True) -> None:
    """Initialise the scorer as the similarity of history and node; without `network` only its terms, from counts.

    The vector of a node is the normalised sum of its items' vectors, and its frequency the sum of theirs.
    """
    if network:
        shape, taken = counted.tree.shape, counted.leaf_counts()
        of_leaf = counted.leaf_vectors(scorer.nodes.embedding_dim - FIRST_FREE)
        levels, frequencies = [], []
        for level in range(1, shape.depth + 1):
            size = shape.level_size(level)
            levels.append(unit_vectors(of_leaf.reshape(size, -1, of_leaf.shape[1]).sum(axis=1)))
            frequency = np.log1p(taken.reshape(size, -1).sum(axis=1))
            frequencies.append(frequency - frequency.mean())
        start_as_similarity(
            scorer,
            torch.from_numpy(np.concatenate(levels)),
            torch.from_numpy(np.concatenate(frequencies).astype(np.float32)),
        )
    for term in scorer.held_terms().values():
        term.start(counted)


def _sum_of_matrices(parts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
    """The sum of matrices of one shape."""
    return sum(parts[1:], parts[0])


def _by_leaf(counts: sparse.csr_matrix, tree: Tree) -> sparse.csr_matrix:
    """[capacity, capacity], `counts` of items reordered to their leaves."""
    counts.eliminate_zeros()
    own, place = counts.tocoo(), tree.leaf_of_item
    return sparse.csr_matrix((own.data, (place[own.row], place[own.col])), shape=2 * (tree.shape.capacity,))
