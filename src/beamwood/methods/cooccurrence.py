"""Item-to-item cosine similarity of users, with shrinkage; the history is weighted by recency."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat
from scipy import sparse

from beamwood.blocks import weighted_slices
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


# Pairs counted at a time, and as many as there are items: each block takes a pass over all items.
_PAIRS = 2**22


def similarity(
    taken: sparse.csr_matrix,
    *,
    shrinkage: float,
    power: float,
    num_neighbours: int,
    budget: Budget | None = None,
) -> sparse.csr_matrix:
    """float32 [N, N]: `c_ij / ((n_i n_j)^power + shrinkage)`, diagonal 0; c users took both, n took one.

    `taken` [users, N] binary, or weights, of which n sums the squares. The product is formed in blocks of rows, so
    memory is proportional to N and to the neighbours kept. Errors: `TimeLimitError` once it is certain to exceed
    `budget`.
    """
    budget = budget or Budget()
    counts = np.asarray(taken.multiply(taken).sum(axis=0)).ravel()
    scale = np.where(counts > 0, counts, 1) ** power
    items_of = sparse.csr_matrix(taken.T)
    pairs_N = _with_ones(items_of) @ np.diff(taken.indptr)
    blocks, began, total = [], budget.clock(), pairs_N.sum()
    for rows in weighted_slices(pairs_N, max(_PAIRS, len(pairs_N))):
        block = sparse.coo_matrix(items_of[rows] @ taken)
        items, columns = block.row + rows.start, block.col
        values = np.where(items == columns, 0.0, block.data / (scale[items] * scale[columns] + shrinkage))
        matrix = sparse.csr_matrix((values, (block.row, columns)), shape=block.shape)
        matrix.eliminate_zeros()
        blocks.append(strongest(matrix, num_neighbours).astype(np.float32))
        budget.require_rest(max(pairs_N[: rows.stop].sum(), 1), total, began)
    return sparse.csr_matrix(sparse.vstack(blocks))


def _with_ones(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """The matrix with 1 for each stored value."""
    return sparse.csr_matrix((np.ones(matrix.nnz, np.int64), matrix.indices, matrix.indptr), shape=matrix.shape)


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[Searcher, dict[str, Any]]:
    """Count on the training histories, choose shrinkage, power and decay on the validation queries."""
    model, facts = config.model, dict[str, Any]()
    taken = interactions(split.train.histories, split.train.num_items, model.count_last, facts, split.train.weights)

    # The first matrix must fit the limit; a later one that does not is not tried.
    limits = itertools.chain([budget], itertools.repeat(None))

    def matrix(shrinkage: float, power: float) -> sparse.csr_matrix:
        return similarity(
            taken, shrinkage=shrinkage, power=power, num_neighbours=model.num_neighbours, budget=next(limits)
        )

    searcher, chosen = best_of_grid(split, config, matrix, seed, budget, shrinkage=model.shrinkage, power=model.power)
    return searcher, chosen | facts


METHOD = Method(
    name="cooccurrence",
    summary="item-to-item cosine with shrinkage, the history weighted by recency",
    Config=Config,
    build=build,
    needs=Needs(weighs=True),
)
