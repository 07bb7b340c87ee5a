"""Whether the quotes in a text file enclose cells, or are ordinary characters of an unquoted text."""

from __future__ import annotations

import re

import polars as pl

__all__ = ["are_signs", "unwrapped"]


def are_signs(lines: pl.LazyFrame, separator: str, width: int) -> bool:
    """Whether quotes are ordinary characters: some enclose no cell, and each line has `width` cells without quoting.

    `lines`: the column `line`, null for blank ones. A quote that opens a cell and is not closed in its line may enclose
    several lines, and is no evidence.
    """
    line, mark = pl.col("line"), re.escape(separator)
    wrapped, bare = rf'"(?:[^"]|"")*"(?:{mark}|$)', rf'[^"{mark}]+(?:{mark}|$)'
    sound, opens = rf"^(?:{wrapped}|{bare}|{mark})*$", rf'(?:^|{mark})"(?:[^"]|"")*$'
    odd = line.str.count_matches('"', literal=True) % 2 == 1
    asked = (
        (~odd & ~line.str.contains(sound)).any().alias("wrong"),
        (~line.filter(odd).first().str.contains(opens)).fill_null(False).alias("first"),
    )
    quoted = lines.filter(line.str.contains('"', literal=True)).select(asked).collect(engine="streaming")
    if not any(quoted.row(0)):
        return False
    even = line.str.count_matches(separator, literal=True) == width - 1
    return bool(lines.select((even | line.is_null()).all()).collect(engine="streaming").item())


def unwrapped(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Names and cells without enclosing quotes, and with each escaped quote, \\" or "", as one."""
    frame = frame.rename(lambda name: re.sub(r'^"(.*)"$', r"\1", name))
    cell = pl.all().str.replace(r'(?s)^"(.*)"$', "${1}")
    return frame.select(cell.str.replace_all(r'\\"|""', '"').replace("", None))
