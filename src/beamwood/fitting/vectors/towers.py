"""Two towers trained with negatives from the batch: SSL, SSL-Pop, MNS, G-Tower, BIR, XIR, or the full softmax.

Shape legend: B pairs of a batch, L history length, C candidates, D width.
Source: "Cache-Augmented Inbatch Importance Resampling for Training Recommender Retriever" (XIR), and see
`sampling.in_batch` for each sampler.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.columns import item_features
from beamwood.fitting.options import check_part
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.item_start import start_from_transitions
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.tower_settings import TowerConfig
from beamwood.losses.softmax import catalogue_softmax
from beamwood.models.encoders import ENCODERS
from beamwood.models.pairs import IdVectors
from beamwood.models.sequence import SequenceModel
from beamwood.models.two_tower import MeanTower, TwoTower, UserTable
from beamwood.ragged import ranges
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.queries import EncodedHistory, HistoryMean, Scaled, UserVectors
from beamwood.retrieval.searchers.query_vectors import QueryVectors
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.sampling.checks import check_candidates, check_losses
from beamwood.sampling.in_batch import InBatchSampler, Pairs, make_sampler
from beamwood.training.budget import Budget
from beamwood.training.lazy_adam import sparse_gradients
from beamwood.training.optimisers import Optimiser
from beamwood.training.trainable import Progress
from beamwood.types import ItemLists

__all__ = ["TwoTowerTask", "fit_towers"]


@dataclass(frozen=True, slots=True)
class PairBatch:
    """`users_B`, `items_B` int64; `histories_BL` int64, -1 padding on the left; `known` the users' training items."""

    users_B: Tensor
    items_B: Tensor
    histories_BL: Tensor
    known: ItemLists


class TwoTowerTask(SearchedTask[PairBatch]):
    """Training on every interaction: the target is its item, the input its user or the user's earlier items.

    With a horizon h > 1 the history ends at a random one of the h places before the item, with 0 at any earlier place.
    `sampler`: replaces that of `loss.negatives`, by a copy.
    """

    model: TwoTower

    def __init__(self, train: Dataset, config: TowerConfig, sampler: InBatchSampler | None = None) -> None:
        self.config, self.train, self.histories = config, train, train.histories
        self.num_items = train.num_items
        starts = np.repeat(train.histories.indptr[:-1], train.histories.lengths)
        positions = np.arange(len(starts))
        # A history tower needs an item before the target.
        self.positions = positions if config.model.user_tower == "mf" else positions[positions > starts]
        self.starts = starts
        self.num_examples = len(self.positions)
        if self.num_examples == 0:
            raise InputError("no user has two interactions to train on; give a longer log")
        self.users = train.histories.rows
        loss = config.loss
        assert loss.mask_known is not None, "a plan resolves it"
        self.known = train.histories.distinct() if loss.mask_known else ItemLists.empty(len(train.histories))
        self.sampler = copy.deepcopy(sampler)
        if sampler is None and loss.negatives != "full":
            self.sampler = make_sampler(
                loss.negatives,
                # Counts of the examples: a user's first item is never a positive of a history tower.
                np.bincount(train.histories.items[self.positions], minlength=self.num_items),
                batch_size=config.loop.batch_size,
                num_uniform=loss.num_uniform,
                correction=loss.correction,
                form=loss.form,
                draw=loss.draw,
                cache_share=loss.cache_share,
                rate=loss.rate,
                cache_counts=loss.cache_counts,
            )

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Initialise the towers, with item vectors by `start.items`."""
        config = self.config
        self.model = _build_towers(self.train, config, rng)
        assert config.start.items != "auto", "a plan resolves it"
        if config.start.items == "transitions":
            users = self.model.users
            if isinstance(users, UserTable):
                raise InputError(
                    "start.items=transitions is for a history tower; leave it out, or set model.user_tower=mean"
                )
            # In both towers, so that the mean of a history is near its likely next items before the first step.
            assert isinstance(users.items, nn.Embedding | nn.EmbeddingBag), "a tower has no item column"
            start_from_transitions([self.model.items.ids, users.items], self.train, rng.initial_seed(), budget)
        # The full softmax moves every item.
        lazy = self.model.users if self.sampler is None else self.model
        sparse_gradients(lazy, config.optimiser.embeddings)

    def optimisers(self) -> list[Optimiser]:
        """Adam with L2."""
        return [Optimiser.over(self.model.parameters(), decay=self.config.optimiser.weight_decay)]

    def state(self) -> dict[str, Any]:
        """The sampler's state between steps (XIR's cache, G-Tower's gaps)."""
        return {} if self.sampler is None else self.sampler.state()

    def load_state(self, state: dict[str, Any]) -> None:
        if self.sampler is not None:
            self.sampler.load_state(state)

    def batch(self, rows: np.ndarray, rng: torch.Generator, progress: Progress) -> PairBatch:
        """The given interactions; for a history tower with the user's latest items before the end of the history."""
        at = self.positions[rows]
        users = self.users[at]
        if self.config.model.user_tower == "mf":
            histories = np.empty((len(rows), 0), np.int64)
        else:
            ends = at - self._ahead(at, rng)
            first = np.maximum(self.starts[at], ends - self.config.model.length)
            histories = self.histories.slices(first, ends).padded(self.config.model.length).astype(np.int64)
        return PairBatch(
            torch.from_numpy(users),
            torch.from_numpy(self.histories.items[at].astype(np.int64)),
            torch.from_numpy(histories),
            self.known.take(users),
        )

    def _ahead(self, at: NDArray[np.int64], rng: torch.Generator) -> NDArray[np.int64]:
        """The number of items skipped between history and target; at least one history item remains."""
        horizon = self.config.examples.horizon
        if horizon == 1:
            return np.zeros_like(at)
        most = at - self.starts[at]
        most = np.minimum(most, horizon) if horizon else most
        between: NDArray[np.int64] = (torch.rand(len(at), generator=rng).double().numpy() * most).astype(np.int64)
        return between

    def loss(self, batch: PairBatch, rng: torch.Generator) -> Tensor:
        """[B], the softmax of each interaction against its negatives."""
        vectors_BD = self.model.user_vectors(batch.users_B, batch.histories_BL)
        if self.sampler is None:
            every = self.model.item_vectors(torch.arange(self.num_items, device=batch.items_B.device))
            known = torch.from_numpy(np.stack([batch.known.rows, batch.known.items])).to(batch.items_B.device)
            return catalogue_softmax(vectors_BD, every, batch.items_B, known)
        # The sampler and the mask run on the CPU.
        items_B, device = batch.items_B.cpu(), batch.items_B.device
        candidates = self.sampler.candidates(items_B, rng)
        check_candidates(candidates, items_B, self.num_items)
        items_CD = self.model.item_vectors(candidates.to(device))
        # Not the diagonal of all scores, whose backward pass would fill a whole matrix with zeros.
        positive_B = (vectors_BD * items_CD[: len(batch.items_B)]).sum(dim=1)
        repeats = self.sampler.masks_repeats
        masked = masked_candidates(items_B, candidates, batch.known, repeats=repeats).to(device)
        losses = self.sampler.losses(Pairs(vectors_BD, items_CD, positive_B, candidates, masked), rng)
        check_losses(losses, len(items_B))
        return losses

    def searcher(self) -> VectorSearcher:
        """A searcher of the current weights."""
        model, users = self.config.model, self.model.users
        queries: QueryVectors
        if isinstance(users, SequenceModel):
            queries = EncodedHistory(users.plain())
        elif isinstance(users, UserTable):
            table = users.users.weight.detach().numpy().copy()
            # Users without a training event were only decayed, so they count as unknown.
            trained_U = self.histories.lengths > 0
            table[~trained_U] = table[trained_U].mean(axis=0)
            queries = UserVectors(table)
        else:
            queries = HistoryMean(users.items.weight.detach().numpy()[:-1].copy(), length=model.length)
        queries = Scaled(queries, normalise=model.normalise, temperature=model.temperature)
        return VectorSearcher(queries, self.model.all_item_vectors())


