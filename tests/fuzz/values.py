"""Values that nobody should give, and numbers drawn for one case: case N of a seed is the same in every run."""

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl

__all__ = ["JUNK", "WORDS", "drawn", "junk"]

WORDS = ["", " ", "x", "nan", "None", "-1", "0", "1", "3", "1e9", "99999999999999999999", "3,1", "a=b", "i00", "é" * 40]
WORDS += [
    "\x00",
    "\n",
    "popularity",
    "leave-one-out",
    "/",
    "..",
    "/dev/null",
    "~",
    "*",
    "^u.*$",
    "category",
    "id",
    "%Y",
]
JUNK = [None, True, False, -1, 0, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, 5e-324, 1j]
JUNK += [float("nan"), float("inf"), Decimal("1.5"), "", "x", "\ud800", "\x00", "i00", "1", b"x", Path("nowhere")]
JUNK += [[], [[]], [None], ["i00"], [["i00"]], [[10]], [1.5], ["\ud800"], (), (1, 2), {}, {"category": "odd"}]
JUNK += [{"a": None}, {1: 2}, set(), {1}, frozenset(), object(), int, len, range(3), range(0), iter([1]), lambda: 0]
JUNK += [np.int64(1), np.float32(0.5), np.zeros(0), np.zeros(3), np.array(["i00"]), np.array([[1]]), np.array(None)]
JUNK += [np.array([1, None], object), np.datetime64("2024-01-01"), pl.Series([1]), pl.Series([], dtype=pl.Null)]
JUNK += [pl.Series([[1], None]), pl.DataFrame(), pl.DataFrame({"user": [1], "item": [2]}), pl.lit(1), pl.Int64]
JUNK += [
    dt.date(2024, 1, 1),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.timedelta(1),
    slice(1),
    Ellipsis,
    ValueError("x"),
]


def drawn(kind, seed, number):
    """The numbers of one case."""
    return random.Random(f"{kind} {seed} {number}")


def junk(chance, depth=0):
    """One of the values, or a list or mapping of some."""
    kind = chance.random()
    if kind < 0.8 or depth > 1:
        return chance.choice(JUNK)
    parts = [junk(chance, depth + 1) for _ in range(chance.randrange(1, 4))]
    return parts if kind < 0.9 else dict(zip(WORDS, parts, strict=False))
