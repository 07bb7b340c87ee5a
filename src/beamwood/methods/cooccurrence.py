"""Item-to-item cosine similarity of users, with shrinkage; the history is weighted by recency."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat
from scipy import sparse

from beamwood.data.split import Split
from beamwood.fitting.counting import CountingConfig, CountLast, GridSettings, Power, best_of_grid, interactions
from beamwood.kernels.lists import strongest
from beamwood.methods.method import Method, Needs
from beamwood.training.budget import Budget
from beamwood.types import Searcher

__all__ = ["METHOD", "Config", "similarity"]


class CosineGridSettings(GridSettings):
    """The grid of the cosine: shrinkage and power."""

    shrinkage: tuple[NonNegativeFloat, ...] = Field(
        (10.0, 100.0), min_length=1, description="added to the denominator; larger values trust rare pairs less"
    )
    power: tuple[Power, ...] = Field((0.5,), min_length=1, description="exponent of the item frequencies; 0.5: cosine")
    count_last: CountLast = 2500


class Config(CountingConfig):
    """See `CountingConfig`."""

    model: CosineGridSettings = CosineGridSettings()


def similarity(taken: sparse.csr_matrix, *, shrinkage: float, power: float, num_neighbours: int) -> sparse.csr_matrix:
    """`c_ij / ((n_i n_j)^power + shrinkage)`, c the users who took both, n those who took one; diagonal 0.

    `taken` [users, N] binary, or weights, of which n sums the squares. The product is formed in blocks of rows, so
    memory is proportional to the neighbours kept.
    """
    counts = np.asarray(taken.multiply(taken).sum(axis=0)).ravel()
    scale = np.where(counts > 0, counts, 1) ** power
    items_of = sparse.csr_matrix(taken.T)
    blocks = []
    for start in range(0, taken.shape[1], 2048):
        block = sparse.coo_matrix(items_of[start : start + 2048] @ taken)
        rows, columns = block.row + start, block.col
        values = np.where(rows == columns, 0.0, block.data / (scale[rows] * scale[columns] + shrinkage))
        matrix = sparse.csr_matrix((values, (block.row, columns)), shape=block.shape)
        matrix.eliminate_zeros()
        blocks.append(strongest(matrix, num_neighbours))
    return sparse.csr_matrix(sparse.vstack(blocks))


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[Searcher, dict[str, Any]]:
    """Count on the training histories, choose shrinkage, power and decay on the validation queries."""
    model, facts = config.model, dict[str, Any]()
    taken = interactions(split.train.histories, split.train.num_items, model.count_last, facts, split.train.weights)

    def matrix(shrinkage: float, power: float) -> sparse.csr_matrix:
        return similarity(taken, shrinkage=shrinkage, power=power, num_neighbours=model.num_neighbours)

    searcher, chosen = best_of_grid(split, config, matrix, seed, budget, shrinkage=model.shrinkage, power=model.power)
    return searcher, chosen | facts


METHOD = Method(
    name="cooccurrence",
    summary="item-to-item cosine with shrinkage, the history weighted by recency",
    Config=Config,
    build=build,
    needs=Needs(weighs=True),
)
