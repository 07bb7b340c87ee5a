"""Conditions on item columns: from `{"price": {"lte": 20}, "brand": ["a", "b"]}` to a mask of items."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from beamwood.errors import InputError, nearest
from beamwood.retrieval.columns.item_columns import Column, ItemColumns
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.columns.number_column import NumberColumn
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.retrieval.request import as_list
from beamwood.types import BoolArray

__all__ = ["OPERATORS", "all_of", "where_mask"]

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
OPERATORS = ("eq", "ne", *_COMPARED, "in", "not_in", "all_of", "missing")
"""What a condition may say of a column."""
# How text is written that could be kept as numbers or times; so many labels are looked at.
_FORMS = {"number": re.compile(r"\s*[+-]?\d+([.,]\d+)?\s*"), "time": re.compile(r"\d{4}-\d\d-\d\d.*")}
_FIRST = 100
_JOINED = ("all", "any", "not")


def where_mask(where: Any, columns: ItemColumns) -> BoolArray:
    """bool[N], the items that meet all conditions.

    A key is a column, its value the wanted one, a list (any of these), or a mapping of `OPERATORS`; or a key is "all",
    "any" (a list of such mappings) or "not" (one). An item whose cell is empty meets no condition on it but `missing`;
    "not" negates the result. Errors: a column that was not kept, with the nearest; an unknown operator; a value of
    another type.
    """
    if not isinstance(where, Mapping) or not where:
        raise InputError(f"where={where!r} is not a condition; write a mapping, such as {{'price': {{'lte': 20}}}}")
    met: list[BoolArray] = []
    for name, wanted in where.items():
        if name in ("all", "any"):
            if not isinstance(wanted, list | tuple) or not wanted:
                raise InputError(f"where: '{name}' needs a list of conditions; write {{'{name}': [{{..}}, {{..}}]}}")
            parts = (where_mask(part, columns) for part in wanted)
            met.append(all_of(parts) if name == "all" else reduce(np.logical_or, parts))
        elif name == "not":
            met.append(~where_mask(wanted, columns))
        else:
            met.append(_condition(str(name), columns[str(name)], wanted))
    return all_of(met)


def all_of(masks: Iterable[BoolArray]) -> BoolArray:
    """bool[N], true where each of at least one mask is, pair by pair: numpy's own reduction copies them into one."""
    return reduce(np.logical_and, masks)


def _condition(name: str, column: Column, wanted: Any) -> BoolArray:
    if isinstance(wanted, Mapping):
        if not wanted:
            raise InputError(f"where: '{name}' has no condition; write {{'{name}': {{'eq': ..}}}}")
        return all_of(_meets(name, column, str(word), value) for word, value in wanted.items())
    return _meets(name, column, "in" if _is_list(wanted) else "eq", wanted)


def _meets(name: str, column: Column, word: str, value: Any) -> BoolArray:
    """bool[N], the items whose cell meets one operator."""
    # Lists of any library; an iterator can be read only once.
    value = as_list(f"where: '{name}'", value) if _is_list(value) else value
    if word not in OPERATORS:
        raise InputError(f"where: '{name}' has the unknown operator '{word}'{nearest(word, OPERATORS)}")
    if word == "missing":
        if not isinstance(value, bool):
            raise InputError(f"where: missing={value!r} of '{name}' must be true or false")
        return column.missing() if value else ~column.missing()
    if word in ("in", "not_in", "all_of") and not _is_list(value):
        raise InputError(f"where: '{word}' of '{name}' needs a list; write [{value!r}]")
    if word in ("ne", "not_in"):
        positive = _meets(name, column, "eq" if word == "ne" else "in", value)
        return ~positive & ~column.missing()
    if isinstance(column, VectorColumn):
        raise InputError(f"where: '{name}' holds vectors, which '{word}' does not compare; use missing")
    if isinstance(column, LabelColumn):
        return _of_labels(name, column, word, value)
    return _of_numbers(name, column, word, value)


def _of_labels(name: str, column: LabelColumn, word: str, value: Any) -> BoolArray:
    if word in _COMPARED:
        kind = _hint(column)
        fix = f", or keep it as a {kind} with `beamwood fit --keep-columns {name}:{kind}`" if kind else ""
        raise InputError(f"where: '{name}' holds text, which '{word}' does not order; use eq or in{fix}")
    codes = column.codes_of(name, [value] if word == "eq" else list(value)).tolist()
    if word != "all_of" or not codes:
        return column.having(codes)
    return all_of(column.having([code]) for code in dict.fromkeys(codes))


def _hint(column: LabelColumn) -> str:
    """A hint in an error if the first labels look like numbers or times that were read as text; else empty."""
    first = column.labels.ids(np.arange(min(len(column.labels), _FIRST)))
    if not first or np.diff(column.indptr).max() > 1:
        return ""
    return next((kind for kind, form in _FORMS.items() if all(form.fullmatch(label) for label in first)), "")


def _of_numbers(name: str, column: NumberColumn, word: str, value: Any) -> BoolArray:
    if word in _COMPARED:
        if column.kind == "truth":
            raise InputError(f"where: '{name}' holds true and false, which '{word}' does not order; use eq")
        return column.compared(_COMPARED[word], column.number(name, value))
    if word == "all_of":
        raise InputError(f"where: '{name}' holds one value an item, which 'all_of' does not ask for; use in")
    return column.among([column.number(name, each) for each in (value if word == "in" else [value])])


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
