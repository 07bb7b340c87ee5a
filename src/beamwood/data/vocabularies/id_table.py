"""Ids as plain arrays that can be memory-mapped: integers in a table or by binary search, text in a hash table.

Shape legend: N ids, T bytes of text, S buckets, a power of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.errors import InputError
from beamwood.kernels.dispatch import native
from beamwood.kernels.rows import places_of
from beamwood.ragged import indptr_of
from beamwood.types import IndexArray

__all__ = ["IdTable", "MoreTexts", "NumberIds", "TextIds", "id_table", "restore_ids"]

Arrays = dict[str, NDArray[Any]]

# Integers get a table if it has at most this many entries for each of them.
_PLACES = 8
# The entries of the cache of texts looked up lately, about 8 MiB.
_AT_HAND = 2**16
# Texts converted from Python strings at a time, and cut for a column at a time.
_BLOCK, _CUT = 2**16, 2**20


class NumberIds:
    """Distinct integers `values` [N] with a lookup table or a sort order.

    `near` int32: the index of each integer from the lowest id on, -1 where it is not an id. Where that table would be
    long it is None, and `order` int64[N] sorts the values; None where they ascend.
    """

    kind: ClassVar[str] = "numbers"

    def __init__(
        self, values: NDArray[Any], order: NDArray[np.int64] | None = None, near: NDArray[np.int32] | None = None
    ) -> None:
        self.values, self.order, self.near = values, order, near
        # Differences in smaller types could wrap around into the table.
        self._wide: Any = np.uint64 if values.dtype == np.uint64 else np.int64
        self._lowest = self._wide(0) if near is None else self._wide(values[near[0]])
        # Resolved once, as reading the environment is slow.
        self._module = native()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the native module, which another process loads itself."""
        return NumberIds, (self.values, self.order, self.near)

    @classmethod
    def of(cls, values: NDArray[Any]) -> NumberIds:
        """The table of integers in any order."""
        if len(values):
            lowest, room = int(values.min()), int(values.max()) - int(values.min()) + 1
            if room <= _PLACES * len(values):
                near = np.full(room, -1, np.int32)
                wide = np.uint64 if values.dtype == np.uint64 else np.int64
                near[values.astype(wide) - wide(lowest)] = np.arange(len(values), dtype=np.int32)
                return cls(values, near=near)
        ascending = len(values) < 2 or bool((values[1:] > values[:-1]).all())
        return cls(values, None if ascending else np.argsort(values, kind="stable"))

    def __len__(self) -> int:
        return len(self.values)

    def find(self, ids: Sequence[Any] | NDArray[Any]) -> NDArray[np.int32] | None:
        """int32[len(ids)], the index of each, -1 for an unknown one; None where they are not all such integers."""
        if type(ids) is list and self.near is not None and self._wide is np.int64:
            found = places_of(self._module, self.near, int(self._lowest), ids)
            if found is not None:
                return found
        if not isinstance(ids, np.ndarray):
            for kind in set(map(type, ids)):
                if kind is not int and not issubclass(kind, np.integer):
                    return None
        asked = np.asarray(ids)
        if asked.ndim != 1:
            return None
        if len(asked) == 0:
            return np.empty(0, np.int32)
        if asked.dtype.kind not in "iu":
            return None
        own = self.values.dtype
        if asked.dtype != own:
            bounds = np.iinfo(own)
            if int(asked.min()) < bounds.min or int(asked.max()) > bounds.max:
                return None
            # Otherwise searchsorted would convert the whole table.
            asked = asked.astype(own)
        if len(self.values) == 0:
            return np.full(len(asked), -1, np.int32)
        if self.near is not None:
            return self._by_place(asked.astype(self._wide, copy=False) - self._lowest)
        places = np.minimum(np.searchsorted(self.values, asked, sorter=self.order), len(self.values) - 1)
        places = places if self.order is None else self.order[places]
        return np.where(self.values[places] == asked, places, -1).astype(np.int32)

    def _by_place(self, places: NDArray[Any]) -> NDArray[np.int32]:
        assert self.near is not None
        # Values below the lowest wrap around to large numbers.
        places = places.view(np.uint64)
        if int(np.maximum.reduce(places)) < len(self.near):
            return np.asarray(self.near[places], np.int32)
        inside = places < len(self.near)
        return np.where(inside, self.near[np.where(inside, places, 0)], np.int32(-1))

    def ids(self, indices: IndexArray) -> list[Any]:
        """The ids of indices in 0..N-1."""
        listed: list[Any] = self.values[indices].tolist()
        return listed

    @property
    def dtype(self) -> Any:
        """Their Polars type."""
        return pl.Series(self.values[:0]).dtype

    def series(self) -> pl.Series:
        """All ids."""
        return pl.Series("id", self.values)

    def arrays(self) -> Arrays:
        """What `restore_ids` takes."""
        if self.near is not None:
            return {"values": self.values, "near": self.near}
        return {"values": self.values, "order": np.empty(0, np.int64) if self.order is None else self.order}

    def check(self) -> None:
        """Errors: repeated ids, an order or a table that is inconsistent with them."""
        if self.near is not None:
            found = self.near[self.near >= 0]
            again = self._by_place(self.values.astype(self._wide) - self._lowest)
            if len(found) != len(self) or not np.array_equal(again, np.arange(len(self))):
                raise InputError("a vocabulary holds repeated ids, or its table does not find each; remove them")
            return
        order = np.arange(len(self)) if self.order is None else self.order
        if len(order) != len(self) or (len(order) and (order.min() < 0 or order.max() >= len(self))):
            raise InputError("the order of the ids is not a permutation")
        ascending = self.values[order]
        if not (ascending[1:] > ascending[:-1]).all():
            raise InputError("a vocabulary holds repeated ids, or its order does not sort them; remove them")


