"""Item columns followed by the cells of new items: the known cells are shared, and only the new ones are made.

Shape legend: N known items, M new ones, E labels of all new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.vocabularies.id_table import MoreTexts
from beamwood.errors import InputError, nearest
from beamwood.ragged import indptr_of, ranges
from beamwood.retrieval.columns.item_columns import CATEGORY, Arrays, Column, ItemColumns
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.columns.number_column import NumberColumn
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.types import BoolArray
from beamwood.words import followed

__all__ = ["Cells", "MoreLabels", "MoreNumbers", "cells_of", "with_cells"]


@dataclass(frozen=True, slots=True, eq=False)
class _LabelCells:
    """`lengths` int64[M], the labels of each item; `codes` int32[E], -1 for each of `new`, which no known item has."""

    lengths: NDArray[np.int64]
    codes: NDArray[np.int32]
    new: list[str]


Cells = Mapping[str, NumberColumn | _LabelCells]
"""The cells of some new items by column."""


def cells_of(columns: ItemColumns, rows: Sequence[Mapping[str, Any]]) -> Cells:
    """The cells of new items, one mapping each; a missing cell is empty.

    Errors: an unknown column, a value of another type.
    """
    for name in dict.fromkeys(name for row in rows for name in row):
        if name not in columns.columns:
            hint = nearest(name, columns.columns) if columns.columns else "; this artefact keeps none"
            raise InputError(
                followed(f"no item column '{name}' was kept{hint}", "`beamwood fit --keep-columns` keeps more")
            )
    made: dict[str, NumberColumn | _LabelCells] = {}
    for name, column in columns.columns.items():
        values = [row.get(name) for row in rows]
        # A vector only places its item, see `NewItem`.
        if isinstance(column, NumberColumn):
            made[name] = _numbers(name, column, values)
        elif isinstance(column, LabelColumn):
            made[name] = _labels(name, column, values)
    return made


def _numbers(name: str, column: NumberColumn, values: Sequence[Any]) -> NumberColumn:
    new = [0 if value is None else column.number(name, value) for value in values]
    given = np.array([value is not None for value in values], bool)
    # Integers where all are.
    whole = column.values.dtype.kind == "i" and all(isinstance(value, int) and abs(value) < 2**63 for value in new)
    return NumberColumn(column.kind, np.array(new, np.int64 if whole else np.float64), None if given.all() else given)


def _labels(name: str, column: LabelColumn, values: Sequence[Any]) -> _LabelCells:
    rows = [_names(name, value) for value in values]
    texts = [label for row in rows for label in row]
    codes = column.labels.find(texts)
    assert codes is not None, "labels are text"
    new = [text for text, code in zip(texts, codes.tolist(), strict=True) if code < 0]
    return _LabelCells(np.array([len(row) for row in rows], np.int64), codes, new)


def _names(name: str, value: Any) -> list[str]:
    """The labels of a cell: text, "|"-separated in the category column, or a list of text."""
    if value is None:
        return []
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise InputError(
            f"{name}={value!r} is neither text nor a list of text"
            + (f"; for vectors keep it as {name}:vector" if isinstance(given, list | tuple) else "")
        )
    parts = [part for each in given for part in (each.split("|") if name == CATEGORY else [each])]
    return [part for part in dict.fromkeys(parts) if part]


def with_cells(columns: ItemColumns, parts: Sequence[Cells], count: int) -> ItemColumns:
    """The columns, then the cells of `count` new items; see `cells_of`."""
    made: dict[str, Column] = {}
    for name, column in columns.columns.items():
        if isinstance(column, VectorColumn):
            made[name] = replace(column, more=count)
            continue
        own: list[Any] = [part[name] for part in parts]
        made[name] = _more_numbers(column, own) if isinstance(column, NumberColumn) else _more_labels(column, own)
    return ItemColumns(columns.num_items + count, made)


@dataclass(frozen=True, eq=False)
class MoreNumbers(NumberColumn):
    """The cells of a column, then `more` of new items, which may have fractions where the known are integers."""

    more: NumberColumn = field(kw_only=True)

    def arrays(self) -> Arrays:
        """See `NumberColumn`."""
        return _joined([super().first(len(self.values)), self.more]).arrays()

    def compared(self, how: Callable[[Any, Any], Any], value: float) -> BoolArray:
        """See `NumberColumn`."""
        return np.concatenate([super().compared(how, value), self.more.compared(how, value)])

    def among(self, wanted: Sequence[int | float]) -> BoolArray:
        """See `NumberColumn`."""
        return np.concatenate([super().among(wanted), self.more.among(wanted)])

    def missing(self) -> BoolArray:
        """See `NumberColumn`."""
        return np.concatenate([super().missing(), self.more.missing()])


def _more_numbers(column: NumberColumn, parts: Sequence[NumberColumn]) -> MoreNumbers:
    more = _joined([NumberColumn(column.kind, column.values[:0]), *parts])
    return MoreNumbers(column.kind, column.values, column.present, more=more)


def _joined(parts: Sequence[NumberColumn]) -> NumberColumn:
    values = np.concatenate([part.values for part in parts])
    if all(part.present is None for part in parts):
        return NumberColumn(parts[0].kind, values)
    return NumberColumn(parts[0].kind, values, np.concatenate([~part.missing() for part in parts]))


@dataclass(frozen=True, eq=False)
class MoreLabels(LabelColumn):
    """The cells of a column, then of new items: N + i has the labels `more_codes[more_indptr[i]:more_indptr[i + 1]]`.

    `labels` has those that only new items have after the known ones, whose table is shared.
    """

    column: LabelColumn
    more_indptr: NDArray[np.int64]
    more_codes: NDArray[np.int32]

    @property
    def num_items(self) -> int:
        """N + M."""
        return self.column.num_items + len(self.more_indptr) - 1

    def first(self, count: int) -> LabelColumn:
        """See `LabelColumn`; of at most the known items."""
        return self.column.first(count)

    def arrays(self) -> Arrays:
        """See `LabelColumn`."""
        return self._joined().arrays()

    def lists(self) -> Any:
        """See `LabelColumn`."""
        return self._joined().lists()

    def missing(self) -> BoolArray:
        """See `LabelColumn`."""
        return np.concatenate([super().missing(), np.diff(self.more_indptr) == 0])

    def items_of(self, codes: Iterable[int]) -> NDArray[np.int32]:
        """See `LabelColumn`."""
        wanted = [*codes]
        known = super().items_of(code for code in wanted if code < len(self.starts) - 1)
        new = self._rows()[np.isin(self.more_codes, wanted)]
        return np.concatenate([known, self.column.num_items + new], dtype=np.int32)

    def of_item(self, item: int) -> list[int]:
        """See `LabelColumn`."""
        return super().of_item(item) if item < self.column.num_items else self.of_items(np.array([item])).tolist()

    def of_items(self, items: NDArray[np.int32]) -> NDArray[np.int32]:
        """See `LabelColumn`."""
        new, known = items >= self.column.num_items, self.column.num_items
        rows = items[new] - known
        lengths = np.zeros(len(items), np.int64)
        lengths[new] = np.diff(self.more_indptr)[rows]
        lengths[~new] = self.indptr[items[~new] + 1] - self.indptr[items[~new]]
        codes, is_new = np.empty(lengths.sum(), np.int32), np.repeat(new, lengths)
        codes[is_new] = self.more_codes[ranges(self.more_indptr[rows], lengths[new])]
        codes[~is_new] = super().of_items(items[~new])
        return codes

    def _rows(self) -> NDArray[np.int64]:
        """int64[E], which new item each label is of."""
        return np.repeat(np.arange(len(self.more_indptr) - 1), np.diff(self.more_indptr))

    def _joined(self) -> LabelColumn:
        """All cells as one column, for a folder; a copy."""
        column, order = self.column, np.argsort(self.more_codes, kind="stable")
        counts = np.zeros(len(self.labels), np.int64)
        counts[: len(self.starts) - 1] = np.diff(self.starts)
        # Of each label the known items, then the new ones.
        places = np.cumsum(counts)[self.more_codes[order]]
        items = np.insert(self.items, places, column.num_items + self._rows()[order]).astype(np.int32, copy=False)
        starts = indptr_of(counts + np.bincount(self.more_codes, minlength=len(self.labels)))
        indptr = np.concatenate([self.indptr, self.indptr[-1] + self.more_indptr[1:]])
        codes = np.concatenate([self.codes, self.more_codes])
        return LabelColumn(self.labels, indptr, codes, starts, items)


def _more_labels(column: LabelColumn, parts: Sequence[_LabelCells]) -> MoreLabels:
    codes = np.concatenate([np.empty(0, np.int32), *(part.codes for part in parts)])
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
    texts = [text for part in parts for text in part.new]
    at = {text: place for place, text in enumerate(dict.fromkeys(texts), start=len(column.labels))}
    codes[codes < 0] = [at[text] for text in texts]
    labels = MoreTexts(column.labels, [*at]) if at else column.labels
    known = column.indptr, column.codes, column.starts, column.items
    return MoreLabels(labels, *known, column, indptr_of(lengths), codes)
