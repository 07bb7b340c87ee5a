"""Two towers trained with negatives from the batch: SSL, SSL-Pop, MNS, G-Tower, BIR, XIR, or the full softmax.

Shape legend: B pairs of a batch, L history length, C candidates, D width.
Source: "Cache-Augmented Inbatch Importance Resampling for Training Recommender Retriever" (XIR), and see
`sampling.in_batch` for each sampler.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.columns import item_features
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.repeats import RepeatConfig, fit_vectors
from beamwood.fitting.settings import HistoryLength
from beamwood.fitting.vectors.item_start import Start, starts_from_transitions, transition_vectors
from beamwood.losses.softmax import catalogue_softmax
from beamwood.models.encoders import build_encoder
from beamwood.models.pairs import IdTable
from beamwood.models.sequence import SequenceModel
from beamwood.models.two_tower import MeanTower, TwoTower, UserTable
from beamwood.retrieval.ann import FaissIndex
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.two_tower import TwoTowerSearcher
from beamwood.sampling.in_batch import Pairs, make_sampler
from beamwood.training.lazy_adam import EmbeddingOptimizer, LazyAdam, sparse_gradients
from beamwood.types import ItemLists

__all__ = ["TRAINS", "Config", "TwoTowerTask", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(RepeatConfig):
    """Two towers; the study's own: user_tower mf, width 32, item_start random, repeat_weight 0."""

    user_tower: Literal["mf", "mean", "sasrec", "gru4rec", "caser", "fmlp"] = Field(
        "mean", description="by user id (mf), or from the history: its mean, or a sequence encoder"
    )
    negatives: Literal["full", "ssl", "ssl-pop", "mns", "g-tower", "bir", "xir"] = "xir"
    width: int = Field(64, ge=1)
    length: HistoryLength = Field(
        69, description="latest history items that count; caser's filters grow with its square"
    )
    num_blocks: int = Field(2, ge=1, description="of user_tower=sasrec and fmlp")
    num_heads: int = Field(2, ge=1, description="of user_tower=sasrec")
    hidden: int = Field(128, ge=1, description="recurrent units of user_tower=gru4rec")
    num_vertical: int = Field(4, ge=1, description="vertical filters of user_tower=caser")
    num_horizontal: int = Field(16, ge=1, description="horizontal filters of user_tower=caser for each height")
    dropout: float = Field(0.2, ge=0, lt=1, description="of a sequence encoder")
    normalise: bool = Field(False, description="score by directions alone; then set temperature to about 0.1")
    temperature: float = Field(1.0, gt=0)
    item_start: Start = Field(
        "auto",
        description="transitions: the item vectors of both towers start from what follows what; auto: that, with a "
        "history tower, up to 2,000,000 items; random: the study",
    )
    item_columns: tuple[str, ...] = Field((), description="columns of the item table, as name or name:kind")
    correction: Literal["sampled", "program"] = "sampled"
    form: Literal["resampled", "weighted", "corrected"] = Field("resampled", description="of BIR")
    draw: Literal["systematic", "independent"] = Field("systematic", description="of BIR and XIR")
    cache_share: float = Field(0.5, ge=0, le=1, description="XIR's lambda: the share of the cache's softmax")
    cache_counts: Literal["step", "all"] = Field(
        "step", description="XIR's cache is drawn by how often its items were, in the last step or in all"
    )
    num_uniform: int | None = Field(None, ge=1, description="of MNS; null: as many as the batch")
    rate: float = Field(0.01, gt=0, le=1, description="of G-Tower; the paper's 1e-4 for long streams")
    index: Literal["exact", "faiss"] = Field("exact", description="how answers are found; faiss needs the extra ann")
    mask_known: bool = Field(True, description="a user's other training items are no negatives")
    learning_rate: float = Field(1e-2, gt=0)
    weight_decay: float = Field(1e-5, ge=0, description="L2, as Adam has it (coupled)")
    embedding_optimizer: EmbeddingOptimizer = "auto"
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "linear"
    warmup_steps: int = Field(0, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(2048, ge=2)
    max_epochs: int = Field(30, ge=1)
    max_steps: int | None = Field(None, ge=1, description="besides max_epochs; the smaller counts")
    evaluate_every: int = Field(200, ge=1)
    patience: int = Field(8, ge=1)
    clip_norm: float | None = Field(None, gt=0)
    validation_users: int = Field(2000, ge=1)
    monitor: str = "new/ndcg@20"


@dataclass(frozen=True, slots=True)
class Batch:
    """`users_B`, `items_B` int64; `histories_BL` int64, -1 padding on the left; `known` the users' training items."""

    users_B: Tensor
    items_B: Tensor
    histories_BL: Tensor
    known: ItemLists


class TwoTowerTask:
    """Every training interaction is an example: its user, its item, and the user's items before it."""

    def __init__(self, train: Dataset, config: Config, *, seed: int) -> None:
        self.config, self.histories = config, train.histories
        self.generator = torch.Generator().manual_seed(seed)
        self.num_items = len(train.items)
        starts = np.repeat(train.histories.indptr[:-1], train.histories.lengths)
        positions = np.arange(len(starts))
        # A history tower needs something before the item.
        self.positions = positions if config.user_tower == "mf" else positions[positions > starts]
        self.starts = starts
        self.num_examples = len(self.positions)
        if self.num_examples == 0:
            raise InputError("no user has two interactions to train on; give a longer log")
        self.users = train.histories.rows
        # Each item once: a repeat would be looked for among all candidates again.
        self.known = train.histories.distinct() if config.mask_known else ItemLists.empty(len(train.histories))
        self.model = build_model(train, config, self.generator)
        if starts_from_transitions(config.item_start, self.num_items, possible=config.user_tower != "mf"):
            start_towers(self.model, train, seed)
        # The full softmax moves every item.
        lazy = self.model.users if config.negatives == "full" else self.model
        sparse_gradients(lazy, config.embedding_optimizer)
        self.sampler = None
        if config.negatives != "full":
            self.sampler = make_sampler(
                config.negatives,
                # Of the examples: a history tower never has a user's first item as a positive.
                np.bincount(train.histories.items[self.positions], minlength=self.num_items),
                batch_size=config.batch_size,
                num_uniform=config.num_uniform,
                correction=config.correction,
                form=config.form,
                draw=config.draw,
                cache_share=config.cache_share,
                rate=config.rate,
                cache_counts=config.cache_counts,
            )
        self.optimizers = [LazyAdam(self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)]

    def state(self) -> dict[str, Any]:
        """The generator, and what the sampler keeps between steps (XIR's cache, G-Tower's gaps)."""
        sampler = {} if self.sampler is None else self.sampler.state()
        return {"generator": self.generator.get_state(), "sampler": sampler}

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        if self.sampler is not None:
            self.sampler.load_state(state["sampler"])

    def batch(self, rows: np.ndarray) -> Batch:
        """The given interactions; with a history tower, the user's latest items before each."""
        at = self.positions[rows]
        users = self.users[at]
        if self.config.user_tower == "mf":
            histories = np.empty((len(rows), 0), np.int64)
        else:
            first = np.maximum(self.starts[at], at - self.config.length)
            histories = self.histories.slices(first, at).padded(self.config.length).astype(np.int64)
        return Batch(
            torch.from_numpy(users),
            torch.from_numpy(self.histories.items[at].astype(np.int64)),
            torch.from_numpy(histories),
            self.known.take(users),
        )

    def loss(self, batch: Batch) -> Tensor:
        """[B], the softmax of each interaction against its negatives."""
        vectors_BD = self.model.user_vectors(batch.users_B, batch.histories_BL)
        if self.sampler is None:
            every = self.model.item_vectors(torch.arange(self.num_items))
            known = torch.from_numpy(np.stack([batch.known.rows, batch.known.items]))
            return catalogue_softmax(vectors_BD, every, batch.items_B, known)
        candidates = self.sampler.candidates(batch.items_B, self.generator)
        items_CD = self.model.item_vectors(candidates)
        # A product of its own: the backward of a diagonal would fill a whole matrix with zeros.
        positive_B = (vectors_BD * items_CD[: len(batch.items_B)]).sum(dim=1)
        repeats = self.sampler.masks_repeats
        masked = masked_candidates(batch.items_B, candidates, batch.known, self.num_items, repeats=repeats)
        return self.sampler.losses(Pairs(vectors_BD, items_CD, positive_B, candidates, masked), self.generator)

    def searcher(self, *, index: Literal["exact", "faiss"] = "exact") -> TwoTowerSearcher:
        """A searcher of the weights as they are now."""
        config, users = self.config, self.model.users
        arrays: dict[str, NDArray[Any]]
        if isinstance(users, SequenceModel):
            arrays = dict(users.export())
        elif isinstance(users, UserTable):
            table = users.users.weight.detach().numpy().copy()
            # Decay alone moves the rows of users without a training event: they are unknown, whatever their index.
            trained_U = self.histories.lengths > 0
            table[~trained_U] = table[trained_U].mean(axis=0)
            arrays = {"users": table}
        else:
            arrays = {"history": users.items.weight.detach().numpy()[:-1].copy()}
        return TwoTowerSearcher(
            self.model.all_item_vectors(),
            arrays,
            tower=config.user_tower,
            normalise=config.normalise,
            temperature=config.temperature,
            length=config.length,
            num_heads=config.num_heads,
            index=index,
        )


def masked_candidates(
    items_B: Tensor, candidates_C: Tensor, known: ItemLists, num_items: int, *, repeats: bool = True
) -> Tensor:
    """bool[B, C]: the candidate is one of the user's `known` items, or the row's positive.

    With `repeats=False` only the row's own column of the positive, the b-th, though `known` holds the item as well.
    """
    # Candidates in the order of their items: those of an item stand side by side, repeats and all.
    order = np.argsort(candidates_C.numpy(), kind="stable")
    times = np.bincount(candidates_C.numpy(), minlength=num_items)
    first = np.cumsum(times) - times
    items = np.concatenate([known.items, items_B.numpy()])
    rows = np.concatenate([known.rows, np.arange(len(items_B))])
    hits = np.flatnonzero((times[items] > 0) & (repeats | (items != items_B.numpy()[rows])))
    items, rows = items[hits], rows[hits]
    ends = np.cumsum(times[items])
    places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times[items] - first[items], times[items])
    mask = np.zeros((len(items_B), len(candidates_C)), bool)
    mask[np.repeat(rows, times[items]), order[places]] = True
    np.fill_diagonal(mask, True)
    return torch.from_numpy(mask)


