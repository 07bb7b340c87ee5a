"""Directed counts: what followed what within a few steps, nearer counting more; the latest items decide.

`similarity_ij = (sum of 1 / gap over pairs i, then j) / (n_i^source_power n_j^target_power)`,
n the number of training interactions of an item.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from pydantic import Field
from scipy import sparse

from beamwood.data.split import Split
from beamwood.kernels.lists import strongest
from beamwood.methods.neighbours import Decay, Grid, Power, best_of_grid
from beamwood.methods.train_options import TrainOptions
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.stored import MOST
from beamwood.types import FloatArray, ItemLists

__all__ = ["Config", "counts_within", "fit"]


class Config(Grid):
    """See `Grid`."""

    decay: tuple[Decay, ...] = Field((0.95, 0.9, 0.8, 0.7), min_length=1)
    source_power: tuple[Power, ...] = Field((0.7, 1.0), min_length=1, description="of the earlier item's frequency")
    target_power: tuple[Power, ...] = Field((0.3, 0.5), min_length=1, description="of the later item's frequency")
    steps: int = Field(10, ge=1, description="how many steps later still counts")
    length: int = Field(30, ge=1, le=MOST, description="history items that count")


def counts_within(
    histories: ItemLists, num_items: int, steps: int, *, power: float = 1.0, weights: FloatArray | None = None
) -> sparse.csr_matrix:
    """[N, N]: the sum of 1 / gap^power over all pairs (i, then j `gap` steps later) of a history, gap 1..steps.

    `weights` [histories]: what a pair of each history counts besides; None for 1.
    """
    total = sparse.csr_matrix((num_items, num_items))
    rows = histories.rows
    for gap in range(1, min(steps + 1, int(histories.lengths.max(initial=0)))):
        same = rows[gap:] == rows[:-gap]
        first, later = histories.items[:-gap][same], histories.items[gap:][same]
        values = np.full(len(first), float(gap) ** -power)
        if weights is not None:
            values *= weights[rows[gap:][same]]
        total = total + sparse.csr_matrix((values, (first, later)), shape=(num_items, num_items))
    total.setdiag(0)
    total.eliminate_zeros()
    return sparse.csr_matrix(total)


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Count on the training histories, choose both powers and the decay on the validation queries."""
    config = config or Config()
    counts = counts_within(split.train.histories, split.train.num_items, config.steps)
    frequency = np.maximum(split.train.item_counts, 1).astype(float)

    def matrix(source_power: float, target_power: float) -> sparse.csr_matrix:
        scaled = sparse.diags(frequency**-source_power) @ counts @ sparse.diags(frequency**-target_power)
        return strongest(sparse.csr_matrix(scaled), config.num_neighbours)

    seed = options.get("seed", 0)
    return best_of_grid(split, config, matrix, ("source_power", "target_power"), method="transitions", seed=seed)
