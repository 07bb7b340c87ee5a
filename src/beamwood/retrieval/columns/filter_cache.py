"""The cache of prepared filters, bounded by bytes; each operation takes the same time, however many it has."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from functools import partial

from beamwood.fork_lock import ForkLock
from beamwood.kept import Prepared

__all__ = ["FilterCache"]

# The bytes of an entry's objects, which outweigh the arrays of a small catalogue.
_ENTRY = 1024


class FilterCache:
    """The latest filters by name; beyond `max_bytes` the least recently used one is dropped first.

    `uses` counts "hits" and "misses"; caches may share it.
    """

    def __init__(self, max_bytes: int, uses: Counter[str]) -> None:
        self.max_bytes, self.uses, self.nbytes = max_bytes, uses, 0
        """The size of all entries, with the arrays that searchers have derived since."""
        self._kept, self._sizes = OrderedDict[bytes, Prepared](), dict[bytes, int]()
        self._lock = ForkLock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: bytes | None) -> Prepared | None:
        """The filter of that name as the most recently used one, None where there is none, or no name."""
        with self._lock:
            found = None if name is None else self._kept.get(name)
            if name is None or found is None:
                self.uses["misses"] += 1
            else:
                self.uses["hits"] += 1
                self._kept.move_to_end(name)
            return found

    def add(self, name: bytes, made: Prepared) -> Prepared:
        """Keep a filter; return it, or that which another thread added first."""
        with self._lock:
            kept = self._kept.setdefault(name, made)
        if kept is made:
            # Weak, so that a cache and its filters are no cycle, whose memory would be released late.
            kept.grown = partial(_measured, weakref.ref(self), name)
            kept.grown()
        return kept

    def measured(self, name: bytes) -> None:
        """Update the size of an entry, and make room."""
        with self._lock:
            if name in self._kept:
                self._resize(name, self._kept[name].nbytes + _ENTRY)
            while self.nbytes > self.max_bytes and len(self._kept) > 1:
                self._resize(self._kept.popitem(last=False)[0], 0)

    def _resize(self, name: bytes, size: int) -> None:
        self.nbytes += size - self._sizes.pop(name, 0)
        if size:
            self._sizes[name] = size


def _measured(cache: weakref.ref[FilterCache], name: bytes) -> None:
    there = cache()
    if there is not None:
        there.measured(name)
