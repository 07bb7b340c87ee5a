"""Rows in JSON: one a line, or one list of all, with or without a byte order mark."""

from __future__ import annotations

import glob
import gzip
import io
import json
import re
import reprlib
import shlex
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import polars as pl

from beamwood.data.files.text_table import lines_of
from beamwood.errors import InputError

__all__ = ["scan_json", "scan_lines_of_json", "why_no_json"]

_MARK = b"\xef\xbb\xbf"
# Python's json writes these non-standard words for non-finite numbers.
_NO_NUMBER = re.compile(r"[:\[,]\s*-?(NaN|Infinity)\b")
# A printed Python dictionary.
_OF_PYTHON = re.compile(r"\s*\{\s*u?'[^']*'\s*:")
_REWRITE = "import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in sys.stdin]"
# The first list of objects in a multi-line object.
_ROWS_WITHIN = re.compile(r'\s*\{.*?"(\w+)"\s*:\s*\[\s*\{', re.DOTALL)
# An object whose fields follow in lines of their own.
_OF_LINES = re.compile(r"\s*\{[ \t\r]*\n")
# The programs that print what a packed file holds.
_UNPACK = {".gz": "zcat", ".zst": "zstdcat"}
_HEAD = 65_536
_MOST_LINES = 1_000_000
_BETWEEN = re.compile(r"[\s,]*")
# Rows checked one by one for repeated names: of a list the first ones, of lines those that contain a name twice.
_MOST_ROWS = 100_000


def scan_lines_of_json(path: Path) -> pl.LazyFrame:
    """Read a row a line. Types are inferred from all lines, as an id may be a number first and text later.

    Errors: a row that repeats a name, of which only the last value would be read.
    """
    with _opened(path) as file:
        marked = file.read(len(_MARK)) == _MARK
        source = io.BytesIO(file.read()) if marked else glob.escape(str(path))
    frame = pl.scan_ndjson(source, infer_schema_length=None)
    line, names = pl.col("line"), {*_names(pl.Struct(dict(frame.collect_schema())))}
    quoted = [json.dumps(name, ensure_ascii=False) for name in names]
    twice = pl.any_horizontal(False, *(line.str.count_matches(name, literal=True) > 1 for name in quoted))
    rows = lines_of(path, lossy=True).with_row_index("row", 1).filter(twice).head(_MOST_ROWS)
    _refuse_names_twice(path, rows.collect(engine="streaming").iter_rows())
    return frame


def scan_json(path: Path) -> pl.LazyFrame:
    """Read one list of rows, or a row a line. Errors: as `scan_lines_of_json`, for the first rows of a list."""
    with _opened(path) as file:
        first = file.read(1024).removeprefix(_MARK).lstrip(b" \t\r\n")[:1]
        if first != b"[":
            return scan_lines_of_json(path)
        file.seek(0)
        content = file.read().removeprefix(_MARK)
    frame = pl.read_json(content, infer_schema_length=None).lazy()
    _refuse_names_twice(path, enumerate(_of_a_list(content.decode(errors="replace")), start=1))
    return frame


