"""Rows of JSON: a row a line, or one list of them, with or without a mark of their encoding."""

from __future__ import annotations

import glob
import gzip
import io
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO

import polars as pl

__all__ = ["scan_json", "scan_lines_of_json", "why_no_json"]

_MARK = b"\xef\xbb\xbf"
# Python's own writer has these words for what no number says, and no reader of JSON knows them.
_NO_NUMBER = re.compile(r"[:\[,]\s*-?(NaN|Infinity)\b")
_MOST_LINES = 1_000_000


def scan_lines_of_json(path: Path) -> pl.LazyFrame:
    """A row a line. The types are those of all lines: an id may be a number for a while and then text."""
    with _opened(path) as file:
        if file.read(len(_MARK)) == _MARK:
            return pl.scan_ndjson(io.BytesIO(file.read()), infer_schema_length=None)
    return pl.scan_ndjson(glob.escape(str(path)), infer_schema_length=None)


def scan_json(path: Path) -> pl.LazyFrame:
    """One list of rows, or a row a line."""
    with _opened(path) as file:
        first = file.read(1024).removeprefix(_MARK).lstrip(b" \t\r\n")[:1]
        if first != b"[":
            return scan_lines_of_json(path)
        file.seek(0)
        return pl.read_json(file.read().removeprefix(_MARK), infer_schema_length=None).lazy()


def why_no_json(path: str) -> str | None:
    """The line that has a word for no number, and the fix; None where none of the first lines has."""
    with suppress(OSError, EOFError), _opened(Path(path)) as file:
        for number, line in enumerate(islice(file, _MOST_LINES), start=1):
            found = _NO_NUMBER.search(line.decode(errors="replace"))
            if found is not None:
                return f"line {number} says {found[1]}, which is no JSON; write null, or leave the field out"
    return None


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]
