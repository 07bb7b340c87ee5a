"""LightGCN: user and item vectors, averaged over the layers of the interaction graph, trained by BPR."""

import numpy as np
import torch
from torch.nn.functional import softplus

from beamwood.fitting.counting import interactions
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.settings import LoopSettings
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.settings import VectorConfig
from beamwood.methods import Method, Needs
from beamwood.retrieval.searchers.queries import UserVectors
from beamwood.retrieval.searchers.vectors import VectorSearcher


class Config(VectorConfig):
    """64 columns and three layers, as in the paper."""

    loop: LoopSettings = LoopSettings(batch_size=2048, max_epochs=200)


class Pairs(SearchedTask):
    """Each interaction against a sampled item."""

    def __init__(self, train, layers=3):
        self.train, self.layers, self.num_examples = train, layers, len(train.histories.items)
        taken = interactions(train.histories, train.num_items).tocoo()
        degrees = [np.maximum(np.asarray(taken.sum(axis=axis)).ravel(), 1) for axis in (1, 0)]
        values = taken.data / np.sqrt(degrees[0][taken.row] * degrees[1][taken.col])
        places = torch.from_numpy(np.stack([taken.row, taken.col]).astype(np.int64))
        self.graph = torch.sparse_coo_tensor(places, torch.from_numpy(values).float(), taken.shape).coalesce()

    def prepare(self, rng, budget):
        drawn = [torch.empty(size, 64).normal_(std=0.1, generator=rng) for size in self.graph.shape]
        self.model = torch.nn.ParameterList(torch.nn.Parameter(table) for table in drawn)

    def vectors(self):
        layers = [tuple(self.model)]
        for _ in range(self.layers):
            users, items = layers[-1]
            layers.append((self.graph @ items, self.graph.T @ users))
        return [torch.stack(each).mean(dim=0) for each in zip(*layers, strict=True)]

    def batch(self, rows, rng, progress):
        drawn = torch.randint(self.train.num_items, (len(rows),), generator=rng)
        at = self.train.histories.rows[rows], self.train.histories.items[rows].astype(np.int64)
        return (*map(torch.from_numpy, at), drawn)

    def loss(self, batch, rng):
        (users, items), (asked, taken, others) = self.vectors(), batch
        return softplus((users[asked] * (items[others] - items[taken])).sum(dim=1))

    @torch.no_grad()
    def searcher(self):
        users, items = self.vectors()
        return VectorSearcher(UserVectors(users.numpy()), items.numpy())


def fit(split, config, **options):
    return fit_vectors(Pairs(split.train), split, config, method="light-gcn", **options)


METHOD = Method("light-gcn", "vectors averaged over a graph", Config, fit, needs=Needs(steps=True, users=True))
