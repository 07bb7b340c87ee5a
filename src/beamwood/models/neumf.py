"""NeuMF: a product of embeddings beside an MLP of two others, joined by one linear layer.

Shape legend: B rows, M items a row, F factors of the product, D first MLP width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.models.features import FeatureEncoder, exported_columns
from beamwood.models.pairs import IdTable, QueryTensors
from beamwood.models.scorer import Rows
from beamwood.models.scorers import neumf
from beamwood.models.weights import declare

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
        self.sizes = neumf.Sizes(factors=factors, layers=tuple(layers[1:]))
        self._declared = declare(self, neumf.SCORE.parameters(width, self.sizes, True), generator)

    def forward(self, query: QueryTensors, items_BM: Tensor) -> Tensor:
        """Scores [B, M]."""
        users = {"users": self.mlp_users(query.users_B), "product_users": self.product_users(query.users_B)}
        if self.context is not None:
            users["users"] = users["users"] + self.context(query.context)
        items = {"items": self.mlp_items(items_BM), "product_items": self.product_items(items_BM)}
        scores: Tensor = neumf.SCORE.forward(self._declared, Rows(users, items), self.sizes)
        return scores

    @torch.no_grad()
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """The scorer's configuration and arrays."""
        arrays = {
            "product_users": self.product_users.all(),
            "product_items": self.product_items.all()[:-1],
            "users": self.mlp_users.all(),
            "items": self.mlp_items.all()[:-1],
        } | self._declared
        columns, weights = exported_columns(self.context)
        plain = {name: part.detach().numpy() for name, part in arrays.items()}
        config = {"kind": "neumf", "sizes": self.sizes.model_dump(mode="json")}
        return config | columns, plain | weights
