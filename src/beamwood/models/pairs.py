"""The inputs of a ranker: users, histories, context, and items to score.

Shape legend: B rows, L history length, M items a row, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from beamwood.data.features import FeatureTable
from beamwood.models.features import FeatureRows

__all__ = ["IdVectors", "QueryTensors", "UserColumns"]


@dataclass(frozen=True, slots=True)
class QueryTensors:
    """B users: `users_B` int64 (-1 unknown), `histories_BL` int64 (-1 padding on the left), the encoded context."""

    users_B: Tensor
    histories_BL: Tensor
    context: Mapping[str, Tensor] = field(default_factory=dict)


class IdVectors(nn.Module):
    """A vector for each id, plus that of its columns; row -1 is for unknown ids, with every column missing.

    `num_rows` ids; `features` has one row an id and a last one for unknown ids.
    """

    def __init__(
        self,
        num_rows: int,
        width: int,
        features: FeatureTable | None = None,
        *,
        std: float = 0.01,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.ids = nn.Embedding(num_rows + 1, width)
        nn.init.normal_(self.ids.weight, std=std, generator=generator)
        with torch.no_grad():
            self.ids.weight[-1] = 0
        self.rows = None if features is None else FeatureRows(features, width, std=std, generator=generator)

    def forward(self, rows: Tensor) -> Tensor:
        """[.., D] of int64[..] in -1 .. num_rows - 1."""
        last = self.ids.num_embeddings - 1
        rows = torch.where(rows < 0, last, rows)
        vectors: Tensor = self.ids(rows)
        return vectors if self.rows is None else vectors + self.rows(rows)

    @property
    def num_rows(self) -> int:
        """The number of ids, without the unknown one."""
        return self.ids.num_embeddings - 1


class UserColumns(nn.Module):
    """The vector of each user's columns alone, for a model whose users have no vector of their own."""

    def __init__(
        self, features: FeatureTable, width: int, *, std: float = 0.01, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.table = IdVectors(len(features) - 1, width, features, std=std, generator=generator)
        with torch.no_grad():
            self.table.ids.weight.zero_()
        self.table.ids.weight.requires_grad_(False)

    def forward(self, users_B: Tensor) -> Tensor:
        """[B, D]."""
        vectors: Tensor = self.table(users_B)
        return vectors
