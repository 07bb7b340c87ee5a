"""JTR: a sequence encoder and the node vectors of a tree of clusters, trained together.

Afterwards each item is assigned to the leaves that the queries for it reach.

    loss = the encoder's + sum over levels of - log softmax(encode(history) . nodes of the level)[the target's node]

Shape legend: X examples of a step, D width, V nodes, C leaves, K negatives of a node.
Source: Li et al., "Constructing Tree-based Index for Efficient and Effective Dense Retrieval" (JTR).
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.vectors.fit import fit_searched
from beamwood.fitting.vectors.jtr_settings import JtrConfig
from beamwood.fitting.vectors.sequence_start import ContinuedTask
from beamwood.retrieval.index.clusters import (
    CHILDREN,
    ClusterIndex,
    ClusterTree,
    grow_tree,
    reached_leaves,
    shared_leaves,
)
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.sampling.siblings import siblings_first
from beamwood.training.budget import Budget
from beamwood.training.trainable import Progress

__all__ = ["JtrTask", "fit_jtr"]

# Windows in a batch of the assignment, the most examples, and the share of the time left that they may take.
_WINDOWS, _MOST, _SHARE = 64, 500_000, 0.1


class JtrTask(ContinuedTask):
    """The training of the encoder, in which each target item is predicted, and each node on the path to its leaf."""

    config: JtrConfig
    _grown: tuple[ClusterTree, NDArray[np.int32]] | None = None

    def state(self) -> dict[str, Any]:
        """The tree and the items' leaves, which depend on the time that the initial item vectors had."""
        return {"num_children": self.tree.num_children, "leaf_N": self.leaf_N}

    def resume_from(self, state: dict[str, Any]) -> None:
        """Keep the tree: the trained node vectors are its."""
        self._grown = ClusterTree.of(state["num_children"]), state["leaf_N"]

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Build the model, and the tree on its initial item vectors; a resumed run has its tree."""
        super().prepare(rng, budget)
        self.seed, given = rng.initial_seed(), self.config.index
        vectors = self.model.output_weight.detach().numpy()
        if self._grown is None:
            generator, num_children = np.random.default_rng(self.seed), given.num_children or CHILDREN
            self.tree, centres, self.leaf_N = grow_tree(vectors, num_children, given.leaf_size, generator)
        else:
            self.tree, self.leaf_N = self._grown
            centres = np.zeros((len(self.tree.num_children), vectors.shape[1]), np.float32)
        self.nodes = nn.Parameter(torch.from_numpy(centres))
        # Registered, so that it is trained and saved with the model.
        self.model.register_parameter("nodes", self.nodes)
        of_tree = {
            "paths": self.tree.paths()[self.leaf_N],
            "siblings": self.tree.siblings(),
            "parents": self.tree.parents,
        }
        for name, array in of_tree.items():
            self.model.register_buffer(name, torch.from_numpy(array), persistent=False)

    def cross_entropy(self, queries_XD: Tensor, targets_X: Tensor, rng: torch.Generator) -> Tensor:
        """[X], the encoder's loss plus that of each node on the path to the target."""
        losses = super().cross_entropy(queries_XD, targets_X, rng)
        paths_XH = self.model.get_buffer("paths")[targets_X]
        for place, level in enumerate(self.tree.levels()):
            # A leaf on a higher level has no node here.
            there = torch.nonzero(paths_XH[:, place] >= 0)[:, 0]
            losses_there = self.level_loss(queries_XD[there], paths_XH[there, place], level, rng)
            losses = losses.index_add(0, there, losses_there)
        return losses

    def level_loss(self, queries_XD: Tensor, nodes_X: Tensor, level: tuple[int, int], rng: torch.Generator) -> Tensor:
        """[X], the softmax loss over a level, or over sampled negatives where these are fewer."""
        count = self.config.loss.level_negatives
        if count is None or count >= level[1] - level[0] - 1:
            logits = queries_XD @ self.nodes[level[0] : level[1]].T
            return functional.cross_entropy(logits, nodes_X - level[0], reduction="none")
        siblings, parents = self.model.get_buffer("siblings"), self.model.get_buffer("parents")
        others = siblings_first(nodes_X, siblings, parents, level, count, rng)
        candidates = torch.cat([nodes_X[:, None], others], dim=1)
        logits = torch.einsum("xd,xkd->xk", queries_XD, functional.embedding(candidates.clamp(min=0), self.nodes))
        logits = logits.masked_fill(candidates < 0, -torch.inf)
        return functional.cross_entropy(logits, torch.zeros_like(nodes_X), reduction="none")

    def estimate(self, searcher: VectorSearcher, budget: Budget) -> float:
        """The estimated seconds of `indexed`."""
        if not budget.limited:
            return 0.0
        self.arrivals(Budget(), most=1)
        began = budget.clock()
        num = len(self.arrivals(Budget(), most=1)[0])
        whole = (budget.clock() - began) * min(_MOST, len(self.histories.items)) / max(1, num)
        return min(whole, _SHARE * max(budget.left, 0.0))

    def indexed(self, searcher: VectorSearcher, budget: Budget) -> VectorSearcher:
        """The searcher with the tree as index; each item is in the leaves that the queries for it reach."""
        items, leaves = self.arrivals(budget, most=_MOST)
        buckets = shared_leaves(self.leaf_N, len(self.tree.leaves), items, leaves, self.config.index.num_homes)
        nodes = self.nodes.detach().numpy().copy()
        index = ClusterIndex.of(searcher.vectors, self.tree, nodes, buckets, self.config.index.num_probed)
        return VectorSearcher(searcher.queries, searcher.vectors, index)

    @torch.no_grad()
    def arrivals(self, budget: Budget, *, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of a target and one of its query's best leaves, from training windows of about `most` examples.

        As many as fit the time limit.
        """
        rng = torch.Generator().manual_seed(self.seed)
        rows = torch.randperm(len(self.users), generator=rng).numpy()
        leaves = self.nodes.detach().numpy()[self.tree.leaves]
        room = _SHARE * max(budget.left, 0.0)
        self.model.eval()
        found: list[tuple[np.ndarray, np.ndarray]] = []
        num, began = 0, budget.clock()
        for start in range(0, len(rows), _WINDOWS):
            batch = self.batch(rows[start : start + _WINDOWS], rng, Progress())
            real = batch.targets_BL >= 0
            arrived = reached_leaves(self.model(batch.items_BL)[real].numpy(), leaves)
            found.append((np.repeat(batch.targets_BL[real].numpy(), arrived.shape[1]), arrived.ravel()))
            num += len(arrived)
            if num >= most or budget.clock() - began > room:
                break
        items, at = zip(*found, strict=True)
        return np.concatenate(items), np.concatenate(at)


def fit_jtr(split: Split, config: JtrConfig, **options: Unpack[TrainOptions]) -> Retriever:
    """Train on `split.train`, keeping the weights that are best on `split.valid`, then assign items to leaves.

    Validation searches exactly, the retriever by the tree. Errors: `InputError` where no user has two interactions, and
    on a `start.folder` of another log, split or size.
    """
    task = JtrTask(split, config)
    # A fitted start is not validated: validation is exact, and says nothing of the nodes, which have to be trained.
    return fit_searched(task, split, config, method="jtr", later=task.estimate, finish=task.indexed, **options)
