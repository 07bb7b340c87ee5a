"""Text files of rows, with every cell left as text: what looks like a number may be an id with a leading zero."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from beamwood.data.files.headless import refuse_without_names, seems_headless
from beamwood.data.files.layout import Layout, check_names, fields_of, separator_of
from beamwood.data.files.quotes import are_signs, unwrapped
from beamwood.data.files.text_shapes import refuse_other_shapes
from beamwood.errors import InputError
from beamwood.words import counted

__all__ = ["PACKED", "RECBOLE", "TEXT_SUFFIXES", "WITHOUT_NULS", "lines_of", "scan_text"]

# The separator by suffix; None: detected from the first lines. RecBole's files have no quotes.
RECBOLE = (".inter", ".item", ".user")
_OWN = {
    ".csv": ",",
    ".tsv": "\t",
    ".tab": "\t",
    **dict.fromkeys(RECBOLE, "\t"),
    ".txt": None,
    ".dat": None,
    ".data": None,
}
PACKED = (".gz", ".zst")
TEXT_SUFFIXES = tuple(f"{suffix}{packed}" for suffix in _OWN for packed in ("", *PACKED))
_SAMPLE = 100
_TOLD = re.compile(r'"?sep=([,;|\t])"?\s*', re.IGNORECASE)
WITHOUT_NULS = "delete them, as with: tr -d '\\000' < OLD > NEW"
# A character that is in no text file, neither in cells nor as a separator (Hive's is "\x01").
_NOWHERE = "\x0e"


def scan_text(path: Path, suffix: str | None, layout: Layout) -> tuple[pl.LazyFrame, tuple[str, ...]]:
    """The table of a text file, and notes on how it was interpreted. `suffix`: None for an unknown one.

    Errors: no separator is found; names that do not fit the first line; lines with another number of cells.
    """
    own = None if suffix is None else _OWN[suffix.removesuffix(".gz").removesuffix(".zst")]
    quote = None if suffix is not None and suffix.startswith(RECBOLE) else '"'
    lines = [line or "" for line in lines_of(path, lossy=True).head(_SAMPLE).collect()["line"].to_list()]
    _refuse_other_texts(path, lines)
    notes = []
    told = _TOLD.fullmatch(lines[0].lstrip("\ufeff")) if lines else None
    if told is not None:
        # Spreadsheets may write the separator in a line of its own.
        lines = lines[1:]
        notes.append(f"its columns are separated by {told[1]!r}, as its first line says")
    separator, found = _separator(path, lines, layout.separator or (told and told[1]), own, quote)
    notes += found
    rows = fields_of(lines, separator, quote) or [[]]
    first, wrapped = rows[0], False
    _refuse_title(path, lines, len(first), layout)
    if layout.names is not None:
        check_names(str(path), layout.names, first)
    if quote is not None and len(separator) == 1 and are_signs(lines_of(path, lossy=True), separator, len(first)):
        wrapped = all(re.fullmatch(r'".*"|[\d.-]*', cell) for cell in lines[0].lstrip("\ufeff").split(separator))
        quote, rows = None, fields_of(lines, separator, None)
        notes.append("some quotes enclose no cell, so all are read as ordinary characters")
    if layout.names is None and told is None and len(first) > 1 and seems_headless(rows):
        refuse_without_names(path, rows, separator, is_log=layout.is_log)
    if len(separator.encode()) > 1:
        return _split(path, separator, layout.names or tuple(first), layout.names is None), tuple(notes)
    before = 0 if told is None else 1
    # No row is longer than that, which `_refuse_longer_rows` checks, apart from a trailing separator.
    scan = partial(pl.scan_csv, path, glob=False, separator=separator, quote_char=quote, truncate_ragged_lines=True)
    _refuse_longer_rows(path, scan, separator, len(first), before + (layout.names is None))
    frame = scan(
        infer_schema=False,
        skip_lines=before,
        has_header=layout.names is None,
        new_columns=None if layout.names is None else list(layout.names),
    )
    return unwrapped(frame) if wrapped else frame, tuple(notes)


def _separator(
    path: Path, lines: Sequence[str], said: str | None, usual: str | None, quote: str | None
) -> tuple[str, list[str]]:
    """The separator, and a note where it was detected and differs from that of the suffix."""
    separator = separator_of(lines, usual, quote) if said is None else said
    refuse_other_shapes(path, lines, separator, quote)
    if separator is None:
        raise InputError(
            f"{path}: its separator cannot be detected from its first lines; give it with --separator, as "
            "--separator ';'"
        )
    if said is not None or separator == usual:
        return separator, []
    return separator, [f"its columns are separated by {separator!r}, as its first lines have it (or use --separator)"]


def _refuse_other_texts(path: Path, lines: Sequence[str]) -> None:
    """Errors: UTF-16 text, a header with NUL bytes, and lines that end with carriage returns only."""
    # In UTF-16 every second byte of a header is one.
    if any(4 * line.count("\x00") > len(line) for line in lines[:2]):
        raise InputError(
            f"{path} cannot be read: it seems to be UTF-16: save it as UTF-8, as with: "
            "iconv -f UTF-16 -t UTF-8 OLD > NEW"
        )
    if any("\x00" in line for line in lines[:1]):
        raise InputError(f"{path} has NUL bytes in its first line, so it may be damaged; {WITHOUT_NULS}")
    if len(lines) == 1 and "\r" in lines[0].rstrip("\r"):
        raise InputError(
            f"{path} ends its lines with carriage returns only, as old systems do; convert it, as with: "
            "tr '\\r' '\\n' < OLD > NEW"
        )


def _refuse_title(path: Path, lines: Sequence[str], width: int, layout: Layout) -> None:
    """Errors: single-cell lines before the rows."""
    if width > 1 or layout.is_given:
        return
    starts = next((at for at, line in enumerate(lines) if len(re.split(r"[,;\t|]", line)) > 1), 0)
    if starts and max(map(len, lines[:starts])) and len(lines) - starts > starts:
        raise InputError(
            f"{path}: its first line, {lines[0][:60]!r}, seems to be a title; delete all before the header line"
        )


def _refuse_longer_rows(
    path: Path, scan: Callable[..., pl.LazyFrame], separator: str, width: int, skipped: int
) -> None:
    """Errors: rows with more cells than columns, in which Polars would read projected columns at wrong positions.

    A separator at the end of a line adds no cell.
    """
    names = [f"{number}" for number in range(width + 1)]
    rows = scan(
        has_header=False,
        skip_rows=skipped,
        schema=dict.fromkeys(names, pl.String),
        missing_columns="insert",
        extra_columns="ignore",
    )
    beyond = pl.col(names[-1])
    longer = rows.select(beyond).with_row_index("row").filter(beyond.is_not_null())
    count, row, cell = longer.select(pl.len(), pl.col("row").first(), beyond.first()).collect(engine="streaming").row(0)
    if count:
        more = f", as {count:,} rows have" if count > 1 else ""
        raise InputError(
            f"{path}: row {row + 1:,} has more than the {width} cells of its columns{more}, {cell!r} is one too many; "
            f"put quotes around a cell that holds {separator!r}"
        )


def lines_of(path: Path, *, lossy: bool = False) -> pl.LazyFrame:
    """The lines of a text file as the column `line`, null for blank ones; `lossy`: accept bytes that are not UTF-8."""
    return pl.scan_csv(
        path,
        glob=False,
        separator=_NOWHERE,
        quote_char=None,
        has_header=False,
        infer_schema=False,
        new_columns=["line"],
        encoding="utf8-lossy" if lossy else "utf8",
    )


def _split(path: Path, separator: str, names: tuple[str, ...], named: bool) -> pl.LazyFrame:
    """Lines split at a separator of several characters, without quoting."""
    line, rows = pl.col("line"), lines_of(path).filter(pl.col("line").is_not_null())
    rows = rows.slice(1) if named else rows
    other = line.str.count_matches(separator, literal=True) != len(names) - 1
    found = rows.select(other.sum().alias("bad"), line.filter(other).first()).collect(engine="streaming").row(0)
    if found[0]:
        raise InputError(
            f"{path}: {counted(found[0], 'line has', 'lines have')} another number of columns than {len(names)}, "
            f"the first {found[1]!r}; mend them"
        )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"{path} has several columns named '{repeated}'; give each its own name")
    cells = line.str.split_exact(separator, len(names) - 1).struct.rename_fields(list(names))
    text = rows.select(cells).unnest("line")
    return text.with_columns(pl.all().replace("", None))
