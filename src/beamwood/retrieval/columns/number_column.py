"""An item column of numbers, truth values or times, for filters.

Shape legend: N items.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.types import BoolArray

__all__ = ["NumberColumn", "NumberKind"]

NumberKind = Literal["number", "truth", "time"]
"""The meaning of a column's numbers."""
# So few integers are compared one after another, which is faster than a table of those that occur.
_FEW = 8


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """`values` [N], int64 or float64; `present` bool[N], None where all are. A time is in microseconds since 1970."""

    kind: NumberKind
    values: NDArray[Any]
    present: BoolArray | None = None

    @classmethod
    def restore(cls, num_items: int, kind: NumberKind, arrays: dict[str, NDArray[Any]]) -> NumberColumn:
        """The inverse of `arrays`. Errors: another shape or type."""
        values, present = arrays["values"], arrays.get("present")
        if values.shape != (num_items,) or values.dtype not in (np.int64, np.float64):
            raise InputError(f"an item column is {values.dtype} of shape {values.shape} for {num_items} items")
        if present is not None and (present.shape != (num_items,) or present.dtype != np.bool_):
            raise InputError("an item column's mask of present values is not one bool an item")
        return cls(kind, values, present)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that `restore` reads."""
        return {"values": self.values} | ({} if self.present is None else {"present": self.present})

    def first(self, count: int) -> NumberColumn:
        """The cells of the first items; no copy."""
        return NumberColumn(self.kind, self.values[:count], None if self.present is None else self.present[:count])

    def compared(self, how: Callable[[Any, Any], Any], value: float) -> BoolArray:
        """bool[N], `how(cell, value)` where a cell has a value."""
        return self._where(how(self.values, value))

    def among(self, wanted: Sequence[int | float]) -> BoolArray:
        """bool[N], the cells that are one of the numbers."""
        if self.values.dtype == np.int64:
            # Together with floats numpy would round long integers.
            whole = [int(each) for each in wanted if isinstance(each, int) or each.is_integer()]
            wanted = [each for each in whole if -(2**63) <= each < 2**63]
        how: Literal["sort"] | None = "sort" if len(wanted) <= _FEW else None
        return self._where(np.isin(self.values, np.array(wanted, self.values.dtype), kind=how))

    def missing(self) -> BoolArray:
        """bool[N], the cells without a value."""
        return np.zeros(len(self.values), bool) if self.present is None else ~self.present

    def _where(self, found: BoolArray) -> BoolArray:
        return found if self.present is None else found & self.present

    def number(self, name: str, value: Any) -> int | float:
        """A condition's value as a number. Errors: a value of another type."""
        if self.kind == "truth" and isinstance(value, bool | np.bool_):
            return int(value)
        if self.kind == "number" and isinstance(value, int | float | np.number) and not isinstance(value, bool):
            if value != value:
                raise InputError(f"where: {name} is compared with NaN; write a number")
            if isinstance(value, int) and abs(value) > sys.float_info.max:
                raise InputError(f"where: {name} holds numbers up to {sys.float_info.max:.2g}; write a smaller one")
            # A float of 32 bits means its shortest decimal, as in a cell.
            if isinstance(value, np.floating):
                return float(str(value))
            return value.item() if isinstance(value, np.number) else value
        if self.kind == "time" and (stamp := _microseconds(value)) is not None:
            return stamp
        like = {"number": "numbers, such as 20", "truth": "true and false", "time": "times, such as '2026-01-31'"}
        fix = "; write true or false" if self.kind == "truth" else ""
        raise InputError(f"where: {name} holds {like[self.kind]}; {value!r} is none{fix}")


def _microseconds(value: Any) -> int | None:
    """The microseconds since 1970 of a date, datetime, numpy datetime or ISO 8601 text; None for anything else."""
    if isinstance(value, np.datetime64):
        # None for NaT.
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        return None
    zone = value.tzinfo or dt.UTC
    return (value.replace(tzinfo=zone) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
