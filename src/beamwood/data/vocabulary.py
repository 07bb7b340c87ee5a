"""The ids of users or items, in order; an index is a position in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.types import IndexArray

__all__ = ["ON_UNKNOWN", "Vocabulary"]

ON_UNKNOWN = ("error", "ignore")


@dataclass(frozen=True)
class Vocabulary:
    """Distinct ids of one type (integers, strings, dates, ...), none null; index i is `ids[i]`."""

    ids: pl.Series

    def __post_init__(self) -> None:
        if self.ids.null_count():
            raise InputError(f"a vocabulary holds {self.ids.null_count()} null ids; remove them")
        if self.ids.n_unique() != len(self.ids):
            raise InputError(f"a vocabulary holds {len(self.ids) - self.ids.n_unique()} repeated ids; remove them")

    @classmethod
    def of(cls, ids: pl.Series) -> Vocabulary:
        """The sorted distinct values of a column."""
        return cls(ids.unique().sort().rename("id"))

    def __len__(self) -> int:
        return len(self.ids)

    def encode(self, ids: Sequence[Any] | pl.Series, *, on_unknown: str = "error") -> NDArray[np.int32]:
        """int32, the index of each id. An unknown id is an `InputError`, or -1 with `on_unknown="ignore"`."""
        if on_unknown not in ON_UNKNOWN:
            raise InputError(f"on_unknown='{on_unknown}' is unknown; known: {', '.join(ON_UNKNOWN)}")
        indices = self._indices(self._typed(ids, on_unknown))
        unknown = np.flatnonzero(indices < 0)
        if len(unknown) and on_unknown == "error":
            examples = ", ".join(repr(ids[int(i)]) for i in unknown[:3])
            raise InputError(
                f"{len(unknown)} of {len(indices)} ids are unknown, such as {examples}; "
                "leave them out or pass on_unknown='ignore'"
            )
        return indices

    def decode(self, indices: IndexArray) -> list[Any]:
        """The ids of item or user indices, each in [0, len)."""
        return list(self.ids.gather(np.asarray(indices, dtype=np.int64).tolist()).to_list())

    def parse(self, text: str) -> Any:
        """An id typed as text, in the vocabulary's own type: "12" is 12 where ids are integers."""
        return self.parse_all([text])[0]

    def parse_all(self, texts: Sequence[str]) -> list[Any]:
        """`parse` for many; text that cannot be of the ids' type is an `InputError`."""
        column = pl.Series("id", [str(text).strip() for text in texts], dtype=pl.String)
        if self.ids.dtype.is_temporal():
            values = column.str.to_datetime(strict=False).cast(self.ids.dtype)
        else:
            values = column.cast(self.ids.dtype, strict=False)
        if values.null_count():
            bad = column.filter(values.is_null()).to_list()[0]
            raise InputError(f"id {bad!r} is not of type {self.ids.dtype}, which the log's ids have")
        return list(values.to_list())

    def _typed(self, ids: Sequence[Any] | pl.Series, on_unknown: str) -> pl.Series:
        values = ids.to_list() if isinstance(ids, pl.Series) and ids.dtype != self.ids.dtype else ids
        if isinstance(values, pl.Series):
            return values
        try:
            return pl.Series("id", list(values), dtype=self.ids.dtype, strict=on_unknown == "error")
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            wrong = next((v for v in values if not _fits(v, self.ids.dtype)), None)
            raise InputError(f"id {wrong!r} is not of type {self.ids.dtype}, which the log's ids have") from None

    def _indices(self, ids: pl.Series) -> NDArray[np.int32]:
        known = pl.DataFrame({"id": self.ids, "index": np.arange(len(self), dtype=np.int32)})
        found = pl.DataFrame({"id": ids}).join(known, on="id", how="left", maintain_order="left")
        return np.asarray(found["index"].fill_null(-1).to_numpy(), dtype=np.int32)


def _fits(value: Any, dtype: Any) -> bool:
    try:
        return value is not None and pl.Series([value], dtype=dtype, strict=True).null_count() == 0
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return False
