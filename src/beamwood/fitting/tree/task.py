"""One training task for the whole family of tree retrievers: sampler, label rule and loss are parts given to it.

Shape legend: B histories, L history length, T targets a history, M nodes drawn a level, H levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.examples import WINDOWS_OF_USERS, Examples
from beamwood.errors import InputError
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.terms import FOLDS, terms_of
from beamwood.kernels.terms import Term
from beamwood.losses.levels import LEVEL_LOSSES, LevelDraw, LevelLoss
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.models.din_start import shift_levels
from beamwood.models.tree_model import TreeModel
from beamwood.sampling.levels import Histories, LevelSampler
from beamwood.training.lazy_adam import LazyAdam, sparse_gradients
from beamwood.training.level_labels import estimated_labels, pseudo_targets
from beamwood.training.precision import has_bfloat16
from beamwood.tree import Shape, Tree
from beamwood.types import Estimator, IndexArray, ItemLists

__all__ = ["Batch", "Labels", "Parts", "TreeTask"]

Labels = Literal["summed", "rectified", "one-step", "pseudo"]
_BLOCK = 1024
_RENEWED = ("renewals", "taken_back", "renewed_at")


@dataclass(frozen=True, slots=True)
class Parts:
    """What tells one tree retriever from another while the tree is fixed.

    `labels`: "summed": every ancestor of a target is positive; "rectified" and "one-step" by the `estimator`; "pseudo"
    by the model itself (OTM); `normalised`: divided by their level's mass.
    """

    sampler: LevelSampler
    loss: LevelLoss = LEVEL_LOSSES["softmax"]
    labels: Labels = "summed"
    estimator: Estimator | None = None
    normalised: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """`leaves_BL` int64, -1 padding on the left; `targets_BT` int64 leaves; `z_HBT` labels, None: all positive;
    `folds_B` int64, the folds that the histories' users are of."""

    leaves_BL: Tensor
    targets_BT: Tensor
    z_HBT: Tensor | None
    folds_B: Tensor | None


class ScoredLevel(NamedTuple):
    """`scores` [B, M] of what was drawn, `targets` [B, T] nodes of the level, `labels` bool[B, T]."""

    draw: LevelDraw
    scores: Tensor
    targets: Tensor
    labels: Tensor


