"""EASE: the linear item-to-item model with the least reconstruction error, in closed form; applied to latest items.

    B_ij = -P_ij / P_jj, B_jj = 0,    P = (X'X + regularisation I)^-1,    X binary, or weights, [users, N]

The most frequent items are solved together, the others to first order: see `_others`. Decay 1, seen "counted",
a `length` beyond every history and all items solved together (preset `paper`, for up to 20,000 items) give the paper's
form. Source: Steck, Embarrassingly shallow autoencoders for sparse data (WWW 2019), equation 8.

Shape legend: N items, M of them with weights, F of those solved together, R = M - F.
"""

from __future__ import annotations

import itertools
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
# Times relative to a multiplication in a dense product: of one in a sparse-dense product, of one with gathered rows,
# and of looking at an entry for the largest ones of its row.
_SPARSE, _GATHERED, _SELECTED = 20, 200, 1000
# The largest ratio of the eigenvalues' bounds for float32; the error is then some 1e-4 of an entry.
_FLOAT32_RATIO = 1e4
# Items in the trial that predicts the time of a larger matrix, the share of a time limit that it may take, and the
# number of items that are solved together in any case.
_TRIED, _SHARE, _FEWEST = 3000, 0.25, 500


class RidgeGridSettings(GridSettings):
    """The grid of the closed form: regularisation, and the items with weights."""

    regularisation: tuple[Annotated[float, Field(ge=1e-3, le=1e9)], ...] = Field(
        (300.0, 1000.0), min_length=1, description="lambda: larger values trust rare pairs less"
    )
    max_items: int = Field(200_000, ge=1, le=2_000_000, description="maximum items with weights, most frequent first")
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

    `taken` binary or weights, [users, M], whose first `max_solved` columns are solved together. Working memory: about
    8 F^2 bytes, or twice as much if the regularisation is too small for float32. To this come 12 bytes for each pair
    of a solved item and another with a common user.
    """
    known = sparse.csr_matrix(taken[np.diff(taken.indptr) > 0])
    inverse_FF = _inverse_of_items(sparse.csr_matrix(known[:, :max_solved]), regularisation)
    scale_F = -1 / np.diag(inverse_FF)
    ridge_RF, rows_of_others = _others(known, inverse_FF, regularisation, num_neighbours)
    ridge_FR, blocks = sparse.csr_matrix(ridge_RF.T), []
    for part in slices(len(inverse_FF), _BLOCK_ROWS):
        # The columns of the symmetric matrix are its rows, and lie together.
        block = inverse_FF[:, part].T * scale_F
        block[np.arange(len(block)), np.arange(part.start, part.stop)] = 0
        blocks.append(_largest(sparse.hstack([_whole(block), ridge_FR[part]], format="csr"), num_neighbours))
    return sparse.csr_matrix(sparse.vstack(blocks + rows_of_others), dtype=np.float32)


def _others(
    taken: sparse.csr_matrix, inverse_FF: FloatArray, regularisation: float, num_neighbours: int
) -> tuple[sparse.csr_matrix, list[sparse.csr_matrix]]:
    """The weights of the F solved items for the R others, [R, F], and blocks of the others' rows of B, [R, M] in all.

    With A = X'X + regularisation I, each of the others has its ridge regression on the F, W = A_RF A_FF^-1. The rest,
    S = A_RR - W A_FR, is inverted to the first order in its entries off the diagonal. Those are small against the
    diagonal, which is at least the regularisation. Only pairs of items with a common user have a weight.
    """
    solved, dtype = len(inverse_FF), inverse_FF.dtype
    others = sparse.csr_matrix(taken[:, solved:])
    others_T = sparse.csr_matrix(others.T)
    products_RF = sparse.csr_matrix(others_T @ taken[:, :solved], dtype=dtype)
    diagonal_F = sparse.diags(1 / np.diag(inverse_FF))
    ridges, rows = [sparse.csr_matrix((0, solved), dtype=dtype)], []
    for part in slices(others.shape[1], _BLOCK_ROWS):
        ridge = products_RF[part] @ inverse_FF
        rest = sparse.csr_matrix(others_T[part] @ others, dtype=dtype)
        rest.data -= _explained(ridge, products_RF, rest)
        variance = sparse.diags(1 / (rest.diagonal(part.start) + regularisation))
        rest.data[rest.indices == np.repeat(np.arange(part.start, part.stop), np.diff(rest.indptr))] = 0
        ridges.append(_at(ridge, products_RF[part]))
        rows.append(_largest(sparse.hstack([variance @ ridges[-1] @ diagonal_F, variance @ rest]), num_neighbours))
    return sparse.csr_matrix(sparse.vstack(ridges)), rows


def _explained(ridge: FloatArray, products_RF: sparse.csr_matrix, rest: sparse.csr_matrix) -> FloatArray:
    """W A_FR of a block of W, `ridge` [b, F], for the entries of `rest` [b, R]."""
    if np.diff(products_RF.indptr)[rest.indices].sum() * _GATHERED > products_RF.nnz * len(ridge) * _SPARSE:
        whole: FloatArray = _at((products_RF @ np.ascontiguousarray(ridge.T)).T, rest).data
        return whole
    explained: FloatArray = np.empty(rest.nnz, ridge.dtype)
    for row, (start, stop) in enumerate(itertools.pairwise(rest.indptr)):
        explained[start:stop] = products_RF[rest.indices[start:stop]] @ ridge[row]
    return explained


def _whole(values: FloatArray) -> sparse.csr_matrix:
    """All entries of dense `values`, without looking for zeros."""
    rows, columns = values.shape
    indices = np.tile(np.arange(columns, dtype=np.int32), rows)
    return sparse.csr_matrix((values.ravel(), indices, np.arange(rows + 1) * columns), shape=values.shape)


def _at(values: FloatArray, pattern: sparse.csr_matrix) -> sparse.csr_matrix:
    """The entries of dense `values` where `pattern` has entries."""
    rows = np.repeat(np.arange(len(values)), np.diff(pattern.indptr))
    return sparse.csr_matrix((values[rows, pattern.indices], pattern.indices, pattern.indptr), shape=pattern.shape)


def _inverse_of_items(taken: sparse.csr_matrix, regularisation: float) -> FloatArray:
    """P of all items in `taken`; over users where they are few: lambda P = I - X' (X X' + lambda I)^-1 X (Woodbury)."""
    items_of = sparse.csr_matrix(taken.T)
    if not _has_few_users(taken):
        return _inverse(items_of, regularisation)
    of_users = _inverse(taken, regularisation)
    items_of = items_of.astype(of_users.dtype)
    inverse: FloatArray = items_of @ np.ascontiguousarray((items_of @ of_users).T)
    inverse /= -regularisation
    inverse[np.diag_indices_from(inverse)] += 1 / regularisation
    return inverse


def _inverse(rows: sparse.csr_matrix, regularisation: float) -> FloatArray:
    """(A A' + regularisation I)^-1, A [n, m] of 0 or more."""
    columns = sparse.csr_matrix(rows.T)
    # No eigenvalue is above the largest sum of a row.
    largest = float(np.asarray(rows @ columns.sum(axis=1)).max(initial=0)) + regularisation
    dtype = np.float32 if largest <= _FLOAT32_RATIO * regularisation else np.float64
    inverse: FloatArray = np.empty((rows.shape[0], rows.shape[0]), dtype, order="F")
    for part in slices(len(inverse), _BLOCK_ROWS):
        inverse[part] = (rows[part] @ columns).toarray()
    inverse[np.diag_indices_from(inverse)] += regularisation
    # In place: the sum is positive definite, as the product has no negative eigenvalue.
    invert_positive(inverse)
    return inverse


def _has_few_users(taken: sparse.csr_matrix) -> bool:
    """Whether inverting over users takes less than over items."""
    users, items = taken.shape
    return bool(_work_by_users(users, items, taken.nnz) < items**3)


def _work_by_users(users: float, items: Any, entries: Any) -> Any:
    """The time of inverting over users, in units of dense multiplications."""
    return users**3 + _SPARSE * entries * (users + items)


def _work(ordered: sparse.csr_matrix, solved: int) -> NDArray[np.float64]:
    """float64[M], an estimate of the time of the weights of the first 1..M items, in units of dense multiplications.

    `solved`: the number of items that are solved together.
    """
    users = int(np.count_nonzero(np.diff(ordered.indptr)))
    items = np.minimum(np.arange(1.0, ordered.shape[1] + 1), solved)
    entries = np.cumsum(ordered.getnnz(axis=0)[:solved], dtype=float)
    entries = np.pad(entries, (0, len(items) - len(entries)), mode="edge")
    together = np.minimum(items**3, _work_by_users(users, items, entries)) + _SELECTED * items**2
    # At most as many pairs of others with the items that are solved together, and with each other.
    first = sparse.csr_matrix(ordered[:, :solved])
    others = sparse.csr_matrix(ordered[:, solved:], dtype=bool)
    pairs_R = np.minimum(others.T @ np.diff(first.indptr).astype(float), solved)
    gathered_R = np.minimum(_GATHERED * (others.T @ (others @ pairs_R)), _SPARSE * pairs_R.sum())
    others_R = _SPARSE * solved * pairs_R + gathered_R
    work: NDArray[np.float64] = together + np.pad(np.cumsum(others_R), (len(items) - len(others_R), 0))
    return work


def _largest(rows: sparse.spmatrix, count: int) -> sparse.csr_matrix:
    """The `count` entries of largest magnitude in each row, without zeros."""
    rows = sparse.csr_matrix(rows, dtype=np.float32)
    for row in np.flatnonzero(np.diff(rows.indptr) > count):
        values = rows.data[rows.indptr[row] : rows.indptr[row + 1]]
        values[np.argpartition(np.abs(values), len(values) - count)[:-count]] = 0
    rows.eliminate_zeros()
    return rows


def _affordable(ordered: sparse.csr_matrix, max_solved: int, regularisation: float, budget: Budget) -> tuple[int, int]:
    """How many items, the most frequent first in `ordered`, get weights within the time limit, and how many of them are
    solved together: half as many until all get weights, but at least `_FEWEST`. A timed trial tells.
    """
    wanted: int = ordered.shape[1]
    known = min(_TRIED, wanted)
    if not budget.limited or wanted <= known:
        return wanted, max_solved
    trial, solved = sparse.csr_matrix(ordered[:, :known]), min(max_solved, _FEWEST)
    began = budget.clock()
    weights(trial, regularisation=regularisation, num_neighbours=known, max_solved=solved)
    units = _SHARE * max(budget.left, 0.0) * _work(trial, solved)[-1] / (budget.clock() - began)
    solved = min(max_solved, wanted)
    while (work := _work(ordered, solved))[-1] > units and solved > _FEWEST:
        solved = max(solved // 2, _FEWEST)
    if solved < min(max_solved, wanted):
        budget.leave_out(f"{solved} items are solved together")
    most = max(known, int(np.searchsorted(work, units, side="right")))
    if most < wanted:
        budget.leave_out(f"{most} of {wanted} items get weights")
    return most, solved


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[Searcher, dict[str, Any]]:
    """Solve on the training histories, choose regularisation and decay on the validation queries."""
    size, model, facts = split.train.num_items, config.model, dict[str, Any]()
    everything = interactions(split.train.histories, size, model.count_last, facts, split.train.weights)
    frequent = np.argsort(-split.train.item_counts, kind="stable")[: model.max_items]
    ordered = sparse.csr_matrix(everything[:, frequent])
    most, solved = _affordable(ordered, model.max_solved, min(model.regularisation), budget)
    taken = sparse.csr_matrix(ordered[:, :most])
    options = {"num_neighbours": model.num_neighbours, "max_solved": solved}

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
