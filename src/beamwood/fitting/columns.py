"""The columns of items, users and context that a model reads, encoded."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from beamwood.data.dataset import Dataset
from beamwood.data.features import FeatureTable, encode_columns, fit_columns, name_and_kind
from beamwood.data.kept_columns import numbers_as_text
from beamwood.data.tables import ItemTable
from beamwood.errors import InputError
from beamwood.steps import tell

__all__ = ["context_features", "item_features", "item_table_for", "user_features"]


def item_table_for(setting: str, train: Dataset) -> ItemTable:
    """The item table that a setting reads. Errors: there is none."""
    if train.item_table is None:
        raise InputError(f"{setting} needs an item table; give one with --items")
    return train.item_table


def item_features(train: Dataset, columns: Sequence[str]) -> FeatureTable | None:
    """The encoded item columns, each named as name or name:kind, with a last row for unknown items; None if none.

    Errors: no item table, a missing column, a column of an unsupported type.
    """
    frame = None if train.item_table is None else train.item_table.frame
    return _encoded(frame, columns, "model.item_columns", "--items")


def user_features(train: Dataset, columns: Sequence[str]) -> FeatureTable | None:
    """As `item_features`, for users."""
    return _encoded(train.user_table, columns, "model.user_columns", "--user-table")


def context_features(train: Dataset, columns: Sequence[str]) -> FeatureTable | None:
    """The encoded context columns, with one row for each entry of the histories; None if none are named.

    Errors: a log that was read without these columns.
    """
    if not columns:
        return None
    if train.context is None:
        names = tuple(name_and_kind(name)[0] for name in columns)
        raise InputError(
            f"model.context_columns={list(columns)} needs columns of the log; read it with ColumnNames(context={names})"
        )
    fitted = fit_columns(train.context, columns)
    _tell_of_numbers(train.context, columns, "model.context_columns")
    return encode_columns(fitted, train.context)


def _encoded(frame: pl.DataFrame | None, columns: Sequence[str], key: str, option: str) -> FeatureTable | None:
    """The encoded columns of a table. Errors: no table, naming the `option` that gives one."""
    if not columns:
        return None
    if frame is None:
        raise InputError(f"{key}={list(columns)} needs a table; give one with {option}")
    ids = key.removeprefix("model.").removesuffix("_columns")
    if any(name_and_kind(name)[0] == ids for name in columns):
        raise InputError(
            f"{key}={list(columns)}: '{ids}' is the column of ids, from which nothing can be learned; leave it "
            f"out, or rename the table's own column '{ids}', if it has one"
        )
    frame = frame.drop(ids, strict=False)
    fitted = fit_columns(frame, columns)
    _tell_of_numbers(frame, columns, key)
    return encode_columns(fitted, frame).with_missing_row()


def _tell_of_numbers(frame: pl.DataFrame, columns: Sequence[str], key: str) -> None:
    """Print a line for each column of text without a given kind that holds numbers, as of a CSV file."""
    for name in numbers_as_text([each for each in columns if not name_and_kind(each)[1]], frame):
        tell(
            f"{key}: '{name}' holds numbers as text, each of which is read as a category; write {name}:number, or "
            f"{name}:category if they are codes"
        )
