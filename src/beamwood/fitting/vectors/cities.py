"""CITIES: rare items of a fitted sequence model get vectors inferred from the items around them.

Shape legend: B items of a step, P contexts, W places of a context, D width.
Source: Jang et al., "CITIES: Contextual Inference of Tail-Item Embeddings for Sequential Recommendation".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.blocks import evenly, slices
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.vectors.cities_settings import CitiesConfig
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.item_contexts import Occurrences, replaced_vectors
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.sequence_start import tied_sequence
from beamwood.models.cities import ContextModel
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.budget import Budget, Clock, estimated_seconds
from beamwood.training.trainable import Progress
from beamwood.types import IndexArray

__all__ = ["CitiesTask", "fit_cities"]


@dataclass(frozen=True, slots=True)
class ContextBatch:
    """`items_B`, and contexts `contexts_PW` of them; `rows` int64[P]: the row in `items_B` of each context."""

    items_B: Tensor
    rows: Tensor
    contexts_PW: Tensor


class CitiesTask(SearchedTask[ContextBatch]):
    """Learns to infer the vector of a frequent item from 1..K of its contexts, as if it were rare."""

    model: ContextModel

    def __init__(self, split: Split, config: CitiesConfig) -> None:
        train = split.train
        self.config = config
        self.before = tied_sequence(config.start.folder, split)
        self.contexts = Occurrences.of(train.histories, train.num_items)
        counts = self.contexts.counts
        self.head = np.flatnonzero(counts > config.examples.rare)
        self.tail = np.flatnonzero((counts > 0) & (counts <= config.examples.rare))
        if len(self.head) == 0:
            raise InputError(f"no item has more than examples.rare={config.examples.rare} interactions; lower it")
        self.num_examples = len(self.head)
        width = self.before.encoder.vectors.shape[1]
        if width % config.model.num_heads:
            raise InputError(
                f"model.num_heads={config.model.num_heads} does not divide the fitted model's width {width}"
            )

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Initialise the network that infers vectors from contexts."""
        model = self.config.model
        self.model = ContextModel(
            self.before.encoder.vectors,
            reach=self.config.examples.reach,
            num_heads=model.num_heads,
            dropout=model.dropout,
            generator=rng,
        )

    def batch(self, rows: NDArray[np.int64], rng: torch.Generator, progress: Progress) -> ContextBatch:
        """The given items, each with a random number of its occurrences."""
        most = torch.randint(1, self.config.examples.max_contexts + 1, (len(rows),), generator=rng).numpy()
        return self.context_batch(self.head[rows], most, rng)

    def context_batch(self, items_B: IndexArray, most_B: IndexArray, generator: torch.Generator) -> ContextBatch:
        """Up to `most_B` random contexts of each item."""
        rows, places = self.contexts.draw(items_B, most_B, generator)
        histories, at = self.contexts.histories, self.contexts.positions[places]
        users = np.searchsorted(histories.indptr, at, side="right") - 1
        around = at[:, None] + np.arange(-self.config.examples.reach, self.config.examples.reach + 1)
        inside = (around >= histories.indptr[users, None]) & (around < histories.indptr[users + 1, None])
        contexts = np.where(inside, histories.items[np.where(inside, around, 0)], -1).astype(np.int64)
        return ContextBatch(*map(torch.from_numpy, (np.asarray(items_B, np.int64), rows, contexts)))

    def loss(self, batch: ContextBatch, rng: torch.Generator) -> Tensor:
        """[B], the squared error of each item's vector."""
        inferred: Tensor = self.model(batch.rows, batch.contexts_PW, len(batch.items_B))
        return (inferred - self.model.vectors[batch.items_B]).square().sum(dim=1)

    def searcher(self) -> VectorSearcher:
        """The fitted model with the rare items' vectors inferred."""
        return replaced_vectors(self.before, self.tail, self.inferred(self.tail))

    def sample(self, clock: Clock) -> tuple[VectorSearcher, float]:
        """The fitted searcher, and the seconds of inferring all rare items' vectors, extrapolated from a few."""
        tail = self.tail
        seconds = estimated_seconds(lambda num: self.inferred(tail[evenly(len(tail), num)]), len(tail), clock)
        return replaced_vectors(self.before, tail[:0], self.model.vectors[:0].numpy()), seconds

    @torch.no_grad()
    def inferred(self, items: IndexArray) -> NDArray[np.float32]:
        """float32[B, D], vectors inferred from up to `examples.max_contexts` contexts of each item."""
        training, generator = self.model.training, torch.Generator().manual_seed(0)
        self.model.eval()
        parts = [np.empty((0, self.model.vectors.shape[1]), np.float32)]
        for part in slices(len(items), 256):
            some = items[part]
            batch = self.context_batch(some, np.full(len(some), self.config.examples.max_contexts), generator)
            parts.append(self.model(batch.rows, batch.contexts_PW, len(some)).numpy())
        self.model.train(training)
        return np.concatenate(parts)


def fit_cities(split: Split, config: CitiesConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """Train the inference on frequent items, keeping the weights that are best on `split.valid`, and apply it to rare
    ones.

    Errors: `InputError` without `start.folder`, on one of another log or split, and on one with untied vectors.
    """
    return fit_vectors(CitiesTask(split, config), split, config, method="cities", **options)
