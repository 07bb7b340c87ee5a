"""Negatives of a ranker's targets: among retrieved candidates, unseen items, or all items but the targets.

Shape legend: B rows, T targets, K candidates, M negatives.

Each function returns ids int64[B, M] and float64[B, M], the term added to a negative's score so that the M negatives
stand for all items that they are drawn from; -inf masks a negative.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from beamwood.data.unseen import UnseenItems

__all__ = ["candidate_negatives", "other_negatives", "unseen_negatives"]

Negatives = tuple[NDArray[np.int64], NDArray[np.float64]]


def candidate_negatives(
    candidates_BK: NDArray[np.int64], targets_BT: NDArray[np.int64], num: int, generator: torch.Generator
) -> Negatives:
    """At most `num` different candidates (-1: none) of a row that are no target; they stand only for themselves."""
    usable = candidates_BK >= 0
    for column in targets_BT.T:
        usable &= candidates_BK != column[:, None]
    # Random sort keys select a random subset of the usable negatives.
    keys = torch.rand(candidates_BK.shape, generator=generator, dtype=torch.float64).numpy()
    order = np.argsort(np.where(usable, keys, 2.0), axis=1)[:, :num]
    chosen, real = np.take_along_axis(candidates_BK, order, axis=1), np.take_along_axis(usable, order, axis=1)
    return np.where(real, chosen, targets_BT[:, :1]), np.where(real, 0.0, -np.inf)


def unseen_negatives(unseen: UnseenItems, users_B: NDArray[np.int64], draws_BM: NDArray[np.float64]) -> Negatives:
    """Items that the user has not seen, with replacement; `draws_BM` uniform in [0, 1)."""
    correction = np.log(unseen.num_items - unseen.lengths[users_B]) - np.log(draws_BM.shape[1])
    return unseen.draw(users_B, draws_BM), np.repeat(correction[:, None], draws_BM.shape[1], axis=1)


def other_negatives(num_items: int, targets_BT: NDArray[np.int64], draws_BM: NDArray[np.float64]) -> Negatives:
    """Items that are no target of the row, with replacement; `draws_BM` uniform in [0, 1)."""
    drawn = np.minimum((draws_BM * num_items).astype(np.int64), num_items - 1)
    real = (drawn[:, :, None] != targets_BT[:, None, :]).all(axis=2)
    others = num_items - 1 - (np.diff(np.sort(targets_BT, axis=1), axis=1) > 0).sum(axis=1)
    correction = np.log(np.maximum(others, 1)) - np.log(np.maximum(real.sum(axis=1), 1))
    return drawn, np.where(real, correction[:, None], -np.inf)
