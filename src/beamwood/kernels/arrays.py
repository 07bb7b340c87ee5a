"""Plain arrays by name, from a model or a saved folder: checks of their consistency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from beamwood.errors import ArtefactError, unsound_score

__all__ = [
    "aligned",
    "all_finite",
    "check_floats",
    "check_integers",
    "linear_shapes",
    "shape_of",
    "sound",
    "storage",
    "unread",
    "values_unread",
]

Arrays = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]
_Scores = TypeVar("_Scores", bound=NDArray[np.floating[Any]])

# Whether values stay unchecked while a folder is opened: mapped pages are read when a search needs them.
_UNREAD: ContextVar[bool] = ContextVar("values unread", default=False)


@contextmanager
def values_unread() -> Iterator[None]:
    """A context in which `all_finite` and callers of `unread` check no values; shapes and types are still checked.

    Indices that are followed without bounds checks are checked nevertheless.
    """
    token = _UNREAD.set(True)
    try:
        yield
    finally:
        _UNREAD.reset(token)


def unread() -> bool:
    """Whether values stay unchecked."""
    return _UNREAD.get()


def all_finite(array: NDArray[Any]) -> bool:
    """Whether no value is NaN or infinite."""
    return unread() or bool(np.isfinite(array).all())


def aligned(array: Any, dtype: DTypeLike) -> NDArray[Any]:
    """The array in the form of the native core: of this type, contiguous and aligned; copied where it is not."""
    found: NDArray[Any] = np.ascontiguousarray(array, dtype)
    return found if found.flags.aligned else found.copy()


def storage(array: NDArray[Any], dtype: DTypeLike) -> str:
    """How an array differs from the form of `aligned`, "" where it does not: its type, "strided" or "unaligned"."""
    if array.dtype != dtype:
        return str(array.dtype)
    if not array.flags.c_contiguous:
        return "strided"
    return "" if array.flags.aligned else "unaligned"


def shape_of(arrays: Arrays, name: str, axes: int) -> tuple[int, ...]:
    """The shape of an array, by which others are checked; `ArtefactError` where it is missing, empty or has
    other axes.
    """
    if name not in arrays:
        raise ArtefactError(f"the array '{name}' is missing")
    shape = arrays[name].shape
    if len(shape) != axes or 0 in shape:
        raise ArtefactError(f"the array '{name}' has shape {shape}; expected {axes} axes of 1 or more")
    return shape


def check_floats(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `ArtefactError` naming the first array that is missing, of another shape, not of floats or not finite."""
    for name, shape in shapes.items():
        if name not in arrays:
            raise ArtefactError(f"the array '{name}' is missing")
        array = arrays[name]
        if array.shape != shape or array.dtype.kind != "f":
            raise ArtefactError(
                f"the array '{name}' is {array.dtype} of shape {array.shape}; expected floats of {shape}"
            )
        # As float32, in which it is used.
        with np.errstate(over="ignore"):
            finite = unread() or all_finite(array.astype(np.float32, copy=False))
        if not finite:
            raise ArtefactError(f"the array '{name}' holds NaN or infinity")


def check_integers(arrays: Arrays, types: Mapping[str, tuple[DTypeLike, ...]]) -> None:
    """Raise `ArtefactError` naming the first array that is missing, not one-dimensional or of another type."""
    for name, allowed in types.items():
        if name not in arrays:
            raise ArtefactError(f"the array '{name}' is missing")
        array = arrays[name]
        if array.ndim != 1 or array.dtype not in allowed:
            known = " or ".join(str(np.dtype(one)) for one in allowed)
            raise ArtefactError(
                f"the array '{name}' is {array.dtype} of shape {array.shape}; expected a row of {known}"
            )


def linear_shapes(name: str, inputs: int, outputs: int) -> Shapes:
    """The shapes of a linear map's `name.weight` and `name.bias`."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def sound(scores: _Scores) -> _Scores:
    """The scores. Errors: `ArtefactError` where one is not a finite number."""
    if not np.isfinite(scores).all():
        raise unsound_score()
    return scores
