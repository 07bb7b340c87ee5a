"""A trainable ranker of any `PairScore`: its tables of ids, its parameters, and the columns beside them.

Shape legend: B rows, L history length, M items a row, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.errors import InputError
from beamwood.models.features import FeatureEncoder, exported_columns
from beamwood.models.pairs import IdVectors, QueryTensors, UserColumns
from beamwood.models.parameters import Sizes
from beamwood.models.scorer import PairScore, Rows
from beamwood.models.weights import declare

__all__ = ["PairInputs", "PairModel"]


class PairInputs(TypedDict, total=False):
    """What any pair model may be given: the columns of users, items and context, and the generator of its weights."""

    user_features: FeatureTable | None
    item_features: FeatureTable | None
    context_columns: Sequence[FeatureColumn]
    generator: torch.Generator | None


class PairModel(nn.Module):
    """The score over a vector for each id, drawn in the order in which `score.tables` names them.

    Columns of users and context add to "users" [.., D], columns of items to "items" [.., D]. Without
    `score.needs_users` a user has the vector of the columns alone. `std`: of initial vectors. A model whose score has a
    faster form in torch, or whose ids have further inputs, overrides `scores`, `user_rows` or `item_rows`.
    """

    items: IdVectors

    def __init__(
        self,
        score: PairScore,
        num_users: int,
        num_items: int,
        *,
        width: int,
        sizes: Sizes,
        std: float = 0.01,
        **inputs: Unpack[PairInputs],
    ) -> None:
        super().__init__()
        self.score, self.num_users, self.num_items, self.sizes = score, num_users, num_items, sizes
        context, generator = inputs.get("context_columns", ()), inputs.get("generator")
        features = {"users": inputs.get("user_features"), "items": inputs.get("item_features")}
        self.tables: dict[str, IdVectors | UserColumns] = {}
        for name, columns in score.tables(width, sizes).items():
            own = features.get(name)
            table: IdVectors | UserColumns | None = None
            if name.endswith("items"):
                table = IdVectors(num_items, columns, own, std=std, generator=generator)
            elif score.needs_users:
                table = IdVectors(num_users, columns, own, std=std, generator=generator)
            elif own is not None:
                table = UserColumns(own, columns, std=std, generator=generator)
            if table is not None:
                self.tables[name] = table
                self.add_module(name, table)
        self.context = FeatureEncoder(context, width, std=std, generator=generator) if context else None
        about = "users" in self.tables or self.context is not None
        self._declared = declare(self, score.parameters(width, sizes, about), generator)

    def forward(self, query: QueryTensors, items_BM: Tensor) -> Tensor:
        """Scores [B, M]. Errors: a score that returns another shape."""
        users, items = self.user_rows(query.users_B), self.item_rows(items_BM)
        if self.context is not None:
            context = self.context(query.context)
            users["users"] = users["users"] + context if "users" in users else context
        history, real = None, None
        if self.score.reads_history:
            history, real = self.items(query.histories_BL), query.histories_BL >= 0
        scores = self.scores(Rows(users, items, history, real))
        shape, wanted = list(scores.shape), list(items_BM.shape)
        if shape != wanted:
            raise InputError(f"the score '{self.score.kind}' returned shape {shape}; return {wanted}")
        return scores

    def scores(self, rows: Rows) -> Tensor:
        """[B, M] of looked-up vectors."""
        scores: Tensor = self.score.forward(self._declared, rows, self.sizes)
        return scores

    def user_rows(self, users: Tensor) -> dict[str, Tensor]:
        """[.., D] by table of users, without the context; int64[..], -1 unknown."""
        return {name: table(users) for name, table in self.tables.items() if name.endswith("users")}

    def item_rows(self, items: Tensor) -> dict[str, Tensor]:
        """[.., D] by table of items; int64[..]."""
        return {name: table(items) for name, table in self.tables.items() if name.endswith("items")}

    @torch.no_grad()
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """The scorer's configuration and arrays, with all inputs of an id folded into its vectors."""
        # The last row of users is that of unknown ones.
        users, items = torch.arange(-1, self.num_users).roll(-1), torch.arange(self.num_items)
        arrays = self.user_rows(users) | self.item_rows(items) | self._declared
        columns, weights = exported_columns(self.context)
        plain = {name: part.detach().numpy() for name, part in arrays.items()}
        return {"kind": self.score.kind, "sizes": self.sizes.model_dump(mode="json")} | columns, plain | weights
