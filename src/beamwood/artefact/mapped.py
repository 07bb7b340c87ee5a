"""Arrays of a safetensors file as views of its mapped pages, which all processes that map the file share."""

from __future__ import annotations

import json
import math
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["array_shapes", "map_arrays"]

_TYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
}
# The largest header accepted: the limit of the format's own library.
_MOST_HEADER = 100_000_000


def map_arrays(file: int) -> dict[str, NDArray[Any]]:
    """The arrays by name of an open file. A page is read at its first access; writes change only this process's copy.

    Errors: `ValueError` on a file that is not safetensors, or whose arrays are not stored one after the other.
    """
    entries, start = _header(file)
    pages = mmap.mmap(file, 0, access=mmap.ACCESS_COPY)
    arrays: dict[str, NDArray[Any]] = {}
    for name, (dtype, shape, offset) in entries.items():
        count = math.prod(shape)
        array = np.frombuffer(pages, dtype, count, start + offset) if count else np.empty(0, dtype)
        # Another writer may have stored it at an unaligned offset, which not all processors and kernels accept.
        arrays[name] = (array if array.flags.aligned else array.copy()).reshape(shape)
    return arrays


def array_shapes(file: int) -> dict[str, list[int]]:
    """The shape of each array, by the header alone. Errors: as `map_arrays`."""
    entries, _ = _header(file)
    return {name: list(shape) for name, (_, shape, _) in entries.items()}


def _header(file: int) -> tuple[dict[str, tuple[Any, tuple[int, ...], int]], int]:
    """The type, shape and offset of each array by name, and the offset of the first one."""
    length = os.stat(file).st_size
    with open(file, "rb", closefd=False) as stream:
        stream.seek(0)
        first = stream.read(8)
        size = int.from_bytes(first, "little")
        if len(first) < 8 or not 2 <= size <= min(_MOST_HEADER, length - 8):
            raise ValueError("its header does not lie in it")
        written = stream.read(size)
    try:
        header = json.loads(written)
        listed = {name: about for name, about in header.items() if name != "__metadata__"}
        found = {name: _entry(about) for name, about in listed.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is not that of a safetensors file: {error}") from None
    stop = 0
    for (dtype, shape, offset), end in sorted(found.values(), key=lambda entry: (entry[0][2], entry[1])):
        if offset != stop or end - offset != math.prod(shape) * np.dtype(dtype).itemsize:
            raise ValueError("its arrays do not lie one behind the other")
        stop = end
    if 8 + size + stop != length:
        raise ValueError(f"its arrays end at byte {8 + size + stop} of {length}")
    return {name: entry for name, (entry, _) in found.items()}, 8 + size


def _entry(about: dict[str, Any]) -> tuple[tuple[Any, tuple[int, ...], int], int]:
    """The type, shape and offset of one array, and where it ends."""
    if about["dtype"] not in _TYPES:
        raise ValueError(f"it holds a type of number that numpy lacks: {about['dtype']}")
    shape, (start, end) = tuple(about["shape"]), about["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, start, end)):
        raise ValueError("a shape or an offset is not a number of 0 or more")
    return (_TYPES[about["dtype"]], shape, start), end
