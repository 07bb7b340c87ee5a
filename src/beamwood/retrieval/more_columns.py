"""Item columns extended by the cells of new items.

Shape legend: N known items, M new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.id_table import MoreTexts
from beamwood.errors import InputError, nearest
from beamwood.ragged import indptr_of
from beamwood.retrieval.item_columns import CATEGORY, ItemColumns, LabelColumn, NumberColumn

__all__ = ["with_cells"]


def with_cells(columns: ItemColumns, known: int, cells: Sequence[Mapping[str, Any]]) -> ItemColumns:
    """The columns of the first `known` items, then the cells of new ones; a missing cell is empty.

    Errors: an unknown column, a value of another type.
    """
    for row in cells:
        for name in row:
            if name not in columns.columns:
                hint = nearest(name, columns.columns) if columns.columns else "; this artefact keeps none"
                raise InputError(f"no item column '{name}' was kept{hint}; `beamwood fit --keep-columns` keeps more")
    made: dict[str, NumberColumn | LabelColumn] = {}
    for name, column in columns.columns.items():
        values = [row.get(name) for row in cells]
        if isinstance(column, NumberColumn):
            made[name] = _numbers(name, column, known, values)
        else:
            made[name] = _labels(column, known, [_names(name, value) for value in values])
    return ItemColumns(known + len(cells), made)


def _numbers(name: str, column: NumberColumn, known: int, values: Sequence[Any]) -> NumberColumn:
    new = [0 if value is None else column.number(name, value) for value in values]
    given = np.array([value is not None for value in values], bool)
    # Integers where all are, so that the stored values of known items stay unchanged.
    whole = column.values.dtype.kind == "i" and not all(isinstance(value, int) for value in new)
    dtype = np.float64 if whole else column.values.dtype
    present = np.ones(known, bool) if column.present is None else column.present[:known]
    joined = np.concatenate([column.values[:known], np.array(new, dtype)], dtype=dtype)
    there = np.concatenate([present, given])
    return NumberColumn(column.kind, joined, None if there.all() else there)


def _names(name: str, value: Any) -> list[str]:
    """The labels of a cell: text, "|"-separated in the category column, or a list of text."""
    if value is None:
        return []
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise InputError(f"{name}={value!r} is neither text nor a list of text")
    parts = [part for each in given for part in (each.split("|") if name == CATEGORY else [each])]
    return [part for part in dict.fromkeys(parts) if part]


def _labels(column: LabelColumn, known: int, rows: Sequence[Sequence[str]]) -> LabelColumn:
    stop = int(column.indptr[known])
    new = list(dict.fromkeys(label for row in rows for label in row if label not in column))
    labels = MoreTexts(column.labels, new) if new else column.labels
    found = labels.find([label for row in rows for label in row])
    assert found is not None, "labels are text"
    lengths = np.array([len(row) for row in rows], np.int64)
    codes = np.concatenate([column.codes[:stop], found], dtype=np.int32)
    indptr = np.concatenate([column.indptr[: known + 1], stop + np.cumsum(lengths)], dtype=np.int64)
    starts, items = _by_label(column, known, codes[stop:], np.repeat(np.arange(len(rows)), lengths), len(labels))
    return LabelColumn(labels, indptr, codes, starts, items)


def _by_label(
    column: LabelColumn, known: int, codes: NDArray[Any], rows: NDArray[Any], num_labels: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each label's items begin, and these items: known ones, then new ones."""
    before = column.items[column.items < known]
    counts = np.diff(column.starts)
    if len(before) < len(column.items):
        of_label = np.repeat(np.arange(len(counts)), counts)
        counts = np.bincount(of_label[column.items < known], minlength=len(counts))
    stops = np.concatenate([np.cumsum(counts), np.full(num_labels - len(counts), len(before))])
    order = np.argsort(codes, kind="stable")
    items = np.insert(before, stops[codes[order]], known + rows[order]).astype(np.int32, copy=False)
    more = np.concatenate([counts, np.zeros(num_labels - len(counts), np.int64)])
    more = more + np.bincount(codes, minlength=num_labels)
    return indptr_of(more), items
