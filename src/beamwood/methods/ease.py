"""EASE: the linear item-to-item model with the least reconstruction error, in closed form; applied to latest items.

    B_ij = -P_ij / P_jj, B_jj = 0,    P = (X'X + regularisation I)^-1,    X binary, or weights, [users, N]

The most frequent items are solved together, the others to first order: see `_to_first_order`. Decay 1, seen "counted",
a `length` beyond every history and all items solved together (preset `paper`, for up to 20,000 items) give the paper's
form. Source: Steck, Embarrassingly shallow autoencoders for sparse data (WWW 2019), equation 8.

Shape legend: N items, M of them with weights, F of those solved together, R = M - F.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from beamwood.blocks import slices
from beamwood.data.split import Split
from beamwood.fitting.counting import CountingConfig, CountLast, GridSettings, best_of_grid, interactions
from beamwood.kernels.din import MAX_HISTORY
from beamwood.kernels.lapack import invert_positive
from beamwood.methods.method import Method, Needs
from beamwood.training.budget import Budget
from beamwood.types import FloatArray, Searcher

__all__ = ["METHOD", "Config", "weights"]

# Rows of the dense matrix in a block.
_BLOCK_ROWS = 1024
# The time of a multiplication in a sparse-dense product, relative to one in a dense product.
_SPARSE = 30
# The time to look at an entry for the largest ones of a row, relative to a dense multiplication.
_SELECTED = 1000
# The largest ratio of the eigenvalues' bounds for float32; the error is then some 1e-4 of an entry.
_FLOAT32_RATIO = 1e4
_Rows = Callable[[int, int], FloatArray]
# Items in the trial that predicts the time of a larger matrix, and the share of a time limit that it may take.
_TRIED, _SHARE = 3000, 0.25


class RidgeGridSettings(GridSettings):
    """The grid of the closed form: regularisation, and the items with weights."""

    regularisation: tuple[Annotated[float, Field(ge=1e-3, le=1e9)], ...] = Field(
        (300.0, 1000.0), min_length=1, description="lambda: larger values trust rare pairs less"
    )
    max_items: int = Field(50_000, ge=1, le=200_000, description="maximum items with weights, most frequent first")
    max_solved: int = Field(
        8000,
        ge=1,
        le=100_000,
        description="maximum items solved together, most frequent first; the weights of others are approximate",
    )
    count_last: CountLast = 2500


class Config(CountingConfig):
    """See `CountingConfig`; items without weights follow by popularity."""

    model: RidgeGridSettings = RidgeGridSettings()


def weights(
    taken: sparse.csr_matrix, *, regularisation: float, num_neighbours: int, max_solved: int
) -> sparse.csr_matrix:
    """B as sparse float32[M, M], with the `num_neighbours` entries of largest magnitude in each row.

    `taken` binary or weights, [users, M], whose first `max_solved` columns are solved together. Working memory, in
    dense float32: about the smaller of 4 F M and 4 U (U + M) bytes, U the users with interactions; twice as much if the
    regularisation is too small for float32.
    """
    known = sparse.csr_matrix(taken[np.diff(taken.indptr) > 0])
    if _has_few_users(known, max_solved):
        diagonal, rows_of = _by_users(known, regularisation)
    elif known.shape[1] <= max_solved:
        diagonal, rows_of = _by_items(known, regularisation)
    else:
        diagonal, rows_of = _to_first_order(known, regularisation, max_solved)
    scale = -1 / diagonal
    blocks = []
    for start in range(0, known.shape[1], _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, known.shape[1])
        block = rows_of(start, stop)
        block *= scale
        block[np.arange(stop - start), np.arange(start, stop)] = 0
        blocks.append(_largest(block.astype(np.float32, copy=False), num_neighbours))
    return sparse.csr_matrix(sparse.vstack(blocks))


def _by_items(taken: sparse.csr_matrix, regularisation: float) -> tuple[FloatArray, _Rows]:
    """The diagonal of P, and a function of its off-diagonal rows, by the inverse in equation 8."""
    inverse = _inverse(sparse.csr_matrix(taken.T), regularisation)

    def rows_of(start: int, stop: int) -> FloatArray:
        # Only the lower triangle of the symmetric inverse is stored.
        block = np.concatenate([inverse[start:stop, :start], inverse[start:, start:stop].T], axis=1)
        square = block[:, start:stop]
        square[:] = np.tril(square.T) + np.tril(square.T, -1).T
        return block

    return np.diag(inverse).copy(), rows_of


def _to_first_order(taken: sparse.csr_matrix, regularisation: float, solved: int) -> tuple[FloatArray, _Rows]:
    """As `_by_items`, exact for the first F = `solved` items without the others, and approximate for the others.

    With A = X'X + regularisation I, each of the R others has its ridge regression on the F, W = A_RF A_FF^-1. The rest,
    S = A_RR - W A_FR, is inverted to the first order in its entries off the diagonal. Those are small against the
    diagonal, which is at least the regularisation.
    """
    inverse = _inverse(sparse.csr_matrix(taken[:, :solved].T), regularisation)
    inverse += np.tril(inverse, -1).T
    others = sparse.csr_matrix(taken[:, solved:])
    others_T = sparse.csr_matrix(others.T)
    products_RF = sparse.csr_matrix(others_T @ taken[:, :solved], dtype=inverse.dtype)
    # The matrix is symmetric, and its transpose lies row by row.
    ridge_RF = products_RF @ inverse.T
    explained = np.asarray(products_RF.multiply(ridge_RF).sum(axis=1)).ravel()
    left_R = np.asarray(others.power(2).sum(axis=0)).ravel() + regularisation - explained
    variances_R = (1 / left_R).astype(inverse.dtype)

    def rows_of(start: int, stop: int) -> FloatArray:
        first, last = slice(start, min(stop, solved)), slice(max(start - solved, 0), max(stop - solved, 0))
        block: FloatArray = np.empty((stop - start, taken.shape[1]), inverse.dtype)
        of_first, of_last = np.split(block, [max(first.stop - start, 0)])
        of_first[:, :solved] = inverse[first]
        np.multiply(ridge_RF[:, first].T, -variances_R, out=of_first[:, solved:])
        ridge = ridge_RF[last]
        np.negative(ridge, out=of_last[:, :solved])
        of_last[:, solved:] = (products_RF @ np.ascontiguousarray(ridge.T)).T
        of_last[:, solved:] -= (others_T[last] @ others).toarray()
        of_last[:, solved:] *= variances_R
        of_last *= variances_R[last, None]
        return block

    return np.concatenate([np.diag(inverse), variances_R]), rows_of


def _by_users(taken: sparse.csr_matrix, regularisation: float) -> tuple[FloatArray, _Rows]:
    """As `_by_items`, by the Woodbury identity: lambda P = I - X' (X X' + lambda I)^-1 X."""
    inverse = _inverse(taken, regularisation)
    inverse += np.tril(inverse, -1).T
    items_of = sparse.csr_matrix(taken.T, dtype=inverse.dtype)
    explained = np.ascontiguousarray((items_of @ inverse).T)
    entries = taken.tocoo()
    own = np.bincount(entries.col, entries.data * explained[entries.row, entries.col], taken.shape[1])

    def rows_of(start: int, stop: int) -> FloatArray:
        block: FloatArray = items_of[start:stop] @ explained
        block /= -regularisation
        return block

    return (1 - own) / regularisation, rows_of


def _inverse(rows: sparse.csr_matrix, regularisation: float) -> FloatArray:
    """The lower triangle of (A A' + regularisation I)^-1, A [n, m] of 0 or more, with zeros above."""
    columns = sparse.csr_matrix(rows.T)
    # No eigenvalue is above the largest sum of a row.
    largest = float(np.asarray(rows @ columns.sum(axis=1)).max(initial=0)) + regularisation
    dtype = np.float32 if largest <= _FLOAT32_RATIO * regularisation else np.float64
    inverse: FloatArray = np.empty((rows.shape[0], rows.shape[0]), dtype, order="F")
    for part in slices(len(inverse), _BLOCK_ROWS):
        inverse[part] = (rows[part] @ columns).toarray()
    inverse[np.diag_indices_from(inverse)] += regularisation
    # In place, lower triangles: the sum is positive definite, as the product has no negative eigenvalue.
    invert_positive(inverse)
    return inverse


def _has_few_users(taken: sparse.csr_matrix, max_solved: int) -> bool:
    """Whether inverting over users takes less than over items; all users have interactions."""
    users, items = taken.shape
    return bool(_work_by_users(users, items, taken.nnz) < _work_by_items(taken, max_solved)[-1])


def _work_by_items(taken: sparse.csr_matrix, max_solved: int) -> NDArray[np.float64]:
    """float64[M], the work of inverting over the first 1..M items, in units of dense multiplications."""
    items = np.arange(1.0, taken.shape[1] + 1)
    # At most as many products of others with the items that are solved together.
    of_user = np.diff(sparse.csr_matrix(taken[:, :max_solved]).indptr)
    products = sparse.csr_matrix(taken[:, max_solved:], dtype=bool).T @ of_user.astype(float)
    pairs = np.concatenate([np.zeros(min(max_solved, len(items))), np.cumsum(products)])
    work: NDArray[np.float64] = np.minimum(items, max_solved) ** 3 + _SPARSE * pairs * items
    return work


def _work_by_users(users: float, items: Any, entries: Any) -> Any:
    """Multiplications of inverting over users, in units of dense ones."""
    return users**3 + _SPARSE * entries * (users + items)


def _largest(block: NDArray[np.float32], count: int) -> sparse.csr_matrix:
    """The `count` entries of largest magnitude in each row; overwrites the block."""
    first = block.shape[1] - count
    if first > 0:
        sizes = np.abs(block)
        # Much faster than `argpartition`, which ties alone need.
        block[sizes < np.partition(sizes, first, axis=1)[:, first, None]] = 0
        for row in np.flatnonzero(np.count_nonzero(block, axis=1) > count):
            block[row, np.argpartition(sizes[row], first)[:first]] = 0
    return sparse.csr_matrix(block)


def _affordable(ordered: sparse.csr_matrix, max_solved: int, budget: Budget) -> int:
    """The number of items, the most frequent first in `ordered`, whose weights fit the time limit, by a timed trial."""
    wanted: int = ordered.shape[1]
    known = min(_TRIED, wanted)
    if not budget.limited or wanted <= known:
        return wanted
    users = np.count_nonzero(np.diff(ordered.indptr))
    items, entries = np.arange(1.0, wanted + 1), np.cumsum(ordered.getnnz(axis=0), dtype=float)
    by_users = _work_by_users(float(users), items, entries)
    work = np.minimum(_work_by_items(ordered, max_solved), by_users) + _SELECTED * items**2
    began = budget.clock()
    trial = sparse.csr_matrix(ordered[:, :known])
    weights(trial, regularisation=1.0, num_neighbours=known, max_solved=max_solved)
    seconds = budget.clock() - began
    room = _SHARE * max(budget.left, 0.0)
    most: int = max(known, int(np.searchsorted(work * seconds, room * work[known - 1], side="right")))
    if most < wanted:
        budget.leave_out(f"{most} of {wanted} items get weights")
    return most


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[Searcher, dict[str, Any]]:
    """Solve on the training histories, choose regularisation and decay on the validation queries."""
    size, model, facts = split.train.num_items, config.model, dict[str, Any]()
    everything = interactions(split.train.histories, size, model.count_last, facts, split.train.weights)
    frequent = np.argsort(-split.train.item_counts, kind="stable")[: model.max_items]
    ordered = sparse.csr_matrix(everything[:, frequent])
    taken = sparse.csr_matrix(ordered[:, : _affordable(ordered, model.max_solved, budget)])
    options = {"num_neighbours": model.num_neighbours, "max_solved": model.max_solved}

    def matrix(regularisation: float) -> sparse.csr_matrix:
        solved = weights(taken, regularisation=regularisation, **options).tocoo()
        return sparse.csr_matrix((solved.data, (frequent[solved.row], frequent[solved.col])), shape=(size, size))

    searcher, chosen = best_of_grid(split, config, matrix, seed, budget, regularisation=model.regularisation)
    return searcher, chosen | facts


PAPER = {
    "model.decay": (1.0,),
    "model.seen": ("counted",),
    "model.length": MAX_HISTORY,
    "model.num_neighbours": 10_000,
    "model.count_last": 2**31 - 1,
    "model.max_solved": 20_000,
}

METHOD = Method(
    name="ease",
    summary="the linear item-to-item model that reconstructs histories best, in closed form, the history weighted by "
    "recency (exact for the 8,000 most frequent items: `model.max_solved`)",
    Config=Config,
    build=build,
    needs=Needs(weighs=True),
    presets={"paper": PAPER},
)
