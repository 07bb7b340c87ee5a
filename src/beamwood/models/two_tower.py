"""Two towers: a user's vector against an item's, by inner product.

Shape legend: B rows, L history length, D width, N items, U users.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.models.pairs import IdVectors
from beamwood.models.sequence import SequenceModel

__all__ = ["MeanTower", "TwoTower", "UserTable"]


class UserTable(nn.Module):
    """A vector of its own for each user: matrix factorisation."""

    def __init__(self, num_users: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.users = nn.Embedding(num_users, width)
        nn.init.normal_(self.users.weight, std=0.1, generator=generator)

    def forward(self, users_B: Tensor, items_BL: Tensor) -> Tensor:
        """[B, D]."""
        del items_BL
        vectors: Tensor = self.users(users_B)
        return vectors


class MeanTower(nn.Module):
    """The mean of the history's items, with its own table; zeros for an empty history."""

    def __init__(self, num_items: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(num_items + 1, width, mode="mean", padding_idx=num_items)
        nn.init.normal_(self.items.weight, std=0.1, generator=generator)

    def forward(self, users_B: Tensor, items_BL: Tensor) -> Tensor:
        """[B, D] for histories int64[B, L], -1 for padding."""
        del users_B
        padding = self.items.num_embeddings - 1
        vectors: Tensor = self.items(torch.where(items_BL < 0, padding, items_BL))
        return vectors


class TwoTower(nn.Module):
    """`s(u, i) = f(u) . g(i) / temperature`, with `normalise` of unit vectors."""

    def __init__(
        self, users: UserTable | MeanTower | SequenceModel, items: IdVectors, *, normalise: bool, temperature: float
    ) -> None:
        super().__init__()
        self.users, self.items = users, items
        self.normalise, self.temperature = normalise, temperature

    def user_vectors(self, users_B: Tensor, items_BL: Tensor) -> Tensor:
        """[B, D], whose inner product with `item_vectors` is the score."""
        if isinstance(self.users, SequenceModel):
            vectors = self.users(items_BL)[:, -1]
        else:
            vectors = self.users(users_B, items_BL)
        if self.normalise:
            vectors = functional.normalize(vectors, dim=-1)
        result: Tensor = vectors / self.temperature
        return result

    def item_vectors(self, items: Tensor) -> Tensor:
        """[.., D]."""
        vectors: Tensor = self.items(items)
        return functional.normalize(vectors, dim=-1) if self.normalise else vectors

    @torch.no_grad()
    def all_item_vectors(self) -> NDArray[np.float32]:
        """float32[N, D]."""
        vectors: NDArray[np.float32] = self.item_vectors(torch.arange(self.items.num_rows)).numpy()
        return vectors
