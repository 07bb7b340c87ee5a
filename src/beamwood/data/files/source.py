"""Tables from files or memory, always as a Polars lazy frame."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from beamwood.data.files.foreign import as_utf8, begins_as, in_other_words, why_unread
from beamwood.data.files.in_memory import frame_of, scan_matrix
from beamwood.data.files.json_rows import scan_json, scan_lines_of_json, why_no_json
from beamwood.data.files.layout import Layout
from beamwood.data.files.nested import unnested_columns
from beamwood.data.files.offsets import file_with_offsets, has_offsets
from beamwood.data.files.parts import TableFiles, parts_of
from beamwood.data.files.text_shapes import OtherShapeError
from beamwood.data.files.text_table import PACKED, RECBOLE, TEXT_SUFFIXES, lines_of, scan_text
from beamwood.data.header import header_hint
from beamwood.errors import InputError, nearest_path, too_little_memory
from beamwood.words import followed

__all__ = ["SUFFIXES", "Source", "open_source", "reading"]

_ARROW_FILE = b"ARROW1"
# Marks a folder saved by a fit; other programs write files of that name too.
_MANIFEST, _FORMAT = "manifest.json", "beamwood-artefact"
_UNPAIRED = re.compile(r'CSV malformed|could not parse `"')
_REPEATED = re.compile(r"(?:column with name|duplicate(?:d)? column:?) '?([^']+)'? has more than one")


@dataclass(frozen=True)
class Source:
    """A table not yet read: its `name` in messages, the `frame`, and whether every cell is still text (CSV).

    Where only some rows are kept, `whole` is the unfiltered frame and `kept` the filter, so that errors number rows as
    in the file. `notes`: how the file was interpreted.
    """

    name: str
    frame: pl.LazyFrame
    is_text: bool
    whole: pl.LazyFrame | None = None
    kept: pl.Expr | None = None
    notes: tuple[str, ...] = ()

    @property
    def column_names(self) -> list[str]:
        """In the order of the source."""
        return list(self.schema)

    @cached_property
    def schema(self) -> Mapping[str, pl.DataType]:
        """The type of each column. Errors: an unreadable source, named."""
        with reading(self.name):
            return dict(self.frame.collect_schema())

    def column(self, name: str) -> pl.Expr:
        """The column with exactly that name, by position: `pl.col` reads "*" and "^u.*$" as patterns."""
        return pl.nth(self.column_names.index(name))

    def keeping(self, kept: pl.Expr) -> Source:
        """The table of the rows that are `kept`."""
        whole = self.frame if self.whole is None else self.whole
        every = kept if self.kept is None else self.kept & kept
        return replace(self, frame=self.frame.filter(kept), whole=whole, kept=every)

    def holds_text(self, name: str) -> bool:
        """Whether a column is of text: strings, categories or an enumeration of them."""
        return self.schema[name] in (pl.String, pl.Categorical, pl.Enum)

    def measured(self, *asked: pl.Expr) -> tuple[Any, ...]:
        """The value of each aggregate over all rows, in one pass."""
        named = [each.alias(str(place)) for place, each in enumerate(asked)]
        with reading(self.name):
            return self.frame.select(named).collect(engine="streaming").row(0)

    def first(self, name: str, chosen: pl.Expr) -> tuple[int, Any]:
        """The number, from 1, of the first row where `chosen` is true, and its cell in a column."""
        chosen = chosen if self.kept is None else chosen & self.kept
        row, cell = chosen.arg_true().first() + 1, self.column(name).filter(chosen).first()
        with reading(self.name):
            frame = self.frame if self.whole is None else self.whole
            return frame.select(row.alias("row"), cell.alias("cell")).collect().row(0)


def open_source(source: Any, layout: Layout) -> Source:
    """The table at a path, or of an object in memory: see `frame_of`.

    A path is a file, a folder of parts of one table, or a pattern of their names. `layout`: given for text files and
    rows without names. Nested rows become `unnested_columns`. Errors: no such file, an unsupported suffix, an
    unreadable file, an object that is not a table; a layout for a source that has its own.
    """
    if isinstance(source, str | os.PathLike):
        if not os.fspath(source):
            raise InputError("the path of a table is empty; name a file, or a folder of its parts")
        return _open_path(Path(source), layout)
    if layout.separator is not None:
        raise InputError("--separator is about text files, and this is none; leave it out")
    name, frame = frame_of(source, layout.names)
    with reading(name):
        return Source(name, unnested_columns(frame), False)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """A context in which errors of Polars and the file system become an `InputError` that names the source.

    A lack of memory is none of the source, and stays as it is.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, UnicodeDecodeError) as error:
        if too_little_memory(error) is not None:
            raise
        panicked = isinstance(error, pl.exceptions.PanicException)
        reason = "its parts are inconsistent" if panicked else _first_line(error)
        repeated = _REPEATED.search(reason)
        if repeated is not None:
            raise InputError(f"{name} has several columns named '{repeated[1]}'; give each its own name") from error
        no_json = why_no_json(name) if "json" in (_suffix_of(name) or "") else None
        if no_json is not None:
            raise InputError(f"{name} cannot be read: {no_json}") from error
        may_be_text = _suffix_of(name) in (None, *TEXT_SUFFIXES)
        if may_be_text and _UNPAIRED.search(reason):
            raise InputError(f"{name} cannot be read: {_unpaired_quote(name)} swallows lines; mend it") from error
        of_encoding = may_be_text and "utf-8" in reason.lower()
        fix = as_utf8(name) if of_encoding else "is the file whole and of that format?"
        raise InputError(followed(f"{name} cannot be read: {reason}", fix)) from error


