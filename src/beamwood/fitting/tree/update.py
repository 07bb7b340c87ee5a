"""Updates of a tree during training: the new positions of its items, and of their embeddings."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.data.examples import Examples
from beamwood.errors import InputError
from beamwood.fitting.tree.config import TreeConfig
from beamwood.models.tree_model import TreeModel
from beamwood.training.budget import Budget
from beamwood.training.tree_update import TreeLearner, capped_instances
from beamwood.tree import Shape, Tree, kmeans_tree
from beamwood.tree.tree import EMPTY
from beamwood.types import FloatArray, IndexArray

__all__ = ["TreeUpdate"]

# The items of the timed k-means, from which the time for all items is extrapolated.
_TIMED_ITEMS = 4096


class TreeUpdate:
    """Updates of a model's tree, by `config.tree.learner`: "softmax" (DTR, equation 30), "binary" (JTM, equation 7),
    "kmeans" of leaf embeddings (TDM).

    `folds` int64[users]: the fold of each user, where a term of the scorer has counts by fold.
    """

    def __init__(
        self, model: TreeModel, examples: Examples, config: TreeConfig, *, folds: IndexArray | None, seed: int
    ) -> None:
        settings = config.tree
        if model.tree.shape.depth == 1:
            raise InputError(
                "tree.updates needs a tree of two levels or more; set tree.updates=0 or lower tree.branching"
            )
        self.model, self.examples, self.folds = model, examples, folds
        self.settings, self.length, self.seed = settings, sum(config.model.windows), seed
        self.times, self.restarts = settings.updates, settings.after_update == "restart"
        self.keeps_worse = not settings.rollback
        self._before: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None

    def estimate(self) -> float:
        """The estimated seconds of an update, from a timed sample."""
        tree, rng = self.model.tree, np.random.default_rng(self.seed)
        if self.settings.learner == "kmeans":
            return _kmeans_seconds(self.model.leaf_vectors(), tree.shape)
        return self._learner(self._targets(), rng).estimate()

    def propose(self, number: int, budget: Budget) -> Tree | None:
        """The tree learned from the current model; None if `budget` ran out."""
        tree, rng = self.model.tree, np.random.default_rng([self.seed, number])
        if self.settings.learner == "kmeans":
            return kmeans_tree(self.model.leaf_vectors(), rng, shape=tree.shape)
        targets = self._targets()
        return self._learner(targets, rng).learn(np.bincount(targets, minlength=tree.num_items), budget)

    def _targets(self) -> IndexArray:
        """int[E], the item that each training example has as its target."""
        return self.examples.targets(np.arange(len(self.examples)))

    def _learner(self, targets: IndexArray, rng: np.random.Generator) -> TreeLearner:
        """The learner, with at most `tree.max_instances` training examples of each item."""
        settings, examples = self.settings, self.examples
        assert settings.stride is not None, "a plan has it"
        rows = capped_instances(targets, settings.max_instances, rng)

        def histories(instances: NDArray[np.int64]) -> NDArray[np.int32]:
            return examples.histories(rows[instances]).padded(self.length)

        return TreeLearner(
            self.model.scorer,
            self.model.tree,
            targets[rows],
            histories,
            stride=settings.stride,
            likelihood="binary" if settings.learner == "binary" else "softmax",
            folds_I=None if self.folds is None else self.folds[examples.users[rows]],
        )

    @torch.no_grad()
    def apply(self, proposal: Tree, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
        """Replace the tree by the proposal; embeddings and moments move with their items where `tree.embeddings` says
        so.
        """
        model, old = self.model, self.model.tree
        weight, shape = model.scorer.nodes.weight, model.scorer.shape
        moments = optimizers[0].state.get(weight, {})
        self._before = (
            {name: tensor.clone() for name, tensor in model.state_dict().items()},
            {name: value.clone() for name, value in moments.items()},
        )
        if self.settings.embeddings == "item":
            first, source = shape.level_offset(shape.depth), np.arange(shape.capacity)
            source[proposal.leaf_of_item] = old.leaf_of_item
            # Leaves that become empty get the rows of leaves that were empty.
            source[proposal.item_of_leaf == EMPTY] = np.flatnonzero(old.item_of_leaf == EMPTY)
            moved = first + torch.from_numpy(source.astype(np.int64))
            for rows in [weight.data, *(value for value in moments.values() if value.shape == weight.shape)]:
                rows[first:] = rows[moved]
        middle = shape.leaves_below(max(1, shape.depth - 1))
        model.replace_tree(proposal)
        return {
            "moved_items": float(np.mean(old.leaf_of_item != proposal.leaf_of_item)),
            "moved_parents": float(np.mean(old.leaf_of_item // middle != proposal.leaf_of_item // middle)),
        }

    def undo(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Restore weights, optimiser state and tree as they were before the last `apply`."""
        assert self._before is not None
        weights, moments = self._before
        self.model.load_state_dict(weights)
        for name, value in moments.items():
            optimizers[0].state[self.model.scorer.nodes.weight][name] = value


def _kmeans_seconds(vectors_ND: FloatArray, shape: Shape) -> float:
    """The estimated seconds of `kmeans_tree`, from the time for a part of the items."""
    some = vectors_ND[:_TIMED_ITEMS]
    started = time.perf_counter()
    kmeans_tree(some, np.random.default_rng(0), branching=shape.branching)
    levels = np.log2(max(len(vectors_ND), 2)) / np.log2(max(len(some), 2))
    return float((time.perf_counter() - started) * levels * len(vectors_ND) / len(some))