def why_no_json(path: str) -> str | None:
    """The problem of a file that is not JSON rows, by its first lines, and the fix; None where none is found."""
    quoted, made = shlex.quote(path), shlex.quote(f"{Path(path).name.split('.')[0]}.rows.jsonl")
    unpack = next((tool for ending, tool in _UNPACK.items() if path.lower().endswith(ending)), None)
    shown = f"{unpack} {quoted} | " if unpack else ""
    given = "" if shown else f" < {quoted}"
    # A damaged or shortened file is as the reader says.
    with suppress(OSError, pl.exceptions.PolarsError), _unpacked(Path(path)) as file:
        head = file.read(_HEAD).decode("utf-8-sig", errors="replace")
        if _OF_PYTHON.match(head):
            return (
                "its lines are Python dictionaries, not JSON; convert them, as with: "
                f"{shown}python3 -c '{_REWRITE}'{given} > {made}"
            )
        if head.lstrip()[:1] == "[":
            listed = re.match(r"\s*\[\s*\[", head) is not None
            right = Path(path).name.replace("ndjson", "json").replace("jsonl", "json")
            if listed:
                return 'its rows are lists, without names; write each as an object, as {"user_id": 1, "item_id": 2}'
            if right != Path(path).name and unpack == _UNPACK[".zst"]:
                return f"it is one list of rows; write a row a line, as with: {shown}jq -c '.[]' > {made}"
            if right != Path(path).name:
                return f"it is one list of rows, not a row a line; call it {shlex.quote(right)}"
        rows = _ROWS_WITHIN.match(head)
        if rows is not None and not _is_row(head.splitlines()[0]):
            return (
                f"it is one object, whose rows are in '{rows[1]}'; write a row a line, as with: "
                f"{shown}jq -c '.{rows[1]}[]'{'' if shown else ' ' + quoted} > {made}"
            )
        if _OF_LINES.match(head):
            whole = f"{shown}jq -c .{'' if shown else ' ' + quoted} > {made}"
            return f"its rows go on over several lines; write a row a line, as with: {whole}"
        file.seek(0)
        for number, line in enumerate(islice(file, _MOST_LINES), start=1):
            why = _why_no_row(line.decode("utf-8-sig", errors="replace").strip(), listed=head.lstrip()[:1] == "[")
            if why is not None:
                return f"line {number:,} {why}"
    return None


def _why_no_row(line: str, *, listed: bool) -> str | None:
    """What is wrong with a line; `listed`: it is part of a list of rows, which may go on in the next line."""
    found = _NO_NUMBER.search(line)
    if found is not None:
        return f"says {found[1]}, which is not JSON; write null, or leave the field out"
    if listed or not line or _is_row(line):
        return None
    return f"is no row of JSON: {reprlib.repr(line)}; each line is an object with names: mend this one, or delete it"


def _is_row(line: str) -> bool:
    with suppress(json.JSONDecodeError, RecursionError):
        return isinstance(json.loads(line, parse_int=str), dict)
    return False


def _names(dtype: Any) -> Iterator[str]:
    """The names of all fields, nested ones included."""
    if isinstance(dtype, pl.Struct):
        for each in dtype.fields:
            yield each.name
            yield from _names(each.dtype)
    elif isinstance(dtype, pl.List):
        yield from _names(dtype.inner)


def _of_a_list(text: str) -> Iterator[str]:
    """The first rows of a list, each as text."""
    decode, place = json.JSONDecoder(parse_int=str).raw_decode, text.index("[") + 1
    for _ in range(_MOST_ROWS):
        place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
        if text[place : place + 1] in ("", "]"):
            return
        _, end = decode(text, place)
        yield text[place:end]
        place = end


def _refuse_names_twice(path: Path, rows: Iterable[tuple[int, str]]) -> None:
    for row, text in rows:
        twice = _names_twice(text)
        if twice:
            raise InputError(f"{path}: row {row} has {twice[0]!r} twice; keep one of the two")


def _names_twice(text: str) -> list[str]:
    """The repeated names of an object; none where the text is not JSON, which the reader reports."""
    twice = list[str]()

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        twice.extend(name for place, name in enumerate(names) if name in names[:place])

    with suppress(json.JSONDecodeError, RecursionError):
        json.loads(text, object_pairs_hook=look, parse_int=str)
    return twice


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked. Errors: `OSError`, also where a packed file is damaged or ends early."""
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (EOFError, zlib.error) as error:
        raise OSError(f"it cannot be unpacked: {error}") from error


def _unpacked(path: Path) -> AbstractContextManager[IO[bytes]]:
    """The first lines of a file; of one packed as .zst, which Python cannot read, as Polars reads them."""
    if not path.name.lower().endswith(".zst"):
        return _opened(path)
    lines = lines_of(path, lossy=True).head(_MOST_LINES).collect()["line"]
    return io.BytesIO("\n".join(line or "" for line in lines).encode())