def build_model(train: Dataset, config: Config, generator: torch.Generator) -> TwoTower:
    """The towers of a configuration."""
    num_items = len(train.items)
    users: UserTable | MeanTower | SequenceModel
    if config.user_tower == "mf":
        users = UserTable(len(train.users), config.width, generator)
    elif config.user_tower == "mean":
        users = MeanTower(num_items, config.width, generator)
    else:
        sizes = ("width", "length", "dropout", "num_blocks", "num_heads", "hidden", "num_vertical", "num_horizontal")
        named = {name: getattr(config, name) for name in sizes}
        users = build_encoder(config.user_tower, num_items, **named, generator=generator)
    columns = item_features(train, config.item_columns)
    items = IdTable(num_items, config.width, columns, std=0.1, generator=generator)
    return TwoTower(users, items, normalise=config.normalise, temperature=config.temperature)


def start_towers(model: TwoTower, train: Dataset, seed: int) -> None:
    """Put `transition_vectors` in the place of both towers' drawn item vectors; one without neighbours keeps its own.

    So a history's mean is near what follows what it holds before the first step. Errors: `InputError` for a tower of
    user ids.
    """
    if isinstance(model.users, UserTable):
        raise InputError("item_start=transitions is for a history tower; leave it out, or set user_tower=mean")
    vectors = torch.from_numpy(transition_vectors(train, model.items.ids.embedding_dim, seed))
    known = torch.nonzero(vectors.any(dim=1)).ravel()
    with torch.no_grad():
        for table in (model.items.ids, model.users.items):
            table.weight[known] = vectors[known]


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train two towers on `split.train`, keeping the weights that are best on `split.valid`.

    Matrix factorisation (`user_tower="mf"`) knows the users of training only, so it needs a split that keeps users in
    training (leave-one-out, time or boundary); one without a training event has the mean vector of the others. Errors:
    `InputError` there, and on columns that do not exist.
    """
    config = config or Config()
    if config.user_tower == "mf" and split.name == "users":
        raise InputError(
            "user_tower=mf knows the users of training only, but --split users tests on others; use --split "
            "leave-one-out, time or boundary, or user_tower=mean"
        )
    if config.index == "faiss":
        FaissIndex(np.zeros((1, 2), np.float32))  # says what is missing before the training, not after
    began = time.monotonic()
    task = TwoTowerTask(split.train, config, seed=options.get("seed", 0))
    options = with_less_time(options, time.monotonic() - began)
    return fit_vectors(
        task, split, config, method="two_tower", answers=lambda: task.searcher(index=config.index), **options
    )
