"""PIFA: an item's vector is the direction of the sum of its instances' features."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from beamwood.errors import InputError
from beamwood.types import FloatArray, IndexArray

__all__ = ["pifa_vectors"]


def pifa_vectors(
    features_IF: sparse.csr_matrix, targets_I: IndexArray, num_items: int, rng: np.random.Generator, *, width: int = 64
) -> FloatArray:
    """float32[N, width]: `z_i = normalise(sum over the instances of i of their features)`, projected to `width`.

    Features are sparse and may be as many as there are items, so they are projected at random first (a Gaussian matrix
    keeps distances up to a few percent). An item without instances gets zeros. Source: the positive instance feature
    aggregation of extreme multi-label trees, named by DTR, section 4.4.
    """
    if features_IF.shape[0] != len(targets_I):
        raise InputError(f"features_IF has {features_IF.shape[0]} rows for {len(targets_I)} targets; give one each")
    if width < 1:
        raise InputError(f"width={width} is below 1")
    projection = rng.normal(0, width**-0.5, (features_IF.shape[1], width)).astype(np.float32)
    instances = sparse.csr_matrix(
        (np.ones(len(targets_I), np.float32), (targets_I, np.arange(len(targets_I)))), (num_items, len(targets_I))
    )
    sums = np.asarray((instances @ features_IF) @ projection, np.float32)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    vectors: FloatArray = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return vectors