def _unpaired_quote(name: str) -> str:
    """In words the quote that closes in no line, with the first line that may have it."""
    if not os.path.isfile(name):
        return "a quote without its pair"
    odd = pl.col("line").str.count_matches('"', literal=True) % 2 == 1
    found = lines_of(Path(name), lossy=True).with_row_index("row", offset=1).filter(odd).head(1).collect()
    return "a quote without its pair" + (f" in line {found.row(0)[0]:,}" if len(found) else "")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _open_path(path: Path, layout: Layout) -> Source:
    if _is_saved(path):
        raise InputError(
            f"{path} is a folder that `beamwood fit` saved, and no table; give the file that it was read from"
        )
    parts = parts_of(str(path), _suffix_of if layout.separator is None else _any_suffix_of)
    if parts is None:
        return _open_file(path, layout)
    opened = [_open_part(file, parts, layout) for file in parts.files]
    frame = parts.joined([each.frame for each in opened], [each.schema for each in opened])
    return Source(str(path), frame, opened[0].is_text, notes=(*parts.notes(), *opened[0].notes))


def _is_saved(path: Path) -> bool:
    """Whether a fit saved this folder."""
    with suppress(OSError, ValueError, RecursionError):
        manifest = path / _MANIFEST
        content = json.loads(manifest.read_bytes()) if os.path.isfile(manifest) else None
        return isinstance(content, dict) and content.get("format") == _FORMAT
    return False


def _open_part(file: Path, parts: TableFiles, layout: Layout) -> Source:
    try:
        return _open_file(file, layout)
    except OtherShapeError as error:
        if len(parts.files) == 1:
            raise
        every = shlex.quote(str(file.parent)) + f"/*{file.suffix}"
        fix = f"if all files are like this, name all in that command, as {every}"
        raise InputError(followed(str(error), fix)) from None


def _open_file(path: Path, layout: Layout) -> Source:
    # os.path.exists, as Path.exists raises on a name that is too long.
    if not os.path.exists(path):
        if os.path.islink(path):
            raise InputError(f"{path} is a link to {os.readlink(path)}, where no file is; mend the link, or delete it")
        raise InputError(f"{path} does not exist{nearest_path(path)}")
    if not path.is_file():
        raise InputError(f"{path} is a pipe, a socket or a device, which is not read twice; save it as a file first")
    suffix = _suffix_of(path.name)
    if path.stat().st_size == 0:
        raise InputError(f"{path} cannot be read: it is empty; give a file with a line for each row")
    unread = why_unread(path) if suffix is None else None
    if unread is not None:
        raise InputError(f"{path} {unread}")
    if suffix is None and layout.separator is None:
        raise InputError(f"{path} has an unknown ending; {in_other_words(path)}")
    scan = None if suffix is None else _SCANS.get(suffix)
    if layout.is_given and scan is not None:
        raise InputError(f"--separator and --columns are about text files, and {path} is none; leave them out")
    if scan is None and not path.name.lower().endswith(PACKED):
        _refuse_binary(path)
    notes: tuple[str, ...] = ()
    with reading(str(path)):
        if scan is None:
            frame, notes = scan_text(path, suffix, layout)
            _refuse_repeated_names(str(path), frame)
        else:
            frame = unnested_columns(file_with_offsets(path) if has_offsets(path) else scan(path))
        if suffix is not None and suffix.startswith(RECBOLE):
            frame = _without_field_types(frame)
    return Source(str(path), frame, scan is None, notes=notes)


def _refuse_binary(path: Path) -> None:
    """Errors: a text file's name of a file that begins as binary ones do."""
    ending = begins_as(path)
    if ending is not None:
        right = path.name + ending if ending in PACKED else path.with_suffix(ending).name
        raise InputError(f"{path} is no text: it begins as {ending} files do; call it {shlex.quote(right)}")


def _suffix_of(name: str) -> str | None:
    """The known suffix of a file name, or None."""
    return max((known for known in SUFFIXES if name.lower().endswith(known)), key=len, default=None)


def _any_suffix_of(name: str) -> str:
    return _suffix_of(name) or os.path.splitext(name)[1]


def _refuse_repeated_names(name: str, frame: pl.LazyFrame) -> None:
    """Errors: repeated column names; Polars renames the second column 'x' of a text file to 'x_duplicated_0'."""
    names = frame.collect_schema().names()
    for column in names:
        first, mark, _ = column.rpartition("_duplicated_")
        if mark and first and first in names:
            raise InputError(f"{name} has several columns named '{first}'; give each its own name{header_hint(names)}")


def _scan_arrow(path: Path) -> pl.LazyFrame:
    with path.open("rb") as file:
        is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
    return pl.scan_ipc(path, glob=False) if is_file else pl.read_ipc_stream(path).lazy()


def _without_field_types(frame: pl.LazyFrame) -> pl.LazyFrame:
    """RecBole writes `user_id:token` in its header; the part behind the colon is the type."""
    return frame.rename({name: name.split(":")[0] for name in frame.collect_schema().names()})


_SCANS: dict[str, Callable[[Path], pl.LazyFrame]] = {
    **dict.fromkeys((".parquet", ".pq"), partial(pl.scan_parquet, glob=False)),
    ".arrow": _scan_arrow,
    ".feather": _scan_arrow,
    ".ipc": _scan_arrow,
    **{f".{name}{packed}": scan_lines_of_json for name in ("jsonl", "ndjson") for packed in ("", ".gz", ".zst")},
    **dict.fromkeys((".json", ".json.gz"), scan_json),
    ".npz": scan_matrix,
}
SUFFIXES = (*_SCANS, *TEXT_SUFFIXES)
