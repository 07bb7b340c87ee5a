"""The pass from encoded columns to a vector, written once for torch and numpy.

Shape legend: S values a cell, D width.
"""

from __future__ import annotations

from collections.abc import Iterable

from beamwood.data.features import FeatureColumn
from beamwood.models.ops import Array, at_least, namespace

__all__ = ["column_vectors"]


def column_vectors(columns: Iterable[FeatureColumn], weights: Iterable[Array], cells: Iterable[Array]) -> Array:
    """[.., D]: the sum over columns of the mean of a cell's category vectors, or of a linear map of its numbers.

    `weights` [column.size, D], `cells` [.., S] of each column, as `encode_columns` gives them.
    """
    total: Array = None
    for column, weight, values in zip(columns, weights, cells, strict=True):
        if column.kind == "category":
            xp = namespace(weight)
            real = xp.astype(values >= 0, weight.dtype)
            vectors = weight[at_least(values, 0)] * real[..., None]
            part = xp.sum(vectors, axis=-2) / at_least(xp.sum(real, axis=-1, keepdims=True), 1)
        else:
            part = values @ weight
        total = part if total is None else total + part
    return total
