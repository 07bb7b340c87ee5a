"""How much a search misses where the true probabilities are known, and how much its labels make it miss in theory.

Shape legend: B queries, N items, k results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beamwood.errors import InputError
from beamwood.theory.heap import bayes_regret, beam_over, level_maxima, level_sums
from beamwood.tree import Tree
from beamwood.types import FloatArray, IndexArray

__all__ = ["Missed", "missed", "missed_in_theory"]


@dataclass(frozen=True, slots=True)
class Missed:
    """Means over queries: `items`, the share of the k Bayes-optimal items not found, and `probability`, the sum of the
    probabilities lost by that.
    """

    items: float
    probability: float


def missed(eta_BN: FloatArray, items_Bk: IndexArray) -> Missed:
    """What the answers `items_Bk` miss of the k most probable items under the true `eta_BN`.

    An item as probable as the least one of a full answer is not missed. An item of -1 is an empty place. Errors:
    another number of rows, no place, or items outside the catalogue.
    """
    if len(eta_BN) != len(items_Bk) or len(eta_BN) == 0:
        raise InputError(f"{len(eta_BN)} rows of probabilities for {len(items_Bk)} answers; give one each")
    if items_Bk.ndim != 2 or items_Bk.shape[1] == 0:
        raise InputError(f"items_Bk has shape {items_Bk.shape}; give [rows, k] with k of 1 or more")
    k = items_Bk.shape[1]
    regrets = [bayes_regret(eta, items, k) for eta, items in zip(eta_BN, items_Bk, strict=True)]
    lost = [_share_missed(eta, items[items >= 0], k) for eta, items in zip(eta_BN, items_Bk, strict=True)]
    return Missed(float(np.mean(lost)), float(np.mean(regrets)))


def _share_missed(eta_N: FloatArray, items: IndexArray, k: int) -> float:
    """The share of the k most probable items that the others, or empty places, stand for."""
    best = np.argsort(-eta_N, kind="stable")[:k]
    chosen = np.unique(items)
    least = eta_N[chosen].min() if len(chosen) >= len(best) else -np.inf
    away = np.setdiff1d(best, chosen)
    return float(np.count_nonzero(eta_N[away] > least) / len(best))


def missed_in_theory(tree: Tree, eta_BN: FloatArray, k: int) -> dict[str, Missed]:
    """What a beam of width k misses when every node's score is exactly the expectation of its label.

    "summed": labels of plain softmax or binary training; "rectified": labels of DTR, equation 14, with which it misses
    nothing (proposition 3).
    """
    answers = {name: np.full((len(eta_BN), k), -1, np.int64) for name in ("summed", "rectified")}
    for row, eta in enumerate(eta_BN):
        # A beam expands no node without items.
        sums = [
            np.where(live > 0, sums, -np.inf)
            for sums, live in zip(level_sums(tree, eta), tree.live_counts, strict=True)
        ]
        for name, levels in (("summed", sums), ("rectified", level_maxima(tree, eta))):
            leaves = beam_over(tree.shape, levels, k)
            answers[name][row, : len(leaves)] = tree.item_of_leaf[leaves]
    return {name: missed(eta_BN, items_Bk) for name, items_Bk in answers.items()}