def masked_candidates(items_B: Tensor, candidates_C: Tensor, known: ItemLists, *, repeats: bool = True) -> Tensor:
    """bool[B, C]: whether the candidate is one of the user's `known` items, or the row's positive.

    With `repeats=False` only column b of the positive is masked, even where `known` has the item.
    """
    # Candidates sorted by item, so that repeats are adjacent.
    order = np.argsort(candidates_C.numpy(), kind="stable")
    ordered = candidates_C.numpy()[order]
    items = np.concatenate([known.items, items_B.numpy()])
    rows = np.concatenate([known.rows, np.arange(len(items_B))])
    # Not a count of every item, which takes time in proportion to the catalogue in each step.
    first = np.searchsorted(ordered, items)
    times = np.searchsorted(ordered, items, side="right") - first
    hits = np.flatnonzero((times > 0) & (repeats | (items != items_B.numpy()[rows])))
    mask = np.zeros((len(items_B), len(candidates_C)), bool)
    mask[np.repeat(rows[hits], times[hits]), order[ranges(first[hits], times[hits])]] = True
    np.fill_diagonal(mask, True)
    return torch.from_numpy(mask)


def _build_towers(train: Dataset, config: TowerConfig, generator: torch.Generator) -> TwoTower:
    """The towers of a configuration."""
    num_items, model = train.num_items, config.model
    users: UserTable | MeanTower | SequenceModel
    if model.user_tower == "mf":
        users = UserTable(len(train.users), model.width, generator)
    elif model.user_tower == "mean":
        users = MeanTower(num_items, model.width, generator)
    else:
        encoder = ENCODERS[model.user_tower]
        users = SequenceModel(
            encoder,
            num_items,
            width=model.width,
            length=model.length,
            dropout=model.dropout,
            sizes=encoder.sizes.among(model),
            generator=generator,
        )
    columns = item_features(train, model.item_columns)
    items = IdVectors(num_items, model.width, columns, std=0.1, generator=generator)
    return TwoTower(users, items, normalise=model.normalise, temperature=model.temperature)


def fit_towers(
    split: Split, config: TowerConfig, *, sampler: InBatchSampler | None = None, **options: Unpack[VectorOptions]
) -> Retriever:
    """Train two towers on `split.train`, keeping the weights that are best on `split.valid`.

    Matrix factorisation (`model.user_tower="mf"`) needs known users, and so a split that keeps users in training
    (leave-one-out, time or boundary); users without a training event get the mean user vector. `sampler`: replaces that
    of `loss.negatives`; the mask and the plan still follow `loss.mask_known` and `loss.negatives`. Errors: `InputError`
    on columns that do not exist, and on what the sampler must not return.
    """
    check_part("sampler", sampler, isinstance(sampler, InBatchSampler), "an object of InBatchSampler, such as Mine()")
    task = TwoTowerTask(split.train, config, sampler)
    # The mean of transition vectors is a useful model before any training, and so is validated.
    started = config.start.items == "transitions" and config.model.user_tower == "mean"
    return fit_vectors(task, split, config, method="two_tower", evaluate_start=started, **options)
