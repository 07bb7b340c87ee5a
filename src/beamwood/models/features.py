"""The weights of encoded columns in training: each column has its own linear map to a vector.

Shape legend: R rows, S values a cell, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.models.columns import column_vectors

__all__ = ["FeatureEncoder", "FeatureRows", "exported_columns", "feature_tensors"]


class FeatureEncoder(nn.Module):
    """[R, D] of encoded columns; see `column_vectors`.

    Unknown categories have a vector of their own, and missing numbers an indicator with a weight; both start at 0.
    """

    def __init__(
        self, columns: Sequence[FeatureColumn], width: int, *, std: float = 0.01, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.weights = nn.ParameterList()
        for column in self.columns:
            weight = torch.empty(column.size, width).normal_(std=std, generator=generator)
            weight[0 if column.kind == "category" else -1] = 0
            self.weights.append(nn.Parameter(weight))

    def forward(self, arrays: Mapping[str, Tensor]) -> Tensor:
        """[.., D] of arrays [.., S] by column name."""
        vectors: Tensor = column_vectors(self.columns, self.weights, [arrays[column.name] for column in self.columns])
        return vectors


def exported_columns(encoder: FeatureEncoder | None) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """The context columns for a scorer's configuration, and their weights, named "context." and the column."""
    if encoder is None:
        return {}, {}
    pairs = zip(encoder.columns, encoder.weights, strict=True)
    weights = {f"context.{column.name}": weight.detach().cpu().numpy().astype(np.float32) for column, weight in pairs}
    return {"context": [column.model_dump(mode="json") for column in encoder.columns]}, weights


def feature_tensors(table: FeatureTable) -> dict[str, Tensor]:
    """The encoded rows of each column as a tensor [R, S], by name; categories as int64."""
    cells = {name: a.astype(np.int64) if a.dtype == np.int32 else a for name, a in table.arrays.items()}
    return {name: torch.from_numpy(array) for name, array in cells.items()}


class FeatureRows(nn.Module):
    """The encoder of a stored table by row number; -1 is the last row (all missing)."""

    def __init__(
        self, table: FeatureTable, width: int, *, std: float = 0.01, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.encoder = FeatureEncoder(table.columns, width, std=std, generator=generator)
        self.names, tensors = [column.name for column in table.columns], feature_tensors(table)
        for place, name in enumerate(self.names):
            self.register_buffer(f"cells_{place}", tensors[name], persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """[.., D] of int64[..]."""
        cells = {name: self.get_buffer(f"cells_{place}")[rows] for place, name in enumerate(self.names)}
        vectors: Tensor = self.encoder(cells)
        return vectors
