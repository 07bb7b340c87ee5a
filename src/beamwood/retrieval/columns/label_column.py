"""An item column of labels, for filters: the labels of each item and the items of each label.

Shape legend: N items, E entries of all items' labels, M items of given labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.vocabularies.id_table import TextIds, restore_ids
from beamwood.errors import InputError, nearest
from beamwood.ragged import indptr_of, ranges
from beamwood.types import BoolArray

__all__ = ["LabelColumn"]

# From so many labels on they are coded by sorting.
_MANY = 10_000
# With more labels no suggestion for a wrong one is searched: comparing texts takes far longer than a search.
_COMPARED = 1000


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """Item i has the labels `codes[indptr[i]:indptr[i + 1]]`, label l the items `items[starts[l]:starts[l + 1]]`."""

    labels: TextIds
    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    kind = "labels"

    @classmethod
    def of(cls, lists: pl.Series) -> LabelColumn:
        """The column of lists of text; null and empty text are not labels."""
        frame = pl.DataFrame({"item": np.arange(len(lists), dtype=np.int32), "label": lists}).explode("label")
        frame = frame.filter(pl.col("label").is_not_null() & (pl.col("label") != ""))
        rows = frame["item"].to_numpy()
        # Only an item of several labels can have one twice.
        if (rows[1:] == rows[:-1]).any():
            frame = frame.unique(maintain_order=True)
            rows = frame["item"].to_numpy()
        names, codes = _coded(frame["label"])
        indptr = indptr_of(np.bincount(rows, minlength=len(lists)))
        starts = indptr_of(np.bincount(codes, minlength=len(names)))
        # Short integers are sorted by their digits, in one pass.
        short = codes.astype(np.uint16) if len(names) < 2**16 else codes
        return cls(TextIds.of(names), indptr, codes, starts, rows[np.argsort(short, kind="stable")].astype(np.int32))

    @classmethod
    def restore(cls, num_items: int, arrays: dict[str, NDArray[Any]], *, verify: bool) -> LabelColumn:
        """The inverse of `arrays`. Errors: inconsistent arrays; with `verify` also inconsistent content."""
        parts = {"indptr": np.int64, "codes": np.int32, "starts": np.int64, "items": np.int32}
        for name, dtype in parts.items():
            if arrays[name].ndim != 1 or arrays[name].dtype != dtype:
                raise InputError(f"an item column's {name} are {arrays[name].dtype} of shape {arrays[name].shape}")
        table = restore_ids(
            {n.removeprefix("labels."): array for n, array in arrays.items() if n.startswith("labels.")}
        )
        if not isinstance(table, TextIds):
            raise InputError("the labels of an item column are not text")
        column = cls(table, arrays["indptr"], arrays["codes"], arrays["starts"], arrays["items"])
        if len(column.indptr) != num_items + 1 or len(column.starts) != len(table) + 1:
            raise InputError(f"an item column has {len(column.indptr) - 1} cells for {num_items} items")
        if verify:
            table.check()
            for stops, of, bound in (
                (column.indptr, column.codes, len(table)),
                (column.starts, column.items, num_items),
            ):
                if stops[0] != 0 or stops[-1] != len(of) or (np.diff(stops) < 0).any():
                    raise InputError("the arrays of an item column are inconsistent")
                if len(of) and (of.min() < 0 or of.max() >= bound):
                    raise InputError("an item column has entries out of range")
        return column

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that `restore` reads."""
        own: dict[str, NDArray[Any]] = {
            "indptr": self.indptr,
            "codes": self.codes,
            "starts": self.starts,
            "items": self.items,
        }
        return own | {f"labels.{name}": array for name, array in self.labels.arrays().items()}

    @property
    def num_items(self) -> int:
        """N."""
        return len(self.indptr) - 1

    def first(self, count: int) -> LabelColumn:
        """The cells of the first items, with all labels; itself for all items."""
        if count == self.num_items:
            return self
        kept = self.items < count
        counts = np.bincount(np.repeat(np.arange(len(self.labels)), np.diff(self.starts))[kept], None, len(self.labels))
        codes = self.codes[: self.indptr[count]]
        return LabelColumn(self.labels, self.indptr[: count + 1], codes, indptr_of(counts), self.items[kept])

    def missing(self) -> BoolArray:
        """bool[N], the items without a label."""
        return np.equal(self.indptr[1:], self.indptr[:-1])

    def codes_of(self, name: str, wanted: Sequence[Any]) -> NDArray[np.int32]:
        """int32[len(wanted)], the code of each label. Errors: a label that no item has."""
        found = self.labels.find(wanted)
        if found is None or (len(found) and found.min() < 0):
            plain = [isinstance(each, str) and each in self for each in wanted]
            wrong = wanted[plain.index(False)]
            if not len(self.labels):
                known = "; no item has one, as each cell of the column is empty"
            elif len(self.labels) <= _COMPARED:
                known = nearest(str(wrong), self.names, quoted=True)
            else:
                known = f"; {len(self.labels):,} are known, such as {self.labels.ids(np.zeros(1, int))[0]!r}"
            raise InputError(f"{name} {wrong!r} is unknown{known}")
        return found

    def __contains__(self, label: str) -> bool:
        found = self.labels.find([label])
        return found is not None and int(found[0]) >= 0

    @cached_property
    def names(self) -> list[str]:
        """All labels."""
        return self.labels.ids(np.arange(len(self.labels)))

    def having(self, codes: Iterable[int]) -> BoolArray:
        """bool[N], the items with any of the labels."""
        mask = np.zeros(self.num_items, bool)
        # Each label once: a caller may repeat one of half the items thousands of times.
        mask[self.items_of(dict.fromkeys(codes))] = True
        return mask

    def items_of(self, codes: Iterable[int]) -> NDArray[np.int32]:
        """int32[M], the items of the labels; an item of several as often."""
        parts = (self.items[self.starts[code] : self.starts[code + 1]] for code in codes)
        return np.concatenate([np.empty(0, np.int32), *parts])

    def lists(self) -> pl.Series:
        """The labels of each item, as lists of text."""
        names = np.asarray([*self.names], object)[self.codes]
        return pl.Series([each.tolist() for each in np.split(names, self.indptr[1:-1])], dtype=pl.List(pl.String))

    def of_item(self, item: int) -> list[int]:
        """The codes of an item's labels."""
        codes: list[int] = self.codes[self.indptr[item] : self.indptr[item + 1]].tolist()
        return codes

    def of_items(self, items: NDArray[np.int32]) -> NDArray[np.int32]:
        """int32[E], the codes of the items' labels, one item after another."""
        starts = self.indptr[items]
        return self.codes[ranges(starts, self.indptr[items + 1] - starts)]

    def most_common(self, items: NDArray[np.int32], count: int) -> list[tuple[int, int]]:
        """The codes of the most frequent labels of items, and how many have each; ties by the first that comes."""
        found, first, counts = np.unique(self.of_items(items), return_index=True, return_counts=True)
        best = np.lexsort((first, -counts))[:count]
        return list(zip(found[best].tolist(), counts[best].tolist(), strict=True))


def _coded(labels: pl.Series) -> tuple[pl.Series, NDArray[np.int32]]:
    """The distinct labels in order, and int32[E], which of them each is."""
    if len(labels) < _MANY or pl.select(pl.lit(labels).approx_n_unique()).item() * 2 < len(labels):
        names = labels.unique().sort()
        return names, labels.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int32)
    # Where most differ, as titles do, one sort takes less than two tables of them.
    order, codes = labels.arg_sort().to_numpy(), np.empty(len(labels), np.int32)
    ascending = labels.gather(order)
    first = ascending.ne_missing(ascending.shift())
    codes[order] = np.cumsum(first.to_numpy(), dtype=np.int32) - 1
    return ascending.filter(first), codes
