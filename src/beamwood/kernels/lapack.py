"""Dense solvers of symmetric matrices that overwrite them, without holding the interpreter lock.

scipy's wrappers of LAPACK hold the lock, for minutes with some thousand rows, during which not even SIGINT is handled.
The same routines, called as C functions, do not.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

from beamwood.types import FloatArray

__all__ = ["invert_positive", "largest_eigenvectors"]

# Rows of workspace: LAPACK needs its block size, at most 64, and six more.
_WORK_ROWS, _WHOLE_WORK_ROWS = 70, 10


def invert_positive(matrix: FloatArray) -> None:
    """Replace a positive definite float32 or float64[M, M], Fortran order, by its inverse.

    The equation: A = L L' (Cholesky), then A^-1 = L'^-1 L^-1.
    """
    assert matrix.flags.f_contiguous
    kind, size = {"float32": "s", "float64": "d"}[matrix.dtype.name], _whole(len(matrix))
    for name in ("potrf", "potri"):
        _call(kind + name, b"L", size, matrix, size)
    # The routines read and write the lower triangle.
    for column in range(1, len(matrix)):
        matrix[:column, column] = matrix[column, :column]


def largest_eigenvectors(matrix: FloatArray, rank: int) -> tuple[FloatArray, FloatArray]:
    """The `rank` largest eigenvalues of a symmetric float32[M, M], ascending, and their vectors, float32[M, rank].

    `matrix`: in Fortran order; its content is destroyed. The vectors have length 1 and are orthogonal, also those of
    equal eigenvalues; their signs are LAPACK's.
    """
    assert matrix.flags.f_contiguous
    assert matrix.dtype == np.float32
    assert 1 <= rank <= len(matrix)
    num_rows = len(matrix)
    size, first, unused = _whole(num_rows), _whole(num_rows - rank + 1), np.zeros(1, np.float32)
    values, vectors = np.empty(num_rows, np.float32), np.empty((num_rows, rank), np.float32, order="F")
    work, whole_work = np.empty(_WORK_ROWS * num_rows, np.float32), np.empty(_WHOLE_WORK_ROWS * num_rows, np.intc)
    asked = (b"V", b"I", b"L", size, matrix, size, unused, unused, first, size, unused)
    found = (_whole(0), values, vectors, size, np.empty(2 * rank, np.intc))
    _call("ssyevr", *asked, *found, work, _whole(len(work)), whole_work, _whole(len(whole_work)))
    return values[:rank], vectors


def _whole(number: int) -> NDArray[np.intc]:
    """A whole number by reference."""
    return np.array([number], np.intc)


def _call(name: str, *arguments: bytes | NDArray[Any]) -> None:
    """Call a LAPACK routine, as scipy exports it to compiled code; its last argument tells of failure."""
    capsule, api = cython_lapack.__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    failed = _whole(0)
    given = [each if isinstance(each, bytes) else each.ctypes.data for each in (*arguments, failed)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(given))(pointer)(*given)
    assert failed[0] == 0, f"{name}: {failed[0]}"
