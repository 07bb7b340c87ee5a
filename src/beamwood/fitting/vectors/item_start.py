"""Initial item vectors: random, or from transition counts of the training histories."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import eigsh
from torch import Tensor, nn

from beamwood.blocks import evenly
from beamwood.data.dataset import Dataset
from beamwood.fitting.counting import counts_within
from beamwood.fitting.start_cache import cached, cached_values
from beamwood.kernels.lapack import largest_eigenvectors
from beamwood.training.budget import Budget, Clock
from beamwood.types import BoolArray, FloatArray

__all__ = [
    "least_vector_seconds",
    "neighbour_matrix",
    "start_from",
    "start_from_transitions",
    "transition_vectors",
    "unit_vectors",
]

# The most steps between the items of a pair.
_STEPS = 10
# A longer log is sampled by evenly spread users, to so many interactions, or so many for each item if that is more.
_INTERACTIONS, _PER_ITEM = 3_000_000, 5
# The relative tolerance of eigenvalues: sufficient for initial vectors, and six times as fast as an exact one.
_TOLERANCE = 1e-2
# The most items for exact eigenvectors, which otherwise take minutes; else the rounds of subspace iteration, and its
# additional columns.
_EXACT, _ROUNDS, _MORE = 200_000, 4, 16
# The most items for each exact eigenvector, and in all, for which the matrix is dense. A dense one takes time N^3, a
# Lanczos basis N R^2; the two are equal at N = 16 R to 30 R. The matrix takes 300 MB at most.
_DENSE_PER_VECTOR, _DENSE = 20, 8_600
# The time of a Lanczos basis: products for each vector, and passes over the basis for each product. The time of a dense
# matrix: known from so many items.
_PRODUCTS_PER_VECTOR, _PASSES_PER_PRODUCT, _TRIED = 5.5, 2, 1_000
# Items, and pairs, of a timed round of products; rounds for fewer items take a second or two.
_TIMED, _TIMED_PAIRS = 2**16, 2**19
# The share of the time left that exact eigenvectors may take.
_SHARE = 0.25


class _Key(NamedTuple):
    """The cache key of transition vectors."""

    width: int
    seed: int


def neighbour_matrix(
    train: Dataset,
    *,
    of_users: BoolArray | None = None,
    power: float = 1.0,
    directed: bool = False,
    most: int | None = None,
    budget: Budget | None = None,
) -> sparse.csr_matrix:
    """`C + C'` [N, N], C the directed counts of pairs within ten steps, each 1 / steps^power.

    Each is divided by the square root of its history's length: metrics weight users equally, and a long history has ten
    pairs for each of its items. `of_users` bool[users]: the users who count; None for all. `directed`: C alone. A log
    of more than `most` interactions is sampled by evenly spread users. Errors: as `counts_within`.
    """
    most = max(_INTERACTIONS, _PER_ITEM * train.num_items) if most is None else most
    num_users, num_interactions = len(train.histories), max(1, len(train.histories.items))
    users = evenly(num_users, math.ceil(num_users * min(1, most / num_interactions)))
    if of_users is not None:
        users = users[of_users[users]]
    histories = train.histories.take(users)
    weights = np.maximum(histories.lengths, 1) ** -0.5
    counts = counts_within(histories, train.num_items, _STEPS, power=power, weights=weights, budget=budget)
    return sparse.csr_matrix(counts if directed else counts + counts.T)


def transition_vectors(train: Dataset, width: int, seed: int, budget: Budget | None = None) -> FloatArray:
    """float32[N, width], of length 1, whose products approximate `D^-1/2 (C + C') D^-1/2` up to these lengths.

    `C + C'`: `neighbour_matrix`; D: its row sums plus their mean. The vectors are the leading eigenvectors, each times
    the square root of its eigenvalue, largest first, so that the first columns, normalised again, are those of a
    smaller width. Items that follow one another, or have the same neighbours, get similar vectors, even from few
    histories. An item without neighbours gets zeros. Source: Qin and Rohe, "Regularized Spectral Clustering under the
    Degree-Corrected Stochastic Blockmodel", with the square roots of eigenvalues as weights. Where exact eigenvectors
    would take more than a quarter of the rest of `budget`, a few rounds of subspace iteration replace them. Within
    `start_cache.caching`, exact ones of a larger width are reused. Errors: `TimeLimitError` where not even these fit.
    """

    def compute() -> tuple[FloatArray, bool]:
        wider = [wide for wide, exact in _cached_widths(train, seed).items() if exact and wide > width]
        if wider:
            vectors, _ = cached_values(train)[_Key(min(wider), seed)]
            return unit_vectors(vectors[:, :width]), True
        return _transition_vectors(train, width, seed, budget)

    return cached(train, _Key(width, seed), compute, budget)[0].copy()


def _cached_widths(train: Dataset, seed: int) -> dict[int, bool]:
    """The widths of the cached transition vectors, and whether these are exact."""
    stored = ((key, value) for key, value in cached_values(train).items() if isinstance(key, _Key))
    return {key.width: exact for key, (_, exact) in stored if key.seed == seed}


def _transition_vectors(train: Dataset, width: int, seed: int, budget: Budget | None) -> tuple[FloatArray, bool]:
    """`transition_vectors`, and whether they are exact."""
    num_items = train.num_items
    counts = neighbour_matrix(train, budget=budget)
    degrees = np.asarray(counts.sum(axis=1)).ravel()
    # Without the mean, each small isolated group of items has one of the largest eigenvalues.
    root = np.sqrt(np.maximum(degrees + degrees.mean(), 1e-9))
    scaled = (sparse.diags(1 / root) @ counts @ sparse.diags(1 / root)).tocsr().astype(np.float32)
    rank = min(width, num_items - 1)
    if rank < 1 or scaled.nnz == 0:
        return np.zeros((num_items, width), np.float32), True
    exact = num_items <= _EXACT and _fits(scaled, rank, budget)
    values, basis = leading_eigenvectors(scaled, rank, np.random.default_rng(seed), exact=exact, budget=budget)
    vectors = np.zeros((num_items, width), np.float32)
    vectors[:, :rank] = (basis * np.sqrt(np.maximum(values, 0)))[:, ::-1]
    return unit_vectors(vectors), exact


def least_vector_seconds(train: Dataset, width: int, seed: int, clock: Clock) -> float:
    """The estimated seconds that `transition_vectors` takes at least, from a small round of products; 0 for few items,
    and where they are cached.
    """
    num_items, lengths = train.num_items, train.histories.lengths
    is_cached = any(wide == width or (exact and wide > width) for wide, exact in _cached_widths(train, seed).items())
    if num_items < _TIMED or is_cached:
        return 0.0
    rng = np.random.default_rng(0)
    pairs = sum(float(np.maximum(lengths - gap, 0).sum()) for gap in range(1, _STEPS + 1))
    pairs *= min(1.0, max(_INTERACTIONS, _PER_ITEM * num_items) / max(1, int(lengths.sum())))
    first, later = rng.integers(_TIMED, size=(2, _TIMED_PAIRS))
    matrix = sparse.csr_matrix((np.ones(_TIMED_PAIRS, np.float32), (first, later)), shape=(_TIMED, _TIMED))
    columns = rng.standard_normal((_TIMED, width + _MORE), dtype=np.float32)
    product, basis = _timed(lambda: matrix @ columns, clock), _timed(lambda: orthonormal(columns), clock)
    # Equal pairs are one entry of the matrix, so the two directions of a pair are counted as one.
    return (_ROUNDS + 1) * (product * pairs / _TIMED_PAIRS + basis * num_items / _TIMED)


def _timed(work: Callable[[], object], clock: Clock) -> float:
    """The seconds of `work`, done once before, as a first call is slower."""
    work()
    began = clock()
    work()
    return clock() - began


def _fits(matrix: sparse.csr_matrix, rank: int, budget: Budget | None) -> bool:
    """Whether exact eigenvectors fit the time limit, estimated from a small part. Errors: not even others fit."""
    if budget is None or not budget.limited:
        return True
    rng, clock, num_items = np.random.default_rng(0), budget.clock, matrix.shape[0]
    basis = rng.standard_normal((num_items, min(2 * rank, num_items)), dtype=np.float32)

    if _is_dense(num_items, rank):
        tried = min(num_items, _TRIED)
        trial = _timed(lambda: _dense_eigenvectors(matrix[:tried, :tried], rank * tried // num_items), clock)
        estimate = trial * (num_items / tried) ** 3
    else:
        product = _timed(lambda: matrix @ basis[:, 0], clock)
        one_pass = _timed(lambda: basis @ (basis[:, 0] @ basis), clock)
        estimate = _PRODUCTS_PER_VECTOR * rank * (product + _PASSES_PER_PRODUCT * one_pass)
    if estimate <= _SHARE * budget.left:
        return True
    some = _timed(lambda: orthonormal(matrix @ basis[:, :_MORE]), clock) * (rank + _MORE) / _MORE
    budget.require((_ROUNDS + 1) * some)
    budget.leave_out(f"items start from {_ROUNDS} rounds of products: exact eigenvectors take {estimate:.0f} s")
    return False


def leading_eigenvectors(
    matrix: sparse.csr_matrix, rank: int, rng: np.random.Generator, *, exact: bool, budget: Budget | None = None
) -> tuple[FloatArray, FloatArray]:
    """The largest eigenvalues [R] of a symmetric matrix [N, N], ascending, and their vectors, float32[N, R].

    If not `exact`, the best approximation in the span of a few products. Source of these: Halko, Martinsson and Tropp,
    "Finding Structure with Randomness", algorithms 4.4 and 5.3. Errors: `TimeLimitError` once these are certain to
    exceed `budget`.
    """
    num_items, budget = matrix.shape[0], budget or Budget()
    if exact and _is_dense(num_items, rank):
        return _dense_eigenvectors(matrix, rank)
    if exact:
        first = rng.normal(size=num_items).astype(np.float32)
        # Once the Krylov space of the first vector is exhausted, the search restarts from a random one.
        values, basis = eigsh(matrix, k=rank, which="LA", v0=first, rng=rng, tol=_TOLERANCE)
        return values, basis
    columns = rng.standard_normal((num_items, min(rank + _MORE, num_items)), dtype=np.float32)
    began = budget.clock()
    for number in range(_ROUNDS):
        columns = orthonormal(matrix @ columns)
        budget.require_rest(number + 1, _ROUNDS + 1, began)
    values, turn = np.linalg.eigh(columns.T @ (matrix @ columns))
    return values[-rank:], columns @ turn[:, -rank:]


def _is_dense(num_items: int, rank: int) -> bool:
    """Whether exact eigenvectors are those of a dense matrix, which is faster then."""
    return num_items <= min(_DENSE_PER_VECTOR * rank, _DENSE)


def _dense_eigenvectors(matrix: sparse.csr_matrix, rank: int) -> tuple[FloatArray, FloatArray]:
    """As `leading_eigenvectors`, of the matrix made dense."""
    return largest_eigenvectors(matrix.toarray(order="F"), rank)


def orthonormal(columns_NR: FloatArray) -> FloatArray:
    """float32[N, R], an orthonormal basis of the columns' span; 0 for dependent columns."""
    lengths, turn = np.linalg.eigh((columns_NR.T @ columns_NR).astype(float))
    inverse = np.where(lengths > 1e-6 * lengths[-1], 1 / np.sqrt(np.maximum(lengths, 1e-30)), 0)
    result: FloatArray = columns_NR @ (turn * inverse).astype(np.float32)
    return result


def unit_vectors(vectors_ND: FloatArray) -> FloatArray:
    """[N, D], normalised to length 1; 0 where a vector is shorter than 1e-6."""
    lengths = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    result: FloatArray = np.divide(vectors_ND, lengths, out=np.zeros_like(vectors_ND), where=lengths > 1e-6)
    return result


def start_from_transitions(
    tables: Sequence[nn.Embedding | nn.EmbeddingBag], train: Dataset, seed: int, budget: Budget | None = None
) -> None:
    """Replace the random item vectors of these tables, all of one width, by `transition_vectors`."""
    start_from(tables, torch.from_numpy(transition_vectors(train, tables[0].embedding_dim, seed, budget)))


@torch.no_grad()
def start_from(tables: Sequence[nn.Embedding | nn.EmbeddingBag], vectors_ND: Tensor) -> None:
    """Replace the first N rows of tables by these vectors; a row for which that is zero, and further rows, stay."""
    known = torch.nonzero(vectors_ND.any(dim=1)).ravel()
    for table in tables:
        table.weight[known] = vectors_ND[known]