class TextIds:
    """Distinct texts: text i is bytes `stops[i]:stops[i + 1]` of `text` uint8[T], in UTF-8.

    Bucket b, the last bits of a text's CRC-32, holds the indices `members[starts[b]:starts[b + 1]]`.
    """

    kind: ClassVar[str] = "text"
    dtype: ClassVar[Any] = pl.String()

    def __init__(
        self,
        text: NDArray[np.uint8],
        stops: NDArray[np.int64],
        starts: NDArray[np.int64],
        members: NDArray[np.int32],
    ) -> None:
        self.text, self.stops, self.starts, self.members = text, stops, starts, members
        self._found: dict[str, int] = {}

    @classmethod
    def of(cls, series: pl.Series) -> TextIds:
        """The table of a column of text without nulls."""
        text, lengths, hashes = bytearray(), np.empty(len(series), np.int64), np.empty(len(series), np.int64)
        for block in slices(len(series), _BLOCK):
            encoded = [value.encode() for value in series[block].to_list()]
            text += b"".join(encoded)
            lengths[block], hashes[block] = [*map(len, encoded)], [*map(crc32, encoded)]
        size = 1 << max(1, int(len(series) - 1).bit_length())
        buckets = hashes & (size - 1)
        starts = indptr_of(np.bincount(buckets, minlength=size))
        members = np.argsort(buckets, kind="stable").astype(np.int32)
        return cls(np.frombuffer(text, np.uint8), indptr_of(lengths), starts, members)

    def __len__(self) -> int:
        return len(self.stops) - 1

    def find(self, ids: Sequence[Any]) -> NDArray[np.int32] | None:
        """int32[len(ids)], the index of each, -1 for an unknown one; None where they are not all text."""
        if not all(issubclass(kind, str) for kind in set(map(type, ids))):
            return None
        found = [*map(self._found.get, ids)]
        if None in found:
            try:
                found = [self._look_up(value) if at is None else at for value, at in zip(ids, found, strict=True)]
            except UnicodeEncodeError:
                return None
        return np.array(found, np.int32)

    def _look_up(self, value: str) -> int:
        """The index of a text, -1 for an unknown one; found texts are cached."""
        text, stops, key = self.text.data, self.stops.data, value.encode()
        bucket = crc32(key) & (len(self.starts) - 2)
        for index in self.members[self.starts[bucket] : self.starts[bucket + 1]].tolist():
            if text[stops[index] : stops[index + 1]] == key:
                if len(self._found) >= _AT_HAND:
                    self._found.clear()
                self._found[value] = index
                return int(index)
        return -1

    def ids(self, indices: IndexArray) -> list[Any]:
        """The ids of indices in 0..N-1."""
        text, stops = self.text.data, self.stops.data
        return [str(text[stops[index] : stops[index + 1]], "utf-8") for index in indices.tolist()]

    def series(self) -> pl.Series:
        """All ids."""
        try:
            parts = [self._cut(self.stops[part.start : part.stop + 1]) for part in slices(len(self), _CUT)]
        except pl.exceptions.ComputeError as error:
            raise InputError(f"an id is not UTF-8: {str(error).splitlines()[0]}") from None
        return pl.concat(parts) if parts else pl.Series("id", dtype=pl.String)

    def _cut(self, stops: NDArray[np.int64]) -> pl.Series:
        """Consecutive ids, cut out of their text by Polars, without a Python object for each."""
        text = self.text[stops[0] : stops[-1]].tobytes()
        places = pl.DataFrame({"start": stops[:-1] - stops[0], "length": np.diff(stops)})
        return places.select(pl.lit(text).bin.slice("start", "length").cast(pl.String).alias("id"))["id"]

    def arrays(self) -> Arrays:
        """What `restore_ids` takes."""
        return {"text": self.text, "stops": self.stops, "starts": self.starts, "members": self.members}

    def check(self) -> None:
        """Errors: text that is not UTF-8, repeated text, buckets that do not find it."""
        _check_rising("stops", self.stops, len(self.text))
        _check_rising("starts", self.starts, len(self.members))
        if len(self.members) != len(self) or (np.sort(self.members) != np.arange(len(self))).any():
            raise InputError("the ids are not in one bucket each")
        text, hashes = self.text.data, np.empty(len(self), np.int64)
        for part in slices(len(self), _BLOCK):
            stops = pairwise(self.stops[part.start : part.stop + 1].tolist())
            hashes[part] = [crc32(text[start:stop]) for start, stop in stops]
        size = len(self.starts) - 1
        buckets = np.repeat(np.arange(size), np.diff(self.starts))
        # Distinct texts that are in their buckets are found, each at its own place.
        if self.series().n_unique() != len(self) or (hashes[self.members] & (size - 1) != buckets).any():
            raise InputError("a vocabulary holds repeated ids, or one that its bucket does not find; remove them")


