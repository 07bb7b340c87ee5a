"""LAPACK without Python's lock: bitwise equal to scipy's calls, while other threads run."""

import threading
import time

import numpy as np
import pytest
from scipy import linalg

from beamwood.kernels.lapack import invert_positive


def positive(size):
    rows = np.random.default_rng(size).random((size, size + 3))
    return np.asfortranarray(rows @ rows.T + np.eye(size))


@pytest.mark.parametrize("size", [1, 2, 65, 200])
def test_it_is_the_inverse(size):
    matrix = positive(size)
    factor, failed = linalg.lapack.dpotrf(matrix, lower=1)
    expected, failed_too = linalg.lapack.dpotri(factor, lower=1)
    assert (failed, failed_too) == (0, 0)
    found = matrix.copy(order="F")
    invert_positive(found)
    np.testing.assert_array_equal(found, np.tril(expected))
    np.testing.assert_allclose(found, np.tril(np.linalg.inv(matrix)), rtol=1e-8, atol=1e-10)


def test_other_threads_run_during_a_call():
    matrix, ended = positive(900), threading.Event()
    counted = [0]

    def count():
        while not ended.is_set():
            time.sleep(1e-3)
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    invert_positive(matrix)
    after = counted[0]
    ended.set()
    thread.join(60)
    assert after - before >= 3
