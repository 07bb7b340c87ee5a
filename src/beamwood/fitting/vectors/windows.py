"""Training a sequence encoder on windows of users' histories; subclasses define the loss of an example.

Shape legend: B sequences, L history length, X examples of a step, D width.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.errors import InputError
from beamwood.fitting.searched_task import SearchedTask
from beamwood.models.encoder import Encoder
from beamwood.models.sequence import SequenceModel
from beamwood.training.trainable import Progress

__all__ = ["WindowBatch", "WindowTask"]


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """`items_BL` int64, -1 padding on the left; `targets_BL` int64, -1 for none, [B, 1] where only the last counts."""

    items_BL: Tensor
    targets_BL: Tensor


class WindowTask(SearchedTask[WindowBatch]):
    """Training on random windows of histories; the target of each position is a random one of the next `horizon` items.

    `horizon` 0: of all later items. For a causal encoder each position of a window is an example. For others each
    position of a history is one: the window that ends there. Errors: no user has two interactions.
    """

    model: SequenceModel

    def __init__(self, train: Dataset, encoder: Encoder, *, length: int, horizon: int) -> None:
        self.train, self.histories, self.encoder = train, train.histories, encoder
        self.num_items, self._length, self._horizon = train.num_items, length, horizon
        lengths = train.histories.lengths
        if not (lengths >= 2).any():
            raise InputError("no user has two interactions to train on; give a longer log")
        if encoder.causal:
            # An epoch has each user once for each window that the history fills.
            self.users = np.repeat(np.arange(len(lengths)), np.where(lengths >= 2, -(-(lengths - 1) // length), 0))
        else:
            self.users = np.repeat(np.arange(len(lengths)), np.maximum(lengths - 1, 0))
            last_of = np.repeat(self.histories.indptr[1:] - 1, lengths)
            self.positions = np.flatnonzero(np.arange(len(last_of)) < last_of)
        self.num_examples = len(self.users)

    def batch(self, rows: np.ndarray, rng: torch.Generator, progress: Progress) -> WindowBatch:
        """A window of up to L items with a successor for each given example, at a uniform random place.

        The window of a non-causal encoder ends at the example's own position.
        """
        users, length = self.users[rows], self._length
        start, end = self.histories.indptr[users], self.histories.indptr[users + 1]
        draws = torch.rand((len(rows), length + 1), generator=rng).double().numpy()
        if self.encoder.causal:
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
        if self._horizon:
            ahead = np.minimum(ahead, self._horizon)
        targets = safe + 1 + np.floor(draws[:, 1:] * ahead).astype(np.int64)
        items = self.histories.items
        scored = 0 if self.encoder.causal else length - 1
        return WindowBatch(
            torch.from_numpy(np.where(real, items[safe], -1).astype(np.int64)),
            torch.from_numpy(np.where(real, items[targets], -1).astype(np.int64)[:, scored:]),
        )

    def loss(self, batch: WindowBatch, rng: torch.Generator) -> Tensor:
        """Mean over all examples of their losses."""
        real = batch.targets_BL >= 0
        return self.cross_entropy(self.model(batch.items_BL)[real], batch.targets_BL[real], rng).mean()

    @abstractmethod
    def cross_entropy(self, queries_XD: Tensor, targets_X: Tensor, rng: torch.Generator) -> Tensor:
        """[X], the loss of each example."""
