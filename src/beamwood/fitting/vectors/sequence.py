"""A sequence encoder trained by softmax over the catalogue: SASRec, and what the other encoders' methods share.

Shape legend: B sequences, L history length, X examples of a step, D width, M negatives of a step.
Source: Kang and McAuley, "Self-Attentive Sequential Recommendation", with the full softmax that later work found to be
what it needs (the paper's own loss is binary, with one negative).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.repeats import RepeatConfig, fit_vectors
from beamwood.fitting.settings import HistoryLength
from beamwood.fitting.vectors.item_start import Start, start_from_transitions, starts_from_transitions
from beamwood.losses.softmax import catalogue_softmax, sampled_softmax
from beamwood.models.encoders import build_encoder
from beamwood.models.sequence import SequenceModel
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.sequence import ENCODERS, SequenceSearcher
from beamwood.training.lazy_adam import EmbeddingOptimizer, LazyAdam, sparse_gradients

__all__ = ["TRAINS", "Batch", "Config", "SequenceTask", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(RepeatConfig):
    """A sequence encoder; the defaults of SASRec were chosen on validation data of `ml1m`."""

    encoder: Literal["sasrec", "gru4rec", "caser", "fmlp"] = "sasrec"
    width: int = Field(64, ge=1)
    length: HistoryLength = Field(69, ge=2, description="latest items that count")
    num_blocks: int = Field(2, ge=1, description="of sasrec and fmlp")
    num_heads: int = Field(2, ge=1, description="of sasrec")
    hidden: int = Field(128, ge=1, description="recurrent units of gru4rec")
    num_vertical: int = Field(4, ge=1, description="vertical filters of caser")
    num_horizontal: int = Field(16, ge=1, description="horizontal filters of caser for each height")
    dropout: float = Field(0.2, ge=0, lt=1)
    tied: bool = Field(True, description="score with the vectors that the encoder reads; false: a table of its own")
    item_column: str | None = Field(None, description="list column of the item table to make item vectors from")
    item_start: Start = Field(
        "auto",
        description="transitions: item vectors start from what follows what; auto: that, up to 2,000,000 items without "
        "item_column; random: the papers",
    )
    sampled_negatives: int | None = Field(
        None, ge=1, description="uniform negatives that a step's examples share, with log q; null: the whole catalogue"
    )
    prior_power: float = Field(
        0.0, ge=0, description="train with this times ln(frequency) added to each item's logit, and answer without it"
    )
    horizon: int = Field(1, ge=0, description="how far ahead a position's target is drawn; 1: the next, 0: no bound")
    learning_rate: float = Field(3e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay (AdamW) of all weights")
    item_decay: float | None = Field(None, ge=0, description="the decay of item vectors instead; null: the same")
    embedding_optimizer: EmbeddingOptimizer = Field(
        "auto", description="of sampled_negatives: lazy-adam moves only the vectors that a step used"
    )
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "linear"
    warmup_steps: int = Field(100, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(
        32, ge=1, description="windows a step; each position of a causal encoder's is an example, else the last alone"
    )
    max_steps: int = Field(3000, ge=1)
    evaluate_every: int = Field(200, ge=1)
    patience: int = Field(8, ge=1)
    clip_norm: float = Field(5.0, gt=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """`items_BL` int64, -1 padding on the left; `targets_BL` int64, -1 for none, [B, 1] where only the last counts."""

    items_BL: Tensor
    targets_BL: Tensor


class SequenceTask:
    """Random windows of users' histories; at each position the target is one of the items that follow.

    An encoder that is not causal has an example for each position instead, the window that ends there.
    """

    def __init__(self, train: Dataset, config: Config, *, seed: int) -> None:
        self.config, self.histories = config, train.histories
        self.generator = torch.Generator().manual_seed(seed)
        self.model = build_model(train, config, self.generator)
        # The full softmax moves every item.
        if config.sampled_negatives is not None:
            sparse_gradients(self.model, config.embedding_optimizer)
        self.start_items(train, seed)
        lengths = train.histories.lengths
        if self.model.causal:
            # A user stands in an epoch once for each window of his history.
            windows = np.where(lengths >= 2, -(-(lengths - 1) // config.length), 0)
            self.users = np.repeat(np.arange(len(lengths)), windows)
        else:
            self.users = np.repeat(np.arange(len(lengths)), np.maximum(lengths - 1, 0))
            last_of = np.repeat(train.histories.indptr[1:] - 1, lengths)
            self.positions = np.flatnonzero(np.arange(len(last_of)) < last_of)
        if len(self.users) == 0:
            raise InputError("no user has two interactions to train on; give a longer log")
        self.num_examples = len(self.users)
        frequency = np.maximum(train.item_counts, 1)
        self.prior_N = torch.from_numpy(config.prior_power * np.log(frequency / frequency.sum())).float()
        decay = config.weight_decay if config.item_decay is None else config.item_decay
        of_items = set(self.model.item_parameters())
        groups: list[dict[str, Any]] = [
            {"params": [each for each in self.model.parameters() if each not in of_items]},
            {"params": list(self.model.item_parameters()), "weight_decay": decay},
        ]
        self.optimizers = [
            LazyAdam(
                groups,
                lr=config.learning_rate,
                weight_decay=config.weight_decay,
                betas=(0.9, 0.98),
                decoupled=True,
            )
        ]

    def state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    def batch(self, rows: np.ndarray) -> Batch:
        """A window of up to L items that have a successor for each given example, its place drawn uniformly.

        The window of an encoder that is not causal ends at the example's own position.
        """
        users, length = self.users[rows], self.config.length
        start, end = self.histories.indptr[users], self.histories.indptr[users + 1]
        draws = torch.rand((len(rows), length + 1), generator=self.generator).double().numpy()
        if self.model.causal:
            free = np.maximum(end - 1 - start - length, 0)
            first = start + np.floor(draws[:, 0] * (free + 1)).astype(np.int64)
            stop = np.minimum(first + length, end - 1)
        else:
            stop = self.positions[rows] + 1
            first = np.maximum(start, stop - length)
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
            torch.from_numpy(np.where(real, items[targets], -1).astype(np.int64)[:, self._scored :]),
        )

    def start_items(self, train: Dataset, seed: int) -> None:
        """Put the item vectors where `config.item_start` has them."""
        possible = self.config.item_column is None
        if starts_from_transitions(self.config.item_start, train.num_items, possible=possible):
            start_from_transitions(self.model, train, seed)

    @property
    def _scored(self) -> int:
        """The first position whose target counts."""
        return 0 if self.model.causal else self.config.length - 1

    def loss(self, batch: Batch) -> Tensor:
        """Mean over all examples of the softmax loss."""
        real = batch.targets_BL >= 0
        return self.cross_entropy(self.model(batch.items_BL)[real], batch.targets_BL[real]).mean()

    def cross_entropy(self, queries_XD: Tensor, targets_X: Tensor) -> Tensor:
        """[X], the softmax loss over the catalogue, or over the target and the step's negatives.

        With a prior, of the logits plus the prior: what is frequent anyway need not be said by the vectors, so that
        answers favour rare items. Source: Menon et al., "Long-tail learning via logit adjustment", equation 10.
        """
        count, num_items = self.config.sampled_negatives, len(self.prior_N)
        if count is None:
            vectors = self.model.output_weight
            if self.config.prior_power:
                # The prior is a coordinate more, on which every query has 1.
                vectors = torch.cat([vectors, self.prior_N[:, None]], dim=1)
                queries_XD = torch.nn.functional.pad(queries_XD, (0, 1), value=1.0)
            return catalogue_softmax(queries_XD, vectors, targets_X)
        negatives = torch.randint(num_items, (count,), generator=self.generator)
        log_q = queries_XD.new_full((), -math.log(num_items))
        positive_X = (queries_XD * self.model.output_vectors(targets_X)).sum(dim=1) + self.prior_N[targets_X]
        return sampled_softmax(
            positive_X[:, None],
            queries_XD @ self.model.output_vectors(negatives).T + self.prior_N[negatives],
            log_q.expand(len(targets_X), count),
            (negatives == targets_X[:, None])[:, None],
            log_q.expand(len(targets_X), 1),
        )[:, 0]

    def searcher(self) -> SequenceSearcher:
        """A searcher of the weights as they are now."""
        return SequenceSearcher(ENCODERS[self.model.name](self.model.export(), **self.model.sizes))


def build_model(train: Dataset, config: Config, generator: torch.Generator) -> SequenceModel:
    """The encoder of a configuration. Errors: an `item_column` that the item table lacks."""
    features = None
    if config.item_column is not None:
        if train.item_table is None:
            raise InputError(f"item_column='{config.item_column}' needs an item table; give one with --items")
        features = train.item_table.vectors(config.item_column)
    sizes = (
        "width",
        "length",
        "dropout",
        "num_blocks",
        "num_heads",
        "hidden",
        "num_vertical",
        "num_horizontal",
        "tied",
    )
    named = {name: getattr(config, name) for name in sizes}
    return build_encoder(config.encoder, len(train.items), **named, features_NF=features, generator=generator)


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train the encoder on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: `InputError` where nobody has two interactions.
    """
    began, config = time.monotonic(), config or Config()
    task = SequenceTask(split.train, config, seed=options.get("seed", 0))
    options = with_less_time(options, time.monotonic() - began)
    return fit_vectors(task, split, config, method=config.encoder, **options)
