"""A small task with all state that a resume must restore: dropout, batch statistics, a sampler, two optimisers."""

import numpy as np
import torch
from torch import nn

from beamwood.training.optimisers import Optimiser
from beamwood.training.trainable import Trainable

NUM_ROWS = 37


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.table = nn.Embedding(NUM_ROWS, 4, sparse=True)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)

    def forward(self, rows):
        return self.body(self.table(rows)).squeeze(-1)


class LinearTask(Trainable):
    """Labels 1 for even rows and 0 for odd ones, with noise from the run's generator."""

    num_examples = NUM_ROWS

    def __init__(self, *, learning_rate=0.05):
        self.learning_rate = learning_rate

    def prepare(self, rng, budget):
        self.model = Network()

    def optimisers(self):
        table, body = self.model.table.parameters(), self.model.body.parameters()
        return [Optimiser.over(table, self.learning_rate), Optimiser.over(body, self.learning_rate / 2, amsgrad=True)]

    def batch(self, rows, rng, progress):
        noise = 0.1 * torch.randn(len(rows), generator=rng)
        return torch.from_numpy(rows), noise + torch.from_numpy((rows % 2 == 0).astype(np.float32))

    def loss(self, batch, rng):
        rows, labels = batch
        return (self.model(rows) - labels).square()

    def evaluate(self):
        rows = torch.arange(NUM_ROWS)
        assert not self.model.training
        torch.rand(3)
        error = (self.model(rows) - (rows % 2 == 0).float()).square().mean()
        return {"fit": -float(error), "other": 0.0}
