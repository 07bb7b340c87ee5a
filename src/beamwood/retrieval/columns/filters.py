"""Filters of requests as prepared masks, cached with the arrays that searchers derived from them."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.kept import Prepared
from beamwood.retrieval.columns.filter_cache import FilterCache
from beamwood.retrieval.columns.item_columns import CATEGORY, ItemColumns
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.columns.where import all_of, where_mask
from beamwood.retrieval.request import Allowed, as_list, truth_values
from beamwood.types import BoolArray, IndexArray

__all__ = ["FILTER_BYTES", "Filters", "mask_of"]

FILTER_BYTES = 256 * 2**20
"""The bytes of cached filters; the least recently used is dropped first."""


@dataclass(frozen=True, eq=False)
class Filters:
    """Resolves the filters of requests, and caches the latest ones.

    `alive`: the items that may be shown at all, None for all.
    """

    items: Vocabulary
    columns: ItemColumns
    max_bytes: int = FILTER_BYTES
    alive: Prepared | None = None
    uses: Counter[str] = field(default_factory=Counter, repr=False)
    """See `FilterCache`."""
    cache: FilterCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", FilterCache(self.max_bytes, self.uses))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without the cache."""
        return Filters, (self.items, self.columns, self.max_bytes, self.alive)

    def prepared(self, allowed: Allowed | None, where: Any, *, on_unknown: str = "error") -> Prepared | None:
        """The filter of a request, None where everything is allowed. Errors: another type, and unknown names."""
        if allowed is None and where is None:
            return self.alive
        if allowed is None or isinstance(allowed, Mapping):
            return self._once(_canonical(allowed, where), lambda: self._all_of(allowed, where))
        given = allowed if isinstance(allowed, np.ndarray) else as_list("allowed", allowed)
        flags, conditions = truth_values(given), _canonical(None, where)
        if flags is not None:
            return self._shown(self._meeting(self._checked(flags), where, conditions))
        indices = np.asarray(self.items.encode(list(given), on_unknown=on_unknown))
        indices = indices[indices >= 0]
        name = None if conditions is None else _digest(b"items", conditions + indices.tobytes())
        return self._once(name, lambda: self._meeting(mask_of(indices, len(self.items)), where, conditions))

    def _all_of(self, allowed: Mapping[str, Any] | None, where: Any) -> BoolArray:
        masks = [] if allowed is None else [self._of_category(allowed)]
        masks += [] if where is None else [where_mask(where, self.columns)]
        return all_of(masks)

    def may_show(self, items: IndexArray) -> BoolArray:
        """bool of the shape of `items`, whether each may be shown at all."""
        return np.ones(items.shape, bool) if self.alive is None else self.alive.mask[items]

    def _once(self, name: bytes | None, make: Callable[[], BoolArray]) -> Prepared:
        kept = self.cache.get(name)
        if kept is not None:
            return kept
        made = self._shown(make())
        return made if name is None else self.cache.add(name, made)

    def _meeting(self, mask: BoolArray, where: Any, name: bytes | None) -> BoolArray:
        """The items of a mask that meet conditions, if any, which are cached by name."""
        return mask if where is None else mask & self._once(name, lambda: where_mask(where, self.columns)).mask

    def _checked(self, flags: BoolArray) -> BoolArray:
        if flags.shape != (len(self.items),):
            raise InputError(f"allowed has shape {flags.shape}; give one bool for each of {len(self.items)} items")
        return flags

    def _shown(self, mask: BoolArray) -> Prepared:
        return Prepared(mask if self.alive is None else mask & self.alive.mask)

    def _of_category(self, allowed: Mapping[str, Any]) -> BoolArray:
        unknown = set(allowed) - {CATEGORY}
        if unknown or not allowed:
            raise InputError(f"allowed has keys {sorted(allowed)}; the known key is 'category'")
        column = self.category()
        wanted = allowed[CATEGORY]
        names = [wanted] if isinstance(wanted, str) else as_list(CATEGORY, wanted)
        return column.having(column.codes_of(CATEGORY, names).tolist())

    def category(self) -> LabelColumn:
        """The category column. Errors: there is none."""
        column = self.columns.columns.get(CATEGORY)
        if not isinstance(column, LabelColumn):
            others = f", or ask for its columns by where: {', '.join(self.columns.columns)}" * bool(
                self.columns.columns
            )
            raise InputError(
                f"this artefact has no categories; fit with an item table that has a 'category' column{others}"
            )
        return column


def mask_of(indices: IndexArray, num_items: int) -> BoolArray:
    """bool[N], true at the indices."""
    mask = np.zeros(num_items, bool)
    mask[indices] = True
    return mask


def _canonical(allowed: Any, where: Any) -> bytes | None:
    """The digest of conditions, None where they have no canonical text: such a filter is not cached."""
    try:
        return _digest(b"conditions", _ENCODER.encode([allowed, where]).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        return None


def _digest(kind: bytes, content: bytes) -> bytes:
    """Conditions may be longer than the mask that is cached for them."""
    return hashlib.blake2b(content, digest_size=16, person=kind).digest()


def _plain(value: Any) -> Any:
    """A JSON form of a value, without loss. Errors: a value whose `repr` may be ambiguous, as a series or an
    iterator.
    """
    if isinstance(value, np.ndarray | set | frozenset):
        return {"": [repr(each) for each in value]}
    if isinstance(value, np.generic | dt.date):
        return repr(value)
    raise TypeError


_ENCODER = json.JSONEncoder(sort_keys=True, default=_plain, check_circular=False)