class TreeTask:
    """What the training loop needs to know: batches and their loss, level by level.

    `terms`: added to the score beside those of `config`.
    """

    def __init__(
        self,
        train: Dataset,
        tree: Tree,
        config: TreeConfig,
        parts: Parts,
        *,
        seed: int,
        terms: Sequence[Term] = (),
    ) -> None:
        if parts.labels in ("rectified", "one-step") and parts.estimator is None:
            raise InputError(f"labels='{parts.labels}' needs an estimator; set loss.estimator to a method or a folder")
        self.config, self.parts = config, parts
        self.generator = torch.Generator().manual_seed(seed)
        self.examples: Examples = WINDOWS_OF_USERS[config.examples.window](
            train.histories, length=sum(config.model.windows) + 1, min_history=config.examples.min_history
        )
        if len(self.examples) == 0:
            if config.examples.min_history == 1:
                raise InputError("no user has two interactions to train on; give a longer log")
            raise InputError(
                f"no user has more than examples.min_history={config.examples.min_history} interactions to train on; "
                "lower it with --set examples.min_history=1 or give a longer log"
            )
        scorer = drawn_scorer(tree.shape, config, terms_of(config, train, terms), self.generator)
        optimiser = config.optimiser
        sparse_gradients(scorer, optimiser.embeddings)
        self.model = TreeModel(scorer, tree)
        embeddings = scorer.nodes.weight
        dense = [parameter for parameter in scorer.parameters() if parameter is not embeddings]
        groups: list[dict[str, Any]] = [
            {"params": dense, "weight_decay": optimiser.weight_decay},
            {"params": [embeddings]},
        ]
        self.bf16 = has_bfloat16() if optimiser.bf16 is None else optimiser.bf16
        rate = config.rate(train.num_items)
        self.optimizers = [LazyAdam(groups, lr=rate, decoupled=True, amsgrad=optimiser.amsgrad)]
        # Of each user with examples, the first of them and how many follow.
        counts = np.bincount(self.examples.users)
        self._first, self._count = (np.cumsum(counts) - counts)[counts > 0], counts[counts > 0]
        self.num_examples = len(self._first) if config.examples.of == "users" else len(self.examples)
        # How often the tree was renewed, how often that was taken back, and the share of the run that was over then.
        self.renewals, self.taken_back = 0, 0
        self.renewed_at: float | None = 0.0
        # The end of each example's user: targets are drawn from what the user did next.
        self._future_end = train.histories.indptr[self.examples.users + 1]
        self._items = train.histories.items
        self.folds = np.random.default_rng(seed).integers(0, FOLDS, len(train.histories))

    @property
    def tree(self) -> Tree:
        """The tree as it is now."""
        return self.model.tree

    @property
    def next_item_only(self) -> bool:
        """Is an example's one target the very next item, as in the paper?"""
        return self.config.examples.num_targets == 1 and self.config.examples.horizon == 1

    @property
    def leaves_out(self) -> bool:
        """Does a term leave out the own steps of the users that are trained on?"""
        return any(module.term.folds for module in self.model.scorer.held_terms().values())

    def folds_of(self, rows: IndexArray) -> NDArray[np.int64]:
        """The folds of the users of the given examples."""
        folds: NDArray[np.int64] = self.folds[self.examples.users[rows]]
        return folds

    def state(self) -> dict[str, Any]:
        """The sampler's generator and how often and when the tree was renewed, for a checkpoint."""
        renewed = {name: getattr(self, name) for name in _RENEWED}
        return {"generator": self.generator.get_state()} | renewed

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        for name in _RENEWED:
            setattr(self, name, state[name])

    def batch(self, rows: np.ndarray) -> Batch:
        """Histories and targets of the given rows: examples, or users, of whose examples one each is drawn.

        With `num_targets` > 1 they are drawn uniformly from the user's future.
        """
        if self.config.examples.of == "users":
            draws = torch.rand(len(rows), generator=self.generator, dtype=torch.float64).numpy()
            rows = self._first[rows] + (draws * self._count[rows]).astype(np.int64)
        return self.batch_of(rows)

    def batch_of(self, rows: np.ndarray) -> Batch:
        """Histories and targets of the given examples."""
        histories = self.examples.histories(rows)
        first = self.examples.stop[rows]
        end = self._future_end[rows]
        if self.config.examples.horizon:
            end = np.minimum(end, first + self.config.examples.horizon)
        if self.next_item_only:
            positions = first[:, None]
        else:
            draws = torch.rand(len(rows), self.config.examples.num_targets, generator=self.generator).double().numpy()
            positions = first[:, None] + np.floor(draws * (end - first)[:, None]).astype(np.int64)
        targets, tree = self._items[positions], self.tree
        z_HBT = None
        if self.parts.estimator is not None and self.parts.labels in ("rectified", "one-step"):
            z_HBT = self._labels_of(tree, histories, targets)
        return Batch(
            torch.from_numpy(tree.leaves_of(histories.padded(sum(self.config.model.windows))).astype(np.int64)),
            torch.from_numpy(tree.leaves_of(targets).astype(np.int64)),
            z_HBT,
            torch.from_numpy(self.folds_of(rows)) if self.leaves_out else None,
        )

    def _labels_of(self, tree: Tree, histories: ItemLists, targets_BT: np.ndarray) -> Tensor:
        rule: Any = self.parts.labels
        assert self.parts.estimator is not None
        return estimated_labels(
            self.parts.estimator, tree, histories, targets_BT, rule, normalised=self.parts.normalised
        )

    def loss(self, batch: Batch) -> Tensor:
        """The parts' loss of every level, mean over histories and targets, then reduced over levels."""
        total = torch.stack([self._level_loss(level) for level in self._scored(batch)])
        return total.mean() if self.config.loss.level_reduction == "mean" else total.sum()

    def start_at_odds(self) -> None:
        """Let each level's scores start at the height where the loss of a few examples is least.

        For a loss that judges every node on its own: what says which nodes are likelier says not how likely they are.
        """
        rows = np.linspace(0, self.num_examples - 1, min(_BLOCK, self.num_examples)).astype(np.int64)
        self.model.eval()
        with torch.no_grad():
            levels = self._scored(self.batch(rows))
            heights = [minimize_scalar(lambda shift, own=level: self._shifted_loss(own, shift)).x for level in levels]
        self.model.train()
        shift_levels(self.model.scorer, heights)

    def _scored(self, batch: Batch) -> list[ScoredLevel]:
        """What is drawn on each level, and the scores of it."""
        scorer, tree = self.model.scorer, self.tree
        histories = Histories(batch.leaves_BL, batch.folds_B)
        draws = self.parts.sampler(scorer, tree, histories, batch.targets_BT, self.generator)
        z_HBT = batch.z_HBT
        if self.parts.labels == "pseudo":
            z_HBT = pseudo_targets(scorer, tree, batch.leaves_BL, batch.targets_BT, batch.folds_B)
        targets = [batch.targets_BT // tree.shape.leaves_below(draw.level) for draw in draws]
        entries = [LevelNodes(draw.level, draw.scored(own)) for draw, own in zip(draws, targets, strict=True)]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            scores = scorer(batch.leaves_BL, entries, batch.folds_B)
        levels = []
        for draw, own_BT, values in zip(draws, targets, scores, strict=True):
            z_BT = torch.ones_like(own_BT, dtype=torch.bool) if z_HBT is None else z_HBT[draw.level - 1]
            levels.append(ScoredLevel(draw, values.float(), own_BT, z_BT))
        return levels

    def _level_loss(self, level: ScoredLevel) -> Tensor:
        draw, scores, targets_BT, z_BT = level
        live_n = torch.from_numpy(self.tree.live_counts[draw.level] > 0) if draw.nodes is None else None
        return self.parts.loss.loss(draw, scores, targets_BT, z_BT, live_n).mean()

    def _shifted_loss(self, level: ScoredLevel, shift: float) -> float:
        return float(self._level_loss(level._replace(scores=level.scores + shift)))


def drawn_scorer(shape: Shape, config: TreeConfig, terms: Sequence[Term], generator: torch.Generator) -> DinScorer:
    """The scorer of a configuration as it is drawn."""
    return DinScorer(
        shape,
        width=config.model.width,
        attention_hidden=config.model.attention_hidden,
        windows=config.model.windows,
        mlp=config.model.mlp,
        norm=config.model.norm,
        activation=config.model.activation,
        unit_coordinate=config.model.unit_coordinate,
        attention_start=config.start.attention,
        terms=terms,
        moves=config.tree.updates > 0,
        dropout=config.model.dropout,
        recompute=config.model.recompute,
        generator=generator,
    )
