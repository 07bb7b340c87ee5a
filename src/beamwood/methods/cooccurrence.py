"""Item-to-item cosine of who took both, with shrinkage; the history weighted by recency."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from pydantic import Field, NonNegativeFloat
from scipy import sparse

from beamwood.data.split import Split
from beamwood.fitting.counting import Grid, Power, best_of_grid, interactions
from beamwood.fitting.options import TrainOptions
from beamwood.kernels.lists import strongest
from beamwood.retrieval.retriever import Retriever

__all__ = ["Config", "fit", "similarity"]


class Config(Grid):
    """See `Grid`."""

    shrinkage: tuple[NonNegativeFloat, ...] = Field((10.0, 100.0), min_length=1)
    power: tuple[Power, ...] = Field((0.5,), min_length=1, description="of the item frequencies; 0.5 is the cosine")


def similarity(taken: sparse.csr_matrix, *, shrinkage: float, power: float, num_neighbours: int) -> sparse.csr_matrix:
    """`c_ij / ((n_i n_j)^power + shrinkage)`, c the users who took both, n those who took one; diagonal 0.

    `taken` binary [users, N]; rows of the product are formed in blocks, so memory follows the neighbours kept.
    """
    counts = np.asarray(taken.sum(axis=0)).ravel()
    scale = np.maximum(counts, 1) ** power
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


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Count on the training histories, choose shrinkage, power and decay on the validation queries."""
    config = config or Config()
    taken = interactions(split.train.histories, split.train.num_items)

    def matrix(shrinkage: float, power: float) -> sparse.csr_matrix:
        return similarity(taken, shrinkage=shrinkage, power=power, num_neighbours=config.num_neighbours)

    seed = options.get("seed", 0)
    return best_of_grid(split, config, matrix, ("shrinkage", "power"), method="cooccurrence", seed=seed)
