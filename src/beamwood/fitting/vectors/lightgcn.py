"""The training of LightGCN by BPR (`models.lightgcn`); with K = 0 layers it is matrix factorisation by BPR.

Shape legend: B pairs, V = U + N nodes of the graph (users, then items), D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.data.unseen import UnseenItems
from beamwood.errors import InputError
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.lightgcn_settings import LightGcnConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.losses.ranking import bpr
from beamwood.models.lightgcn import Graph, GraphVectors
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.folded import FoldedUsers
from beamwood.retrieval.searchers.queries import UserVectors
from beamwood.retrieval.searchers.query_vectors import QueryVectors
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.budget import Budget
from beamwood.training.trainable import Progress

__all__ = ["LightGcnTask", "fit_lightgcn"]


@dataclass(frozen=True, slots=True)
class TripletBatch:
    """`nodes_B3` int64: a user, an item of the user, and another item."""

    nodes_B3: Tensor


class LightGcnTask(SearchedTask[TripletBatch]):
    """Triplets of a uniformly drawn user, an item of the user, and another item; an epoch has one for each edge."""

    model: GraphVectors

    def __init__(self, train: Dataset, config: LightGcnConfig) -> None:
        self.config, self.num_items, self.num_users = config, train.num_items, len(train.histories)
        self.positives = train.histories.distinct()
        counts = self.positives.lengths
        self.drawn = np.flatnonzero((counts > 0) & (counts < self.num_items))
        if len(self.drawn) == 0:
            raise InputError("no training user has some items but not all; give a longer log")
        self.num_examples = len(self.positives.items)
        self.graph = Graph(self.positives, self.num_items, config.model.num_layers)
        self.unseen = UnseenItems(self.positives, self.num_items)

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Initialise the vectors."""
        del budget
        self.model = GraphVectors(self.graph, self.config.model.width, rng)

    def batch(self, rows: NDArray[np.int64], rng: torch.Generator, progress: Progress) -> TripletBatch:
        """One random triplet for each row; which rows does not matter."""
        del progress
        draws_B3 = torch.rand((len(rows), 3), generator=rng, dtype=torch.float64).numpy()
        users = self.drawn[(draws_B3[:, 0] * len(self.drawn)).astype(np.int64)]
        first, counts = self.positives.indptr[users], self.positives.lengths[users]
        items = self.positives.items[first + (draws_B3[:, 1] * counts).astype(np.int64)]
        others = self.unseen.draw(users, draws_B3[:, 2:])[:, 0]
        nodes: list[NDArray[Any]] = [users, items + self.num_users, others + self.num_users]
        return TripletBatch(torch.from_numpy(np.stack(nodes, axis=1).astype(np.int64)))

    def loss(self, batch: TripletBatch, rng: torch.Generator) -> Tensor:
        """[B], BPR of the averaged vectors, and half the squared length of the three E_0 times `regularisation`."""
        del rng
        vectors_B3D, starts_B3D = self.model(batch.nodes_B3)
        user_BD, positive_BD, negative_BD = vectors_B3D.unbind(dim=1)
        lengths_B = starts_B3D.square().sum(dim=(1, 2))
        ranked_B = bpr((user_BD * positive_BD).sum(dim=1), (user_BD * negative_BD).sum(dim=1))
        losses_B: Tensor = ranked_B + self.config.loss.regularisation / 2 * lengths_B
        return losses_B

    def searcher(self) -> VectorSearcher:
        """A searcher of the current weights."""
        graph, layers, first = self.graph, self.graph.num_layers, self.num_users
        table = self.model.table.detach().numpy()
        vectors_VD = graph.summed(table, layers + 1) / np.float32(layers + 1)
        users, items = vectors_VD[:first].copy(), vectors_VD[first:].copy()
        trained = self.positives.lengths > 0
        queries: QueryVectors
        if layers == 0:
            users[~trained] = users[trained].mean(axis=0)
            return VectorSearcher(UserVectors(users), items)
        edges = graph.summed(table, layers)[first:] * graph.scale_V[first:, None] / np.float32(layers + 1)
        users[~trained] = 0
        queries = FoldedUsers(edges, users if self.config.model.known_users == "trained" else None)
        return VectorSearcher(queries, items)


def fit_lightgcn(split: Split, config: LightGcnConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """Train on the graph of `split.train`, keeping the vectors that are best on `split.valid`.

    Errors: `InputError` where every user has no item, or every item.
    """
    return fit_vectors(LightGcnTask(split.train, config), split, config, method="lightgcn", **options)
