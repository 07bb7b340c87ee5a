"""NeuMF: a product of embeddings beside an MLP of two others, joined by one linear layer.

Shape legend: B rows, M items a row, F factors of the product, D first MLP width.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.models.features import FeatureEncoder, exported
from beamwood.models.pairs import Asked, IdTable

__all__ = ["NeuMf"]


class NeuMf(nn.Module):
    """`s = h . [p_u * q_i ; MLP([p'_u ; q'_i])] + c`, ReLU layers of the sizes `layers`, the first being 2 D.

    Columns of users, items and contexts add to the MLP's embeddings. Source: He et al. 2017, equation 12.
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        *,
        factors: int = 8,
        layers: Sequence[int] = (16, 16, 8, 8),
        user_features: FeatureTable | None = None,
        item_features: FeatureTable | None = None,
        context_columns: Sequence[FeatureColumn] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        width = layers[0] // 2
        self.product_users = IdTable(num_users, factors, generator=generator)
        self.product_items = IdTable(num_items, factors, generator=generator)
        self.mlp_users = IdTable(num_users, width, user_features, generator=generator)
        self.mlp_items = IdTable(num_items, width, item_features, generator=generator)
        self.context = FeatureEncoder(context_columns, width, generator=generator) if context_columns else None
        sizes = [2 * width, *layers[1:]]
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        self.output = nn.Linear(factors + sizes[-1], 1)
        for layer in [*self.hidden, self.output]:
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, asked: Asked, items_BM: Tensor) -> Tensor:
        """Scores [B, M]."""
        product = self.product_users(asked.users_B)[:, None, :] * self.product_items(items_BM)
        users = self.mlp_users(asked.users_B)
        if self.context is not None:
            users = users + self.context(asked.context)
        items = self.mlp_items(items_BM)
        x = torch.cat([users[:, None, :].expand(-1, items.shape[1], -1), items], dim=2)
        for layer in self.hidden:
            x = functional.relu(layer(x))
        scores: Tensor = self.output(torch.cat([product, x], dim=2)).squeeze(2)
        return scores

    @torch.no_grad()
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """The scorer's configuration and arrays."""
        arrays = {
            "product_users": self.product_users.all(),
            "product_items": self.product_items.all()[:-1],
            "users": self.mlp_users.all(),
            "items": self.mlp_items.all()[:-1],
            "output.weight": self.output.weight,
            "output.bias": self.output.bias,
        }
        for place, layer in enumerate(self.hidden):
            assert isinstance(layer, nn.Linear)
            arrays |= {f"hidden.{place}.weight": layer.weight, f"hidden.{place}.bias": layer.bias}
        columns, weights = exported(self.context)
        plain = {name: part.numpy() for name, part in arrays.items()}
        return {"kind": "neumf", "layers": len(self.hidden)} | columns, plain | weights
