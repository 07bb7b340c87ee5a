"""SASRec trained by softmax over the whole catalogue at every position.

Shape legend: B sequences, L history length, D width.
Source: Kang and McAuley, "Self-Attentive Sequential Recommendation", with the full softmax that later work found to be
what it needs (the paper's own loss is binary, with one negative).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.kernels.transformer import TransformerEncoder
from beamwood.losses.softmax import catalogue_softmax
from beamwood.methods.assemble import build_retriever
from beamwood.methods.train import train
from beamwood.models.sasrec import SasRec
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.sequence import SequenceSearcher
from beamwood.training.run_folder import RunFolder

__all__ = ["TRAINS", "Batch", "Config", "SequenceTask", "fit", "fit_sequence"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(BaseModel):
    """SASRec; the defaults were chosen on validation data of `ml1m`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int = Field(64, ge=1)
    length: int = Field(69, ge=2, description="latest items that count")
    num_blocks: int = Field(2, ge=1)
    num_heads: int = Field(2, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    horizon: int = Field(1, ge=0, description="how far ahead a position's target is drawn; 1: the next, 0: no bound")
    learning_rate: float = Field(3e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "linear"
    warmup_steps: int = Field(100, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(32, ge=1, description="sequences a step; every position of each is an example")
    max_steps: int = Field(3000, ge=1)
    evaluate_every: int = Field(200, ge=1)
    patience: int = Field(8, ge=1)
    clip_norm: float = Field(5.0, gt=0)
    validation_users: int = Field(600, ge=1)
    monitor: str = "new/f@20"


@dataclass(frozen=True, slots=True)
class Batch:
    """`items_BL` int64, -1 padding on the left; `targets_BL` int64, -1 where there is none."""

    items_BL: Tensor
    targets_BL: Tensor


class SequenceTask:
    """Random windows of users' histories; at each position the target is one of the items that follow."""

    def __init__(self, train: Dataset, config: Config, *, seed: int) -> None:
        self.config, self.histories = config, train.histories
        lengths = train.histories.lengths
        # A user stands in an epoch once for each window of his history.
        windows = np.where(lengths >= 2, -(-(lengths - 1) // config.length), 0)
        self.users = np.repeat(np.arange(len(lengths)), windows)
        if len(self.users) == 0:
            raise InputError("no user has two interactions to train on; give a longer log")
        self.num_examples = len(self.users)
        self.generator = torch.Generator().manual_seed(seed)
        self.model = SasRec(
            len(train.items),
            width=config.width,
            length=config.length,
            num_blocks=config.num_blocks,
            num_heads=config.num_heads,
            dropout=config.dropout,
            generator=self.generator,
        )
        self.optimizers = [
            torch.optim.AdamW(
                self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.98)
            )
        ]

    def state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    def batch(self, rows: np.ndarray) -> Batch:
        """A window of up to L items that have a successor, its place drawn uniformly, for each given example."""
        users, length = self.users[rows], self.config.length
        start, end = self.histories.indptr[users], self.histories.indptr[users + 1]
        draws = torch.rand((len(rows), length + 1), generator=self.generator).double().numpy()
        free = np.maximum(end - 1 - start - length, 0)
        first = start + np.floor(draws[:, 0] * (free + 1)).astype(np.int64)
        stop = np.minimum(first + length, end - 1)
        positions = stop[:, None] - np.arange(length, 0, -1)
        real = positions >= first[:, None]
        safe = np.where(real, positions, first[:, None])
        ahead = end[:, None] - 1 - safe
        if self.config.horizon:
            ahead = np.minimum(ahead, self.config.horizon)
        targets = safe + 1 + np.floor(draws[:, 1:] * ahead).astype(np.int64)
        items = self.histories.items
        return Batch(
            torch.from_numpy(np.where(real, items[safe], -1).astype(np.int64)),
            torch.from_numpy(np.where(real, items[targets], -1).astype(np.int64)),
        )

    def loss(self, batch: Batch) -> Tensor:
        """Mean over all positions of the softmax loss over the catalogue."""
        real = batch.targets_BL >= 0
        queries = self.model(batch.items_BL)[real]
        return catalogue_softmax(queries, self.model.items.weight, batch.targets_BL[real]).mean()

    def searcher(self) -> SequenceSearcher:
        """A searcher of the weights as they are now."""
        return SequenceSearcher(TransformerEncoder(self.model.export(), num_heads=self.config.num_heads))


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
    """Train SASRec on `split.train`, keeping the weights that are best on `split.valid`.

    `time_limit` in seconds covers the whole training. Errors: `InputError` where nobody has two interactions.
    """
    config = config or Config()
    task = SequenceTask(split.train, config, seed=seed)
    return fit_sequence(
        task,
        split,
        config,
        method="sasrec",
        seed=seed,
        run=run,
        time_limit=time_limit,
        resume=resume,
        progress=progress,
    )


def fit_sequence(
    task: SequenceTask,
    split: Split,
    config: Config,
    *,
    method: str,
    seed: int,
    run: RunFolder | None,
    time_limit: float | None,
    resume: bool,
    progress: bool,
) -> Retriever:
    """Train a sequence model's task, and put the retriever of its best weights together."""
    training = train(
        task,
        split,
        config,
        lambda: task.searcher().search,
        method=method,
        seed=seed,
        run=run,
        time_limit=time_limit,
        resume=resume,
        progress=progress,
    )
    return build_retriever(task.searcher(), split, method=method, config=config, seed=seed, training=training)
