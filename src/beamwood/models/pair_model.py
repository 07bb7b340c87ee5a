"""A trainable ranker of any `PairScore`: its tables of ids, its parameters, and the columns beside them.

Shape legend: B rows, L history length, M items a row, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.errors import InputError
from beamwood.models.features import FeatureEncoder, exported_columns
from beamwood.models.pairs import IdTable, QueryTensors, UserColumns
from beamwood.models.parameters import Sizes
from beamwood.models.scorer import PairScore, Rows
from beamwood.models.weights import declare

__all__ = ["PairModel"]


class PairModel(nn.Module):
    """The score over a vector for each id, drawn in the order in which `score.tables` names them.

    Columns of users and context add to "users" [.., D], columns of items to "items" [.., D]. Without
    `score.needs_users` a user has the vector of the columns alone.
    """

    def __init__(
        self,
        score: PairScore,
        num_users: int,
        num_items: int,
        *,
        width: int,
        sizes: Sizes,
        user_features: FeatureTable | None = None,
        item_features: FeatureTable | None = None,
        context_columns: Sequence[FeatureColumn] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.score, self.sizes = score, sizes
        features = {"users": user_features, "items": item_features}
        tables: dict[str, IdTable | UserColumns] = {}
        for name, columns in score.tables(width, sizes).items():
            own = features.get(name)
            if name.endswith("items"):
                tables[name] = IdTable(num_items, columns, own, generator=generator)
            elif score.needs_users:
                tables[name] = IdTable(num_users, columns, own, generator=generator)
            elif own is not None:
                tables[name] = UserColumns(own, columns, generator=generator)
        self.tables = tables
        # A list, as a dictionary of modules takes no name "items".
        self._modules_of_tables = nn.ModuleList(tables.values())
        self.context = FeatureEncoder(context_columns, width, generator=generator) if context_columns else None
        about = "users" in tables or self.context is not None
        self._declared = declare(self, score.parameters(width, sizes, about), generator)

    @property
    def items(self) -> IdTable:
        """The table "items", which histories are read from."""
        table = self.tables["items"]
        assert isinstance(table, IdTable)
        return table

    def forward(self, query: QueryTensors, items_BM: Tensor) -> Tensor:
        """Scores [B, M]. Errors: a score that returns another shape."""
        users, items = self._of("users", query.users_B), self._of("items", items_BM)
        if self.context is not None:
            context = self.context(query.context)
            users["users"] = users["users"] + context if "users" in users else context
        history, real = None, None
        if self.score.reads_history:
            history, real = self.items(query.histories_BL), query.histories_BL >= 0
        scores: Tensor = self.score.forward(self._declared, Rows(users, items, history, real), self.sizes)
        shape, wanted = list(scores.shape), list(items_BM.shape)
        if shape != wanted:
            raise InputError(f"the score '{self.score.kind}' returned shape {shape}; return {wanted}")
        return scores

    def _of(self, what: str, rows: Tensor) -> dict[str, Tensor]:
        """The rows of each table of users, or of items."""
        return {name: table(rows) for name, table in self.tables.items() if name.endswith(what)}

    @torch.no_grad()
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """The scorer's configuration and arrays."""
        arrays = {
            name: table.all() if name.endswith("users") else table.all()[:-1] for name, table in self.tables.items()
        }
        columns, weights = exported_columns(self.context)
        plain = {name: part.detach().numpy() for name, part in (arrays | self._declared).items()}
        return {"kind": self.score.kind, "sizes": self.sizes.model_dump(mode="json")} | columns, plain | weights
