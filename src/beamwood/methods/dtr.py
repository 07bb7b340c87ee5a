"""DTR: a tree and a DIN scorer, trained by softmax over the nodes of each level.

Shape legend: B histories, L history length, T targets a history, M negatives a level.
Source: Liu et al., "Learning Deep Tree-based Retriever for Efficient Recommendation" (DTR), sections 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.examples import Examples, windows
from beamwood.data.split import Queries, Split
from beamwood.errors import InputError
from beamwood.evaluation.protocol import evaluate
from beamwood.losses.softmax import full_softmax, sampled_softmax
from beamwood.methods.assemble import build_retriever
from beamwood.models.din import WINDOWS, DinScorer, LevelNodes
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.tree import TreeSearcher
from beamwood.sampling.uniform import adaptive_counts, uniform_negatives
from beamwood.training.loop import LoopConfig, run_loop
from beamwood.training.run_folder import RunFolder
from beamwood.tree import Tree, category_tree, random_tree

__all__ = ["TRAINS", "Config", "DtrTask", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(BaseModel):
    """How DTR with uniform negatives is built and trained; the defaults were chosen on validation data of `ml1m`.

    The paper's own values where ours differ: branching 2, targets 1, horizon 1, batch_size 100, learning_rate 1e-3 with
    schedule "exponential", warmup_steps 5000, decay_steps 15000 and floor 1e-6, unit_coordinate False.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: Literal["category", "random"] = "category"
    branching: int = Field(16, ge=2, le=256)
    width: int = Field(24, ge=1)
    attention_hidden: int = Field(36, ge=1)
    windows: tuple[int, ...] = WINDOWS
    mlp: tuple[int, ...] = (128, 64, 24)
    norm: Literal["none", "batch"] = "none"
    activation: Literal["prelu", "relu"] = "relu"
    unit_coordinate: bool = Field(True, description="see DinScorer; the paper has none")
    dropout: float = Field(0.0, ge=0, lt=1)
    beam_width: int = Field(150, ge=1)
    num_negatives: int = Field(70, ge=1)
    depth_alpha: float = Field(0.0, ge=0, description="adaptive sampling of appendix I; 0 samples levels alike")
    targets: int = Field(8, ge=1, description="items of the user's future that one history is trained on")
    horizon: int = Field(0, ge=0, description="how far ahead targets are drawn; 1: the next item only, 0: no bound")
    level_reduction: Literal["mean", "sum"] = "mean"
    min_history: int = Field(5, ge=1, description="training histories shorter than this are left out; DTR: 15")
    learning_rate: float = Field(5e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay (AdamW) of the layers; embeddings have none")
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "linear"
    warmup_steps: int = Field(100, ge=0)
    decay_steps: int | None = Field(None, ge=1, description="length of the decay; by default the rest of the run")
    floor: float = Field(0.0, ge=0, description="the learning rate never falls below this")
    batch_size: int = Field(256, ge=1)
    max_steps: int = Field(4000, ge=1)
    evaluate_every: int = Field(250, ge=1)
    patience: int = Field(8, ge=1, description="evaluations without a better one before training stops")
    clip_norm: float = Field(5.0, gt=0)
    bf16: bool = Field(True, description="run the MLP's products in bfloat16 during training; search stays float32")
    validation_users: int = Field(600, ge=1, description="validation queries used while training, drawn once")
    monitor: str = "new/f@20"


@dataclass(frozen=True, slots=True)
class Batch:
    """`leaves_BL` int64, -1 padding on the left; `targets_BT` int64, leaves of the targets."""

    leaves_BL: Tensor
    targets_BT: Tensor


class DtrTask:
    """What the training loop needs to know of DTR: batches and their loss, level by level."""

    def __init__(self, train: Dataset, tree: Tree, config: Config, *, seed: int) -> None:
        self.config, self.tree = config, tree
        self.generator = torch.Generator().manual_seed(seed)
        self.examples: Examples = windows(
            train.histories, length=sum(config.windows) + 1, min_history=config.min_history
        )
        if len(self.examples) == 0:
            raise InputError(
                f"no user has more than min_history={config.min_history} interactions to train on; "
                "lower it with --set min_history=1 or give a longer log"
            )
        self.model = DinScorer(
            tree.shape,
            width=config.width,
            attention_hidden=config.attention_hidden,
            windows=config.windows,
            mlp=config.mlp,
            norm=config.norm,
            activation=config.activation,
            unit_coordinate=config.unit_coordinate,
            dropout=config.dropout,
            generator=self.generator,
        )
        embeddings = self.model.nodes.weight
        dense = [parameter for parameter in self.model.parameters() if parameter is not embeddings]
        groups: list[dict[str, Any]] = [
            {"params": dense, "weight_decay": config.weight_decay},
            {"params": [embeddings]},
        ]
        self.optimizers = [torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=0.0)]
        self.num_examples = len(self.examples)
        # The end of each example's user: targets are drawn from what the user did next.
        self._future_end = train.histories.indptr[self.examples.users + 1]
        self._items = train.histories.items
        self._live = torch.from_numpy(np.flatnonzero(tree.item_of_leaf >= 0))
        self._counts = adaptive_counts(config.num_negatives, tree.shape.depth, config.depth_alpha)

    def state(self) -> dict[str, Tensor]:
        """The sampler's generator, for a checkpoint."""
        return {"generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])

    def batch(self, rows: np.ndarray) -> Batch:
        """Histories and targets of the given examples; with `targets` > 1, drawn uniformly from the user's future."""
        histories = self.examples.histories(rows).padded(sum(self.config.windows))
        first = self.examples.stop[rows]
        end = self._future_end[rows]
        if self.config.horizon:
            end = np.minimum(end, first + self.config.horizon)
        if self.config.targets == 1 and self.config.horizon == 1:
            positions = first[:, None]
        else:
            draws = torch.rand(len(rows), self.config.targets, generator=self.generator).double().numpy()
            positions = first[:, None] + np.floor(draws * (end - first)[:, None]).astype(np.int64)
        return Batch(
            torch.from_numpy(self.tree.leaves_of(histories).astype(np.int64)),
            torch.from_numpy(self.tree.leaves_of(self._items[positions]).astype(np.int64)),
        )

    def loss(self, batch: Batch) -> Tensor:
        """Softmax loss of every level, mean over histories and targets, then reduced over levels (equations 18-21)."""
        levels = [self._sample(level, batch.targets_BT) for level in range(1, self.tree.shape.depth + 1)]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.bf16):
            scores = self.model(batch.leaves_BL, [LevelNodes(level.number, level.nodes) for level in levels])
        losses = torch.stack([level.loss(score.float()).mean() for level, score in zip(levels, scores, strict=True)])
        return losses.mean() if self.config.level_reduction == "mean" else losses.sum()

    def _sample(self, level: int, target_leaves_BT: Tensor) -> _Level:
        shape = self.tree.shape
        targets_BT = target_leaves_BT // shape.leaves_below(level)
        size, count = shape.level_size(level), self._counts[level - 1]
        if size <= count + 1:
            return _Level(level, targets_BT, None, None, torch.from_numpy(self.tree.live_counts[level] > 0))
        candidates = self._live if level == shape.depth else size
        drawn_BM, log_q_BM = uniform_negatives(len(targets_BT), count, candidates, self.generator)
        return _Level(level, targets_BT, drawn_BM, log_q_BM, None)


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of a step: its targets, and either the nodes drawn or the mask of live nodes when all are scored."""

    number: int
    targets_BT: Tensor
    drawn_BM: Tensor | None
    log_q_BM: Tensor | None
    live_n: Tensor | None

    @property
    def nodes(self) -> Tensor | None:
        return None if self.drawn_BM is None else torch.cat([self.targets_BT, self.drawn_BM], dim=1)

    def loss(self, scores_BM: Tensor) -> Tensor:
        """Loss [B, T] from the scores of `nodes`, targets first, or of the whole level."""
        if self.drawn_BM is None or self.log_q_BM is None:
            assert self.live_n is not None
            return full_softmax(scores_BM.masked_fill(~self.live_n, -torch.inf), self.targets_BT)
        num_targets = self.targets_BT.shape[1]
        return sampled_softmax(
            scores_BM[:, :num_targets],
            scores_BM[:, num_targets:],
            self.log_q_BM,
            self.drawn_BM[:, None, :] == self.targets_BT[:, :, None],
            self.log_q_BM[:, :1].expand(-1, num_targets),
        )


def start_tree(train: Dataset, config: Config, rng: np.random.Generator) -> Tree:
    """The first tree: by category where the item table has any and the configuration asks for it, else random."""
    table = train.item_table
    if config.tree == "category" and table is not None and bool((table.categories >= 0).any()):
        return category_tree(table.categories, rng, branching=config.branching)
    return random_tree(len(train.items), rng, branching=config.branching)


def validator(task: DtrTask, queries: Queries, *, seed: int) -> Callable[[], dict[str, float]]:
    """Metrics of the current weights on a fixed draw of the validation queries, by the exact protocol of the test."""
    config = task.config
    rows = np.sort(np.random.default_rng(seed).permutation(len(queries.users))[: config.validation_users])
    subset = queries.take(rows)

    def measure() -> dict[str, float]:
        weights, threads = task.model.export(), torch.get_num_threads()
        searcher = TreeSearcher(weights, task.tree, beam_width=config.beam_width, threads=threads)
        metrics: dict[str, float] = {}
        for view in ("all", "new"):
            result = evaluate(searcher.search, subset, ks=(20,), exclude_consumed=view == "new", batch_size=1024)
            metrics |= {f"{view}/{name}": value for name, value in result.means().items()}
        return metrics

    return measure


def fit(
    split: Split,
    config: Config | None = None,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    time_limit: float | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Retriever:
    """Train DTR with uniform negatives on `split.train`, keeping the weights that are best on `split.valid`.

    `time_limit` in seconds covers the whole training; the best model so far is returned when it ends. Errors:
    `InputError` where the log is too short to train on or fewer items than the beam allows.
    """
    config = config or Config()
    tree = start_tree(split.train, config, np.random.default_rng(seed))
    task = DtrTask(split.train, tree, config, seed=seed)
    loop = LoopConfig(
        max_steps=config.max_steps,
        batch_size=config.batch_size,
        evaluate_every=config.evaluate_every,
        patience=config.patience,
        monitor=f"valid/{config.monitor}",
        clip_norm=config.clip_norm,
        schedule=config.schedule,
        warmup_steps=config.warmup_steps,
        decay_steps=config.decay_steps,
        floor=config.floor,
    )
    if run is not None and (resume or not run.holds_a_run):
        settings = {"method": "dtr", "seed": seed} | config.model_dump(mode="json")
        run.write_config(settings, resume=resume, may_differ=("max_steps", "patience"))
    result = run_loop(
        task,
        loop,
        evaluate=validator(task, split.valid, seed=seed),
        run=run,
        resume=resume,
        time_limit=time_limit,
        progress=progress,
        seed=seed,
    )
    searcher = TreeSearcher(task.model.export(), tree, beam_width=config.beam_width)
    lengths = split.train.histories.lengths
    training: dict[str, Any] = {
        "steps": result.steps,
        "best_step": result.best_step,
        "stopped": result.stopped_because,
        f"valid/{config.monitor}": result.best_metric,
        "examples": task.num_examples,
        "users_too_short": int(np.count_nonzero((lengths > 0) & (lengths <= config.min_history))),
    }
    return build_retriever(searcher, split, method="dtr", config=config, seed=seed, training=training)
