"""Two towers: a user's vector against an item's, by inner product.

Shape legend: B rows, L history length, D width, N items, U users, X numbers a row, V given vector width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.models.sasrec import SasRec

__all__ = ["ItemFeatures", "ItemTower", "MeanTower", "TwoTower", "UserTable"]


class ItemFeatures:
    """What is known of items besides their ids.

    `categories` int64[N] (-1 none), `numbers` float32[N, X], given `vectors` float32[N, V]. Numbers are standardised; a
    missing one (NaN) counts as the mean, and is said to be missing.
    """

    def __init__(
        self,
        categories: NDArray[Any] | None = None,
        numbers: NDArray[Any] | None = None,
        vectors: NDArray[Any] | None = None,
    ) -> None:
        self.categories = None if categories is None else torch.from_numpy(np.asarray(categories, np.int64))
        dense = []
        if numbers is not None:
            values = np.asarray(numbers, np.float64)
            missing = ~np.isfinite(values)
            count = np.maximum((~missing).sum(axis=0), 1)
            mean = np.where(missing, 0, values).sum(axis=0) / count
            centred = np.where(missing, 0, values - mean)
            deviation = np.sqrt(np.square(centred).sum(axis=0) / count)
            dense += [centred / np.where(deviation > 0, deviation, 1), missing]
        if vectors is not None:
            dense.append(np.asarray(vectors, np.float64))
        self.dense = torch.from_numpy(np.concatenate(dense, axis=1).astype(np.float32)) if dense else None


class ItemTower(nn.Module):
    """Vector [.., D] of an item: its id's embedding plus its category's, plus a linear map of its numbers."""

    def __init__(
        self, num_items: int, width: int, features: ItemFeatures | None, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.ids = nn.Embedding(num_items, width)
        nn.init.normal_(self.ids.weight, std=0.1, generator=generator)
        self.category_of: Tensor | None = None
        self.dense_of: Tensor | None = None
        if features is not None and features.categories is not None:
            self.category_of = features.categories + 1
            self.categories = nn.Embedding(int(features.categories.max()) + 2, width)
            nn.init.normal_(self.categories.weight, std=0.1, generator=generator)
        if features is not None and features.dense is not None:
            self.dense_of = features.dense
            self.dense = nn.Linear(features.dense.shape[1], width, bias=False)
            nn.init.normal_(self.dense.weight, std=0.1 / features.dense.shape[1] ** 0.5, generator=generator)

    def forward(self, items: Tensor) -> Tensor:
        """[.., D] for item indices int64[..]."""
        vectors: Tensor = self.ids(items)
        if self.category_of is not None:
            vectors = vectors + self.categories(self.category_of[items])
        if self.dense_of is not None:
            vectors = vectors + self.dense(self.dense_of[items])
        return vectors


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
    """The mean of the history's items, in a table of its own; zeros for an empty history."""

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
    """`s(u, i) = f(u) . g(i) / temperature`, with `normalise` of the directions alone."""

    def __init__(
        self, users: UserTable | MeanTower | SasRec, items: ItemTower, *, normalise: bool, temperature: float
    ) -> None:
        super().__init__()
        self.users, self.items = users, items
        self.normalise, self.temperature = normalise, temperature

    def user_vectors(self, users_B: Tensor, items_BL: Tensor) -> Tensor:
        """[B, D], such that the inner product with `item_vectors` is the score."""
        vectors = self.users(items_BL)[:, -1] if isinstance(self.users, SasRec) else self.users(users_B, items_BL)
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
        vectors: NDArray[np.float32] = self.item_vectors(torch.arange(self.items.ids.num_embeddings)).numpy()
        return vectors
