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
from beamwood.fitting.counting import Decay, Grid, Power, best_of_grid, counts_within
from beamwood.fitting.options import TrainOptions
from beamwood.kernels.lists import strongest
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.stored import MOST

__all__ = ["Config", "fit"]


class Config(Grid):
    """See `Grid`."""

    decay: tuple[Decay, ...] = Field((0.95, 0.9, 0.8, 0.7), min_length=1)
    source_power: tuple[Power, ...] = Field((0.7, 1.0), min_length=1, description="of the earlier item's frequency")
    target_power: tuple[Power, ...] = Field((0.3, 0.5), min_length=1, description="of the later item's frequency")
    steps: int = Field(10, ge=1, description="how many steps later still counts")
    length: int = Field(30, ge=1, le=MOST, description="history items that count")


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
