"""The training task of all tree retrievers; its objective distinguishes them.

Shape legend: B histories, L history length, T targets a history, M nodes drawn a level, H levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from beamwood.data.examples import WINDOWS_OF_USERS, Examples
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.start_cache import cached, cached_values
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.initial_scorer import initialise_scorer, start_key
from beamwood.fitting.tree.node_start import ItemVectors, TreeCounts
from beamwood.fitting.tree.objective import ScoredLevel, TreeBatch, TreeObjective, scored_levels
from beamwood.fitting.tree.scorer import random_scorer
from beamwood.fitting.tree.search_time import estimated_search_seconds
from beamwood.fitting.tree.start import start_tree, tree_seconds
from beamwood.fitting.tree.terms import FOLDS, terms_of
from beamwood.fitting.tree.update import TreeUpdate
from beamwood.kernels.terms import Term
from beamwood.models.tree_model import TreeModel
from beamwood.ragged import indptr_of
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.steps import step
from beamwood.training.budget import Budget, Clock
from beamwood.training.lazy_adam import sparse_gradients
from beamwood.training.level_labels import estimated_labels
from beamwood.training.optimisers import Optimiser, ParameterGroup
from beamwood.training.precision import has_bfloat16
from beamwood.training.trainable import Progress
from beamwood.tree import Tree

__all__ = ["TreeTask"]


class TreeTask(SearchedTask[TreeBatch]):
    """The training of a tree's scorer, whose loss sums or averages those of all levels.

    `terms`: added to the score besides those of `config`. Errors: no user has a history long enough.
    """

    model: TreeModel
    objective: TreeObjective

    def __init__(
        self,
        split: Split,
        config: TreeConfig,
        make_objective: Callable[[Tree], TreeObjective],
        *,
        terms: Sequence[Term] = (),
    ) -> None:
        self.split, self.config, self.make_objective, self.terms = split, config, make_objective, terms
        histories = split.train.histories
        self.examples: Examples = WINDOWS_OF_USERS[config.examples.window](
            histories, length=sum(config.model.windows) + 1, min_history=config.examples.min_history
        )
        if len(self.examples) == 0:
            if config.examples.min_history == 1:
                raise InputError("no user has two interactions to train on; give a longer log")
            raise InputError(
                f"no user has more than examples.min_history={config.examples.min_history} interactions to train on; "
                "lower it with --set examples.min_history=1 or give a longer log"
            )
        optimiser = config.optimiser
        # On a GPU the time of a step is that of kernel launches, which bfloat16 does not reduce.
        has = config.loop.device == "cpu" and has_bfloat16()
        self.bf16 = has if optimiser.bf16 is None else optimiser.bf16
        # By user with examples: the first of them and their number.
        counts = np.bincount(self.examples.users)
        self._first, self._count = indptr_of(counts)[:-1][counts > 0], counts[counts > 0]
        self.num_examples = len(self._first) if config.examples.of == "users" else len(self.examples)
        self._items = histories.items
        self.seen_start = 0.0

    @property
    def tree(self) -> Tree:
        """The current tree."""
        return self.model.tree

    @property
    def uses_folds(self) -> bool:
        """Whether a term has counts by fold, so that a user is trained without those of the user's own fold."""
        return any(module.term.folds for module in self.model.scorer.held_terms().values())

    def min_seconds(self, clock: Clock) -> float:
        """The seconds of the searches before a model can be returned, estimated with a scorer of random weights."""

        def searcher(tree: Tree) -> TreeSearcher:
            terms, rng = terms_of(self.config, self.terms), torch.Generator().manual_seed(0)
            weights = random_scorer(tree.shape, self.config, terms, rng).export()
            beam_width, threads = self.config.tree.beam_width, torch.get_num_threads()
            return TreeSearcher(weights, tree, beam_width=beam_width, threads=threads)

        return estimated_search_seconds(self.split, self.config, searcher, clock)

    def start_seconds(self, seed: int, clock: Clock) -> float:
        """The seconds of a large initial tree and its vectors, unless it is cached."""
        train, config = self.split.train, self.config
        if _tree_key(start_key(config, self.terms, seed)) in cached_values(train):
            return 0.0
        vectors = ItemVectors(train, config, seed, self.terms, Budget())
        return tree_seconds(config, train.num_items, clock) + vectors.least_seconds(clock)

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Build the initial tree and the objective (which may train an estimator), and initialise the scorer.

        Errors: `InputError` where `tree.start` lacks an input.
        """
        seed, train, config = rng.initial_seed(), self.split.train, self.config
        vectors, key = ItemVectors(train, config, seed, self.terms, budget), start_key(config, self.terms, seed)

        def first_tree() -> Tree:
            with step("building the first tree"):
                return start_tree(self.split, config, np.random.default_rng(seed), vectors, budget)

        tree = first_tree() if key is None else cached(train, _tree_key(key), first_tree, budget)
        self.objective = self.make_objective(tree)
        if self.objective.labels in ("rectified", "one-step") and self.objective.estimator is None:
            raise InputError(
                f"labels='{self.objective.labels}' needs an estimator; set loss.estimator to a method or a folder"
            )
        self.folds = np.random.default_rng(seed).integers(0, FOLDS, len(train.histories))
        scorer = random_scorer(tree.shape, config, terms_of(config, self.terms), rng)
        sparse_gradients(scorer, config.optimiser.embeddings)
        self.model, self.counts = TreeModel(scorer, tree), TreeCounts(vectors, tree, self.folds)
        # A catalogue of one level has no tree to learn, which is an error only where the settings ask for updates.
        if config.tree.updates and (tree.shape.depth > 1 or "tree.updates" in config.given):
            self.update = TreeUpdate(
                self.model, self.examples, config, folds=self.folds if self.uses_folds else None, seed=seed
            )
        self.seen_start = initialise_scorer(self, key, rng, budget)

    def state(self) -> dict[str, Any]:
        """The initial weight of seen items."""
        return {"seen_start": self.seen_start}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore it, and the initial values of terms that checkpoints omit, for the tree of the checkpoint."""
        self.seen_start = float(state["seen_start"])
        if not np.array_equal(self.tree.item_of_leaf, self.counts.tree.item_of_leaf):
            counts = replace(self.counts, tree=self.tree)
            for term in self.model.scorer.held_terms().values():
                term.start_unsaved(counts)

    def optimisers(self) -> list[Optimiser]:
        """Adam; decoupled weight decay applies to the layers only, coupled decay to node embeddings as well."""
        scorer, optimiser = self.model.scorer, self.config.optimiser
        embeddings = scorer.nodes.weight
        dense = [parameter for parameter in scorer.parameters() if parameter is not embeddings]
        coupled, decay = optimiser.decay == "coupled", optimiser.weight_decay
        groups = [ParameterGroup(dense, decay=decay), ParameterGroup([embeddings], decay=decay if coupled else 0.0)]
        return [Optimiser(groups, decoupled=not coupled, amsgrad=optimiser.amsgrad)]

    def batch(self, rows: np.ndarray, rng: torch.Generator, progress: Progress) -> TreeBatch:
        """Histories and targets of the given rows: of examples, or of users, for each of whom one example is drawn."""
        if self.config.examples.of == "users":
            draws = torch.rand(len(rows), generator=rng, dtype=torch.float64).numpy()
            rows = self._first[rows] + (draws * self._count[rows]).astype(np.int64)
        return self.batch_of(rows, rng)

    def batch_of(self, rows: np.ndarray, rng: torch.Generator) -> TreeBatch:
        """Histories and targets of the given examples, with the labels of an estimator, if any.

        Targets are drawn uniformly from the next `horizon` items of the user, unless only the next one counts.
        """
        settings, histories, first = self.config.examples, self.examples.histories(rows), self.examples.stop[rows]
        if settings.num_targets == 1 and settings.horizon == 1:
            positions = first[:, None]
        else:
            draws = torch.rand(len(rows), settings.num_targets, generator=rng).double().numpy()
            ahead = self.examples.ahead(rows, settings.horizon)
            positions = first[:, None] + np.floor(draws * ahead[:, None]).astype(np.int64)
        targets, tree, objective = self._items[positions], self.tree, self.objective
        z_HBT = None
        if objective.estimator is not None and (objective.labels == "rectified" or objective.labels == "one-step"):
            z_HBT = estimated_labels(
                objective.estimator, tree, histories, targets, objective.labels, normalised=objective.normalised
            )
        return TreeBatch(
            torch.from_numpy(tree.leaves_of(histories.padded(sum(self.config.model.windows))).astype(np.int64)),
            torch.from_numpy(tree.leaves_of(targets).astype(np.int64)),
            z_HBT,
            torch.from_numpy(self.folds[self.examples.users[rows]]) if self.uses_folds else None,
        )

    def draw(self, batch: TreeBatch, rng: torch.Generator) -> TreeBatch:
        """The batch with the nodes drawn on each level."""
        return self.objective.draw(self.model, batch, rng)

    def loss(self, batch: TreeBatch, rng: torch.Generator) -> Tensor:
        """Scalar: the loss of every level, mean over histories and targets, then reduced over levels."""
        total = torch.stack([self.objective.level_loss(self.tree, level) for level in self.scored(batch)])
        return total.mean() if self.config.loss.level_reduction == "mean" else total.sum()

    def searcher(self, *, threads: int | None = None) -> TreeSearcher:
        """A searcher of the current weights and tree; by default with as many threads as torch has."""
        return TreeSearcher(
            self.model.scorer.export(),
            self.tree,
            beam_width=self.config.tree.beam_width,
            threads=torch.get_num_threads() if threads is None else threads,
            link=self.objective.loss.link,
        )

    def scored(self, batch: TreeBatch) -> list[ScoredLevel]:
        """The scores of the nodes drawn on each level."""
        return scored_levels(self.model, batch, bf16=self.bf16)


def _tree_key(key: str | None) -> str:
    """The cache key of an initial tree, by `start_key`."""
    return f"tree {key}"
