"""The inverse of a positive definite matrix in place, without holding the interpreter lock.

scipy's wrappers of LAPACK hold the lock, for minutes with some thousand rows, during which not even SIGINT is handled.
The same routines, called as C functions, do not.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

__all__ = ["invert_positive"]


def invert_positive(matrix: NDArray[np.float64]) -> None:
    """Replace a positive definite float64[M, M], Fortran order, by its inverse: the lower triangle, with zeros above.

    The equation: A = L L' (Cholesky), then A^-1 = L'^-1 L^-1.
    """
    assert matrix.flags.f_contiguous
    assert matrix.dtype == np.float64
    size, failed = ctypes.c_int(len(matrix)), ctypes.c_int(0)
    for name in ("dpotrf", "dpotri"):
        _routine(name)(
            b"L", ctypes.byref(size), matrix.ctypes.data_as(ctypes.c_void_p), ctypes.byref(size), ctypes.byref(failed)
        )
        assert failed.value == 0, f"{name}: {failed.value}"
    for column in range(1, len(matrix)):
        matrix[:column, column] = 0


def _routine(name: str) -> Any:
    """A LAPACK routine, as scipy exports it to compiled code."""
    capsule, api = cython_lapack.__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    whole = ctypes.POINTER(ctypes.c_int)
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, whole, ctypes.c_void_p, whole, whole)(pointer)
