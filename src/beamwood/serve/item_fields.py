"""Columns of an item table that answers show and filters ask for.

Shape legend: N items.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.columns import ALIASES
from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import InputError, nearest
from beamwood.retrieval.item_columns import CATEGORY, ItemColumns, LabelColumn, NumberColumn
from beamwood.serve.problems import Problem

__all__ = ["ItemFields"]

_READERS: dict[str, Callable[..., pl.DataFrame]] = {
    ".parquet": pl.read_parquet,
    ".csv": pl.read_csv,
    ".jsonl": pl.read_ndjson,
    ".ndjson": pl.read_ndjson,
    ".arrow": pl.read_ipc,
}
_TITLES = ("title", "name", "label")


@dataclass(frozen=True, slots=True, eq=False)
class ItemFields:
    """A frame of N rows in the order of the catalogue, null where the table lacks an item; None without a table."""

    frame: pl.DataFrame | None = None

    @classmethod
    def read(cls, path: Path, items: Vocabulary) -> ItemFields:
        """The table of a file. Errors: a file that cannot be read, one without item ids or without a known item."""
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            raise InputError(f"--items {path}: the name must end in {', '.join(_READERS)}")
        try:
            # Read whole, not mapped: the file may be replaced while it is served.
            frame = reader(path.read_bytes())
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"--items {path} cannot be read: {str(error).splitlines()[0]}") from None
        names = [name for group in ALIASES["item"] for name in group] + ["id"]
        column = next((name for name in names if name in frame.columns), None)
        if column is None:
            raise InputError(f"--items {path} has no column of item ids; call it item_id")
        return cls(_in_order(frame, column, items, path))

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return [] if self.frame is None else self.frame.columns

    @property
    def title(self) -> str | None:
        """The column that people read, if there is one."""
        by_lower = {name.lower(): name for name in self.names}
        return next((by_lower[name] for name in _TITLES if name in by_lower), None)

    def columns(self) -> Mapping[str, NumberColumn | LabelColumn]:
        """What filters can ask for; columns of other types are only shown."""
        kept: dict[str, NumberColumn | LabelColumn] = {}
        for name in self.names:
            assert self.frame is not None
            try:
                kept[name] = ItemColumns.of(self.frame.select(name))[name]
            except InputError:
                if name == CATEGORY:
                    raise
        return kept

    def checked(self, wanted: Sequence[str]) -> None:
        """Errors: `Problem` on a field that there is not."""
        for name in wanted:
            if name not in self.names:
                known = nearest(name, self.names) if self.names else "; start the service with --items to have some"
                raise Problem("invalid_request", f"fields: there is no column '{name}'{known}", field="fields")

    def of(self, indices: NDArray[Any], wanted: Sequence[str]) -> list[dict[str, Any]]:
        """What the wanted columns hold of each item, as JSON can hold it."""
        assert self.frame is not None
        rows = self.frame.select(wanted)[np.asarray(indices, np.int64)].rows(named=True)
        return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _in_order(frame: pl.DataFrame, column: str, items: Vocabulary, path: Path) -> pl.DataFrame:
    ids = frame[column]
    if ids.dtype != items.dtype:
        ids = ids.cast(items.dtype, strict=False)
    frame = frame.with_columns(ids).filter(ids.is_not_null()).unique(column, keep="last", maintain_order=True)
    at = items.encode(frame[column], on_unknown="ignore")
    if not (at >= 0).any():
        raise InputError(f"--items {path} names no item of the model in its column '{column}'")
    places = np.full(len(items), -1, np.int64)
    places[at[at >= 0]] = np.flatnonzero(at >= 0)
    rows = pl.Series(places).set(pl.Series(places < 0), None)
    return frame.drop(column).select(pl.all().gather(rows.cast(pl.UInt32)))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
