"""Columns of the item and the user table, encoded for a model."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from beamwood.data.dataset import Dataset
from beamwood.data.features import FeatureTable, encode_columns, fit_columns
from beamwood.errors import InputError

__all__ = ["item_features", "user_features"]


def item_features(train: Dataset, columns: Sequence[str]) -> FeatureTable | None:
    """The columns of items named, each as name or name:kind, and a last row for what is unknown; None without columns.

    Errors: no item table, a column it lacks, one that is of no kind.
    """
    frame = None if train.item_table is None else train.item_table.frame
    return encoded(frame, columns, "item_columns", "--items")


def user_features(train: Dataset, columns: Sequence[str]) -> FeatureTable | None:
    """As `item_features`, of users."""
    return encoded(train.user_table, columns, "user_columns", "--user-table")


def encoded(frame: pl.DataFrame | None, columns: Sequence[str], key: str, option: str) -> FeatureTable | None:
    """The columns of a table, or an error that names the option which gives one."""
    if not columns:
        return None
    if frame is None:
        raise InputError(f"{key}={list(columns)} needs a table; give one with {option}")
    return encode_columns(fit_columns(frame, columns), frame).with_missing_row()
