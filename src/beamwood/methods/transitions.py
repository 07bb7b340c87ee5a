"""Directed item-to-item counts within a few steps, weighted by 1 / gap; applied to the latest items of a history.

`similarity_ij = (sum of 1 / gap over pairs i, then j) / (n_i^source_power n_j^target_power)`,
n the number of training interactions of an item.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field
from scipy import sparse

from beamwood.data.split import Split
from beamwood.fitting.counting import CountingConfig, GridSettings, Power, best_of_grid, counts_within, weighted_counts
from beamwood.kernels.lists import strongest
from beamwood.methods.method import Method, Needs
from beamwood.training.budget import Budget
from beamwood.types import Searcher

__all__ = ["METHOD", "Config"]


class StepGridSettings(GridSettings):
    """The grid of directed counts: powers and steps."""

    source_power: tuple[Power, ...] = Field(
        (0.7, 1.0), min_length=1, description="exponent of the earlier item's frequency"
    )
    target_power: tuple[Power, ...] = Field(
        (0.3, 0.5), min_length=1, description="exponent of the later item's frequency"
    )
    steps: int = Field(10, ge=1, description="farthest transition counted, in steps")


class Config(CountingConfig):
    """See `CountingConfig`."""

    model: StepGridSettings = StepGridSettings(decay=(0.95, 0.9, 0.8, 0.7), length=30)


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[Searcher, dict[str, Any]]:
    """Count on the training histories, choose both powers and the decay on the validation queries."""
    model = config.model
    train = split.train
    counts = counts_within(train.histories, train.num_items, model.steps, of_events=train.weights, budget=budget)
    frequency = weighted_counts(train)
    frequency = np.where(frequency > 0, frequency, 1.0)

    def matrix(source_power: float, target_power: float) -> sparse.csr_matrix:
        scaled = sparse.diags(frequency**-source_power) @ counts @ sparse.diags(frequency**-target_power)
        return strongest(sparse.csr_matrix(scaled), model.num_neighbours)

    powers = {"source_power": model.source_power, "target_power": model.target_power}
    return best_of_grid(split, config, matrix, seed, budget, **powers)


METHOD = Method(
    name="transitions",
    summary="counts of the items that follow an item within ten steps",
    Config=Config,
    build=build,
    needs=Needs(weighs=True),
)
