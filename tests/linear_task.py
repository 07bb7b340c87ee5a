"""A small task with everything a resume must restore: dropout, batch statistics, a sampler, two optimisers."""

import numpy as np
import torch
from torch import nn

from beamwood.training.lazy_adam import LazyAdam

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


class LinearTask:
    """Rows whose number is even are 1, others 0, with noise of the task's own generator."""

    num_examples = NUM_ROWS

    def __init__(self, *, learning_rate=0.05):
        self.model = Network()
        self.optimizers = [
            LazyAdam([self.model.table.weight], lr=learning_rate),
            torch.optim.Adam(self.model.body.parameters(), lr=learning_rate / 2, amsgrad=True),
        ]
        self.generator = torch.Generator().manual_seed(5)

    def batch(self, rows):
        noise = 0.1 * torch.randn(len(rows), generator=self.generator)
        return torch.from_numpy(rows), noise + torch.from_numpy((rows % 2 == 0).astype(np.float32))

    def loss(self, batch):
        rows, labels = batch
        return (self.model(rows) - labels).square()

    def state(self):
        return {"generator": self.generator.get_state()}

    def load_state(self, state):
        self.generator.set_state(state["generator"])

    def evaluate(self):
        rows = torch.arange(NUM_ROWS)
        assert not self.model.training
        torch.rand(3)
        error = (self.model(rows) - (rows % 2 == 0).float()).square().mean()
        return {"fit": -float(error), "other": 0.0}
