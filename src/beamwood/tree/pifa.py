"""PIFA: an item's vector is the normalised sum of its instances' features."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import sparse

from beamwood.errors import InputError
from beamwood.types import FloatArray, IndexArray

__all__ = ["pifa_vectors"]


def pifa_vectors(
    blocks: Iterable[tuple[sparse.csr_matrix, IndexArray]],
    num_features: int,
    num_items: int,
    rng: np.random.Generator,
    *,
    width: int = 64,
) -> FloatArray:
    """float32[N, width]: `z_i = normalise(sum over the instances of i of their features)`, projected to `width`.

    `blocks`: features [I, num_features] and targets int[I] of some instances at a time, so that memory stays that of a
    block and the result. Features are sparse and may be as many as there are items, so they are projected at random
    first: a Gaussian matrix stretches a distance by a factor whose spread is `1 / sqrt(2 width)`, 9 % at width 64. An
    item without instances gets zeros. Source: two-stage bounds, section 3.2.1 (positive instance feature aggregation).
    Errors: `width` below 1, features that do not fit their targets.
    """
    if width < 1:
        raise InputError(f"width={width} is below 1")
    projection = rng.normal(0, width**-0.5, (num_features, width)).astype(np.float32)
    sums = np.zeros((num_items, width), np.float32)
    for features_IF, targets_I in blocks:
        if features_IF.shape != (len(targets_I), num_features):
            raise InputError(
                f"features have shape {features_IF.shape} for {len(targets_I)} targets and {num_features} features"
            )
        present, place = np.unique(targets_I, return_inverse=True)
        ones = np.ones(len(targets_I), np.float32)
        instances = sparse.csr_matrix((ones, (place, np.arange(len(targets_I)))), (len(present), len(targets_I)))
        sums[present] += instances @ (features_IF @ projection)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    vectors: FloatArray = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return vectors
