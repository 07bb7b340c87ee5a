"""LAPACK without Python's lock: bitwise equal to scipy's calls, while other threads run."""

import threading
import time

import numpy as np
import pytest
from scipy import linalg

from beamwood.kernels.lapack import invert_positive, largest_eigenvectors


def positive(size):
    rows = np.random.default_rng(size).random((size, size + 3))
    return np.asfortranarray(rows @ rows.T + np.eye(size))


@pytest.mark.parametrize("size", [1, 2, 65, 200])
@pytest.mark.parametrize(("dtype", "close"), [(np.float64, 1e-8), (np.float32, 1e-3)])
def test_it_is_the_inverse(size, dtype, close):
    matrix = np.asfortranarray(positive(size), dtype)
    factorise, invert = linalg.get_lapack_funcs(("potrf", "potri"), dtype=dtype)
    factor, failed = factorise(matrix, lower=1)
    expected, failed_too = invert(factor, lower=1)
    assert (failed, failed_too) == (0, 0)
    found = matrix.copy(order="F")
    invert_positive(found)
    np.testing.assert_array_equal(found, np.tril(expected) + np.tril(expected, -1).T)
    np.testing.assert_allclose(found, np.linalg.inv(matrix.astype(float)), rtol=close, atol=close / 100)


@pytest.mark.parametrize(("size", "rank"), [(1, 1), (2, 1), (65, 65), (200, 1), (200, 60), (700, 20)])
def test_eigenvectors_are_the_largest(size, rank):
    matrix = np.asfortranarray(positive(size) / size, np.float32)
    options = {"range": "I", "il": size - rank + 1, "iu": size, "lower": 1, "lwork": 70 * size, "liwork": 10 * size}
    expected, expected_vectors, found, _, failed = linalg.lapack.ssyevr(matrix, **options)
    assert (found, failed) == (rank, 0)
    values, vectors = largest_eigenvectors(matrix.copy(order="F"), rank)
    np.testing.assert_array_equal(values, expected[:rank])
    np.testing.assert_array_equal(vectors, expected_vectors[:, :rank])
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix.astype(float))[-rank:], rtol=1e-4)


PAIRS = np.kron(np.eye(150), [[0, 1], [1, 0]])
RING = np.roll(np.eye(300), 1, axis=0)
GROUPS = np.kron(np.eye(6), np.ones((50, 50))) / 50


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("rank", [5, 100, 299])
@pytest.mark.parametrize(
    "kind", [np.zeros((300, 300)), PAIRS, RING + RING.T, GROUPS], ids=["zeros", "pairs", "ring", "groups"]
)
def test_eigenvectors_of_equal_eigenvalues_are_orthogonal(kind, rank, shuffled):
    order = np.random.default_rng(0).permutation(300) if shuffled else np.arange(300)
    matrix = np.asfortranarray(kind[order][:, order], np.float32)
    values, vectors = largest_eigenvectors(matrix.copy(order="F"), rank)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix.astype(float))[-rank:], atol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-4)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-5)


@pytest.mark.parametrize(
    "work",
    [invert_positive, lambda matrix: largest_eigenvectors(matrix.astype(np.float32), 200)],
    ids=["inverse", "vectors"],
)
def test_other_threads_run_during_a_call(work):
    matrix, ended = positive(900), threading.Event()
    counted = [0]

    def count():
        while not ended.is_set():
            time.sleep(1e-3)
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    work(matrix)
    after = counted[0]
    ended.set()
    thread.join(60)
    assert after - before >= 3
