"""Learning the tree anew while its model is trained: what moves, by which rule, and what becomes of the embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from beamwood.errors import InputError
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.task import TreeTask
from beamwood.training.tree_update import capped_instances, update_tree
from beamwood.tree import Tree, kmeans_tree

__all__ = ["TreeRenewal"]

# An update scores at most so many nodes at once for each instance, unless `stride` says otherwise.
_MOST_CANDIDATES = 128


class TreeRenewal:
    """`config.tree.updates` updates, spread evenly over a run: the i-th after i / (updates + 1) of it.

    Where updates themselves take long, those to come are spread evenly over what then remains.

    By `config.tree.learner`: "softmax" (DTR, equation 30), "binary" (JTM, equation 7), "kmeans" of leaf embeddings
    (TDM).
    """

    def __init__(self, task: TreeTask, config: TreeConfig, *, seed: int) -> None:
        if task.tree.shape.depth == 1:
            raise InputError(
                "tree.updates needs a tree of two levels or more; set tree.updates=0 or lower tree.branching"
            )
        self.task, self.config, self.seed = task, config, seed
        self.restarts = config.tree.after_update == "restart"
        self._before: tuple[dict[str, torch.Tensor], dict[Any, Any]] | None = None

    def due(self, fraction: float) -> bool:
        task = self.task
        if task.renewed_at is None:
            task.renewed_at = fraction
        left = self.config.tree.updates - task.renewals
        return left > 0 and fraction >= task.renewed_at + (1 - task.renewed_at) / (left + 1)

    def propose(self) -> Tree:
        """The tree that the model, as it is now, wants."""
        task, config, tree = self.task, self.config, self.task.tree
        rng = np.random.default_rng([self.seed, task.renewals])
        if config.tree.learner == "kmeans":
            return kmeans_tree(task.model.leaf_vectors(), rng, shape=tree.shape)
        examples = task.examples
        targets = examples.targets(np.arange(len(examples)))
        rows = capped_instances(targets, config.tree.max_instances, rng)
        length = sum(config.model.windows)

        def histories(instances: np.ndarray) -> np.ndarray:
            padded: np.ndarray = examples.histories(rows[instances]).padded(length)
            return padded

        stride = config.tree.stride or max(
            1, next(d for d in range(9, -1, -1) if d == 0 or tree.shape.branching**d <= _MOST_CANDIDATES)
        )
        return update_tree(
            task.model.scorer,
            tree,
            targets[rows],
            histories,
            stride=stride,
            likelihood="binary" if config.tree.learner == "binary" else "softmax",
            num_instances=np.bincount(targets, minlength=tree.num_items),
            folds_I=task.folds_of(rows) if task.leaves_out else None,
        )

    @torch.no_grad()
    def apply(self, proposal: Tree) -> dict[str, float]:
        """Stand the items where the proposal has them."""
        task, old = self.task, self.task.tree
        optimizer = task.optimizers[0]
        weight = task.model.scorer.nodes.weight
        self._before = (
            {name: tensor.clone() for name, tensor in task.model.state_dict().items()},
            {name: value.clone() for name, value in optimizer.state.get(weight, {}).items()},
        )
        if self.config.tree.embeddings == "item":
            first = task.model.scorer.shape.level_offset(task.model.scorer.shape.depth)
            source = np.arange(old.shape.capacity)
            # Rows of leaves that become empty keep what nobody claims.
            free = np.setdiff1d(np.arange(old.shape.capacity), old.leaf_of_item)
            source[proposal.leaf_of_item] = old.leaf_of_item
            source[np.setdiff1d(np.arange(old.shape.capacity), proposal.leaf_of_item)] = free
            moved = first + torch.from_numpy(source.astype(np.int64))
            for rows in [
                weight.data,
                *(v for v in optimizer.state.get(weight, {}).values() if v.shape == weight.shape),
            ]:
                rows[first:] = rows[moved]
        moves = {"moved_items": float(np.mean(old.leaf_of_item != proposal.leaf_of_item))}
        middle = task.model.scorer.shape.leaves_below(max(1, task.model.scorer.shape.depth - 1))
        moves["moved_parents"] = float(np.mean(old.leaf_of_item // middle != proposal.leaf_of_item // middle))
        task.model.replace_tree(proposal)
        task.renewals, task.renewed_at = task.renewals + 1, None
        return moves | {"renewal": float(task.renewals)}

    def keeps(self, before: float, after: float) -> bool:
        """Every update, or with `rollback` only those that do not lower the metric."""
        return after >= before or not self.config.tree.rollback

    def take_back(self) -> None:
        """Put weights, optimiser state and tree back as they were before the last `apply`."""
        assert self._before is not None
        self.task.taken_back += 1
        weights, state = self._before
        self.task.model.load_state_dict(weights)
        for name, value in state.items():
            self.task.optimizers[0].state[self.task.model.scorer.nodes.weight][name] = value
