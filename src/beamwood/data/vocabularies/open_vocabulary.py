"""The ids of a fitted artefact, extended by new ones and without erased ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.vocabularies.id_table import IdTable, id_table
from beamwood.data.vocabularies.vocabulary import Vocabulary, check_known
from beamwood.errors import InputError
from beamwood.types import BoolArray, IndexArray

__all__ = ["OpenVocabulary", "fitted_ids"]


class OpenVocabulary(Vocabulary):
    """The first `known` ids of another vocabulary, then `new` ones; those with `erased` bool[N] count as unknown.

    `unknown`: the new ids are known to be none of the others, and are not looked up. Errors: `InputError` on a new id
    that exists already, is repeated, or is of another type.
    """

    def __init__(
        self,
        fitted: Vocabulary,
        known: int,
        new: Sequence[Any],
        erased: BoolArray | None = None,
        *,
        unknown: bool = False,
    ) -> None:
        self.fitted, self._known, self._erased = fitted, known, erased
        self.dtype, self._length = fitted.dtype, known + len(new)
        self._new = fitted.typed(new)
        listed = self._new.to_list()
        self._at: dict[Any, int] = dict(zip(listed, range(known, known + len(listed)), strict=True))
        if len(self._at) < len(listed):
            again = next(each for place, each in enumerate(listed, start=known) if self._at[each] != place)
            raise InputError(f"item {again!r} is given twice; give each new item once")
        found = np.empty(0, np.int32) if unknown else fitted.encode(self._new, on_unknown="ignore")
        there = np.flatnonzero((found >= 0) & (found < known))
        if len(there):
            raise InputError(f"item {new[int(there[0])]!r} was fitted already; give a new item an id of its own")

    @cached_property
    def ids(self) -> pl.Series:
        """All ids by index."""
        return pl.concat([self.fitted.ids[: self._known].rename("id"), self._new.rename("id")])

    @cached_property
    def table(self) -> IdTable | None:
        """The ids as plain arrays, None for a type without such a table."""
        return id_table(self.ids)

    def encode(self, ids: Sequence[Any] | pl.Series, *, on_unknown: str = "error") -> NDArray[np.int32]:
        """See `Vocabulary`."""
        if self.fitted.table is None:
            # The new ones are found by ids of their type alone; dates are also given as text.
            ids = self.fitted.typed(ids, on_unknown).to_list()
        known = self.fitted.encode(ids, on_unknown="ignore" if on_unknown == "error" else on_unknown)
        indices = self.opened(ids, known)
        if on_unknown == "error":
            check_known(ids, indices)
        return indices

    def opened(self, ids: Sequence[Any] | pl.Series, fitted: NDArray[np.int32]) -> NDArray[np.int32]:
        """int32[len(ids)], the index of each id, -1 for an unknown one, from its index in the fitted vocabulary."""
        indices = np.where(fitted < self._known, fitted, np.int32(-1))
        for place in np.flatnonzero(indices < 0).tolist() if self._at else ():
            indices[place] = self._index_of(ids[place])
        if self._erased is not None:
            indices[(indices >= 0) & self._erased[np.maximum(indices, 0)]] = -1
        return indices

    def _index_of(self, each: Any) -> int:
        # True equals 1 in Python, but is not an id.
        return -1 if isinstance(each, bool) or each.__hash__ is None else self._at.get(each, -1)

    def decode(self, indices: IndexArray) -> list[Any]:
        """See `Vocabulary`."""
        places = np.asarray(indices, np.int64)
        new = places >= self._known
        if not new.any():
            return self.fitted.decode(places)
        ids = self.fitted.decode(np.where(new, 0, places))
        for place in np.flatnonzero(new).tolist():
            ids[place] = self._new[int(places[place]) - self._known]
        return ids


def fitted_ids(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary of the fit: that which an open one extends, any other itself."""
    return vocabulary.fitted if isinstance(vocabulary, OpenVocabulary) else vocabulary