class MoreTexts(TextIds):
    """The texts of a table, then new ones, which are none of its; the table is shared, not made anew."""

    def __init__(self, first: TextIds, new: Sequence[str]) -> None:
        self.first: TextIds = first.first if isinstance(first, MoreTexts) else first
        self.new: list[str] = [*(first.new if isinstance(first, MoreTexts) else ()), *new]
        self._at = {text: place for place, text in enumerate(self.new, start=len(self.first))}

    def __len__(self) -> int:
        return len(self.first) + len(self.new)

    def find(self, ids: Sequence[Any]) -> NDArray[np.int32] | None:
        """See `TextIds`."""
        found = self.first.find(ids)
        for place in () if found is None else np.flatnonzero(found < 0).tolist():
            found[place] = self._at.get(ids[place], -1)  # type: ignore[index]
        return found

    def ids(self, indices: IndexArray) -> list[Any]:
        """See `TextIds`."""
        known = len(self.first)
        places, own = indices.tolist(), iter(self.first.ids(indices[indices < known]))
        return [next(own) if place < known else self.new[place - known] for place in places]

    def series(self) -> pl.Series:
        """See `TextIds`."""
        return pl.concat([self.first.series(), pl.Series("id", self.new, dtype=pl.String)])

    def arrays(self) -> Arrays:
        """See `TextIds`."""
        return TextIds.of(self.series()).arrays()

    def check(self) -> None:
        """See `TextIds`."""
        TextIds.of(self.series()).check()


IdTable = NumberIds | TextIds


def id_table(ids: pl.Series) -> IdTable | None:
    """The table of integers or text; None for other types."""
    if ids.dtype == pl.String:
        return TextIds.of(ids)
    values = ids.to_numpy() if ids.dtype.is_integer() else np.empty(0)
    return NumberIds.of(np.ascontiguousarray(values)) if values.dtype.kind in "iu" else None


def restore_ids(arrays: Mapping[str, NDArray[Any]]) -> IdTable:
    """The table from its `arrays`. Errors: inconsistent shapes or types; the content is left to `check`."""
    if "values" in arrays:
        return _restored_numbers(arrays["values"], arrays)
    parts = {"text": np.uint8, "stops": np.int64, "starts": np.int64, "members": np.int32}
    for name, dtype in parts.items():
        if arrays[name].ndim != 1 or arrays[name].dtype != dtype:
            raise InputError(f"the ids' {name} are {arrays[name].dtype} of shape {arrays[name].shape}")
    table = TextIds(arrays["text"], arrays["stops"], arrays["starts"], arrays["members"])
    size = len(table.starts) - 1
    if len(table.stops) == 0 or size < 1 or size & (size - 1) or len(table.members) != len(table):
        raise InputError("the arrays of the id table are inconsistent")
    _check_ends("stops", table.stops, len(table.text))
    _check_ends("starts", table.starts, len(table.members))
    return table


def _check_ends(name: str, stops: NDArray[np.int64], size: int) -> None:
    if stops[0] != 0 or stops[-1] != size:
        raise InputError(f"the ids' {name} run from {stops[0]} to {stops[-1]}; expected 0 to {size}")


def _check_rising(name: str, stops: NDArray[np.int64], size: int) -> None:
    _check_ends(name, stops, size)
    if (stops[1:] < stops[:-1]).any():
        raise InputError(f"the ids' {name} fall; they must rise")


def _restored_numbers(values: NDArray[Any], arrays: Mapping[str, NDArray[Any]]) -> NumberIds:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(f"the ids are {values.dtype} of shape {values.shape}; expected a row of integers")
    if "near" in arrays:
        near = arrays["near"]
        if near.ndim != 1 or near.dtype != np.int32 or not (len(near) and 0 <= near[0] < len(values)):
            raise InputError(f"the table of {len(values)} ids is {near.dtype} of shape {near.shape}; it finds none")
        return NumberIds(values, near=near)
    order = arrays["order"]
    if order.shape not in ((0,), values.shape) or order.dtype != np.int64:
        raise InputError(f"the order of {len(values)} ids is {order.dtype} of shape {order.shape}")
    return NumberIds(values, order if len(order) else None)
