"""Ids exactly as written: which cells are accepted, which are refused, and notes about suspicious ones."""

from __future__ import annotations

import reprlib
from typing import Any

import polars as pl

from beamwood.data.columns import known_names, squashed
from beamwood.data.files.source import Source, reading
from beamwood.data.files.text_table import WITHOUT_NULS
from beamwood.errors import InputError
from beamwood.words import counted

__all__ = [
    "LONGEST",
    "count_of",
    "likenesses",
    "missing_cells",
    "id_expression",
    "refuse",
    "same_but_for_looks",
    "null_words",
]

LONGEST = 512
"""The most characters of an id, or of another text, that the stores of a service take."""
# Whole numbers, also as spreadsheets and frames with gaps write them (7.0); "007" and "+7" are other ids than 7.
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,18})(\.0+)?$"
_POINT_ZERO = r"\.0+$"
# A long number that went through a float; "12e4", which may be hexadecimal, is ordinary text.
_EXPONENT = r"^\s*[+-]?(\d+(\.\d+)?[eE]\+\d+|\d+\.\d+[eE]\d+)\s*$"
_NOTHING = r"^\s*((?i:nan|null|\(null\)|none|nil|nat|undefined|n/a|#n/a|<na>|\\n)|NA)\s*$"
# The share of rows up to which text among whole numbers may be a slip.
_FEW = 0.01
_TEXTS = (pl.String, pl.Binary, pl.Categorical, pl.Enum)
# From 2 to this power on a float may stand for several integers. Float16, which not every Polars has, has 11 bits.
_INEXACT: dict[Any, int] = {pl.Float32: 24, pl.Float64: 53}
# Lists of ids: "N12 N7", "[3, 9]".
_LIST = r"""^\s*[\[(]?\s*['"]?[A-Za-z]{0,4}[-_]?\d+['"]?([\s,;|]+['"]?[A-Za-z]{0,4}[-_]?\d+['"]?)+\s*[\])]?\s*$"""
# Thousands separators: "1,000", "1 000" and "1'000".
_THOUSANDS = r"^\s*\d{1,3}([,.'\u{a0}\u{202f}\u{2019} ]\d{3})+\s*$"
# '42', and ="42", the spreadsheet form of text.
_QUOTED = r"""^\s*=?("[^"]+"|'[^']+')\s*$"""
_AROUND = r"^\s|\s$"
_BLANKS = r"[\s\u{200b}-\u{200d}\u{feff}]+"


def id_expression(
    table: Source, name: str, role: str, *, or_else: str = "--missing drop"
) -> tuple[pl.Expr, tuple[str, ...]]:
    """The ids as an expression named `role`, and notes about them; `or_else`: the fix other than to fill missing ones.

    Integers become Int64, but UInt64 stays, as which wider types are read where Int64 does not hold them. Text becomes
    Int64, too, where all of it is whole numbers that it holds. Bytes are read as text. Errors: null, empty or
    non-finite ids; floats that are inexact, with fractions or beyond 64 bits; text with an exponent; bytes that are
    not UTF-8; text with a line break or a NUL byte in a text file; times finer than a microsecond; types that are not
    ids.
    """
    dtype, column = table.schema[name], table.column(name)
    if dtype in _TEXTS:
        return _text_ids(table, name, role, or_else)
    refuse(table, name, missing_cells(table, name), f"rows with no {role} id", f"fill them, or {or_else}")
    # pandas converts integers to floats where one is missing, and databases export them as decimals.
    if dtype.is_float() or dtype.is_decimal():
        if count_of(table, (column != column.floor()).sum()):
            raise InputError(
                f"{table.name}: column '{name}' holds {role} ids with fractions; write them as whole numbers or text"
            )
        if dtype.is_float():
            _refuse_inexact(table, name, role)
    if dtype.is_float() or dtype.is_decimal() or dtype == pl.Int128:
        narrow, unsigned = (column.cast(each, strict=False) for each in (pl.Int64, pl.UInt64))
        # Polars joins parts with either type as 128 bits.
        if count_of(table, narrow.is_null().sum()) and not count_of(table, unsigned.is_null().sum()):
            return unsigned.alias(role), ()
        refuse(table, name, narrow.is_null(), f"{role} ids beyond 64 bits", "write them as text")
        return narrow.alias(role), ()
    if dtype == pl.Time or (isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns"):
        finer = column.dt.nanosecond() % 1000 != 0
        refuse(table, name, finer, f"{role} ids finer than a microsecond", "write them as text or whole numbers")
    if dtype.is_integer() and dtype != pl.UInt64:
        # The width of a column is its writer's: ids of other files, and later ones, may be larger.
        return column.cast(pl.Int64).alias(role), ()
    if dtype in (pl.UInt64, pl.Date, pl.Time, pl.Datetime):
        return column.alias(role), ()
    fix = "use numbers or strings"
    if isinstance(dtype, pl.List | pl.Array):
        along = ", ".join(map(repr, [name, *_lists_along(table, name)]))
        fix = f"write a row for each {role} of a list, as Polars does by .explode({along})"
    raise InputError(f"{table.name}: column '{name}' of type {dtype} holds no {role} ids; {fix}")


def _lists_along(table: Source, name: str) -> list[str]:
    """The other columns of lists that are as long as those of this column in all rows."""
    others = [each for each, dtype in table.schema.items() if isinstance(dtype, pl.List) and each != name]
    if not others or not isinstance(table.schema[name], pl.List):
        return []
    length = table.column(name).list.len()
    asked = [(table.column(each).list.len() == length).all().alias(each) for each in others]
    with reading(table.name):
        same = table.frame.select(asked).collect(engine="streaming").row(0)
    return [each for each, alike in zip(others, same, strict=True) if alike]


def missing_cells(table: Source, name: str, *, words: bool = False) -> pl.Expr:
    """Whether a cell is missing: null, non-finite, blank text and, with `words`, a null word such as "nan"."""
    dtype, column = table.schema[name], table.column(name)
    missing = column.is_null()
    if dtype.is_float():
        return missing | ~column.is_finite()
    if dtype in _TEXTS:
        text = column.cast(pl.String)
        missing = missing | (text.str.strip_chars().str.len_bytes() == 0)
        return missing | text.str.contains(_NOTHING) if words else missing
    return missing


def null_words(texts: pl.Series) -> pl.DataFrame:
    """The null words among texts, such as nan and null, with the count of each."""
    found = texts.alias("word").filter(texts.str.contains(_NOTHING).fill_null(False))
    return found.value_counts(sort=True)


def _refuse_inexact(table: Source, name: str, role: str) -> None:
    bits = _INEXACT.get(type(table.schema[name]), 11)
    column = table.column(name)
    refuse(
        table,
        name,
        column.abs().cast(pl.Float64) >= 2.0**bits,
        f"{role} ids from 2^{bits} on as floats, which are not exact there: different ids may have become equal",
        "export them again as whole numbers or text",
    )


def _text_ids(table: Source, name: str, role: str, or_else: str) -> tuple[pl.Expr, tuple[str, ...]]:
    column = table.column(name).cast(pl.String)
    _refuse_bytes(table, name, role)
    missing, exponent = missing_cells(table, name), column.str.contains(_EXPONENT)
    whole = column.str.replace(_POINT_ZERO, "").cast(pl.Int64, strict=False)
    broken, nul = (column.str.contains(mark, literal=True) & table.is_text for mark in ("\n", "\0"))
    checks = {
        "missing": missing,
        "broken": broken,
        "nul": nul,
        "exponent": exponent,
        "other": ~column.str.contains(_WHOLE_NUMBER) | whole.is_null(),
        "dotted": column.str.contains(_POINT_ZERO),
        "nothing": column.str.contains(_NOTHING),
        "lists": column.str.contains(_LIST),
        "thousands": column.str.contains(_THOUSANDS),
        "quoted": column.str.contains(_QUOTED),
        "blank": column.str.contains(_AROUND),
        "long": column.str.len_chars() > LONGEST,
    }
    rows, *sums = table.measured(pl.len(), *(check.sum() for check in checks.values()))
    found = dict(zip(checks, sums, strict=True))
    if found["missing"]:
        refuse(table, name, missing, f"rows with no {role} id", f"fill them, or {or_else}")
    if found["broken"]:
        fix = "a quote without its pair swallows lines; mend it, or save a log of such ids as Parquet"
        refuse(table, name, broken, f"{role} ids with a line break", fix)
    if found["nul"]:
        refuse(table, name, nul, f"{role} ids with NUL bytes", f"the file may be damaged; {WITHOUT_NULS}")
    if found["exponent"]:
        fix = "their last digits are lost; export the column as text or whole numbers"
        refuse(table, name, exponent, f"{role} ids written with an exponent", fix)
    notes = [_note_of_nothing(table, name, role)] if found["nothing"] else []
    notes += _notes_of_marks(table, name, role, found)
    if 0 < found["other"] <= _FEW * rows:
        row, cell = table.first(name, checks["other"])
        few = counted(found["other"], f"{role} id is", f"{role} ids are") + " no whole number below 2^63"
        notes.append(f"'{name}': {few}, the first {reprlib.repr(cell)} in row {row}, so all are text, such as \"7\"")
    if found["other"]:
        return column.alias(role), tuple(notes)
    if found["dotted"]:
        ids = counted(found["dotted"], f"{role} id is", f"{role} ids are")
        notes.append(f"'{name}': {ids} written as 7.0 and read as the whole number 7")
    if not table.is_text:
        notes.append(f"'{name}': text of whole numbers, read as numbers: requests give {role} ids as 7, not as \"7\"")
    return whole.alias(role), tuple(notes)


def _notes_of_marks(table: Source, name: str, role: str, found: dict[str, int]) -> list[str]:
    """Notes about ids with quotes, blanks or separators that may not belong to them, and about long ones."""
    column, notes = table.column(name).cast(pl.String), list[str]()
    of_thousands = found["thousands"] and found["thousands"] >= found["lists"]
    for key, mark, what, fix in (
        ("thousands", _THOUSANDS, "numbers with marks for thousands", "If they are numbers, write them without"),
        ("lists", _LIST, "lists", f"If they are several, write a row for each {role}"),
        ("quoted", _QUOTED, "within quotes", "If the quotes are not part of them, write them without"),
        ("blank", _AROUND, "within blanks", "If the blanks are not part of them, write them without"),
    ):
        if not found[key] or (key == "lists" and of_thousands) or (key == "thousands" and not of_thousands):
            continue
        row, cell = table.first(name, column.str.contains(mark))
        one, many = ("is", "are") if key in ("quoted", "blank") else ("seems to be", "seem to be")
        ids = counted(found[key], f"{role} id {one}", f"{role} ids {many}")
        notes.append(
            f"'{name}': {ids} {what}, the first {reprlib.repr(cell)} in row {row}; each is read as one {role}. {fix}"
        )
    if found["long"]:
        row, _ = table.first(name, column.str.len_chars() > LONGEST)
        ids = counted(found["long"], f"{role} id is", f"{role} ids are")
        notes.append(
            f"'{name}': {ids} longer than {LONGEST} characters, the first in row {row}; a service refuses events "
            "with such ids, so shorten them before you serve"
        )
    return notes


def _refuse_bytes(table: Source, name: str, role: str) -> None:
    if table.schema[name] != pl.Binary:
        return
    try:
        table.frame.select(table.column(name).cast(pl.String).str.len_bytes().sum()).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{table.name}: column '{name}' holds {role} ids of bytes that are not UTF-8; write them, or UUIDs, as text"
        ) from error


def _note_of_nothing(table: Source, name: str, role: str) -> str:
    text = table.column(name).cast(pl.String).alias("word")
    with reading(table.name):
        texts = table.frame.select(text).filter(pl.col("word").str.contains(_NOTHING)).collect(engine="streaming")
    words = null_words(texts["word"])
    said = ", ".join(f"{word!r} {count:,}" for word, count in words.head(4).iter_rows())
    having = counted(len(texts), "row has", "rows have")
    return (
        f"'{name}': {having} a null word as their {role} ({said}); each word counts as one {role}. If they mean a "
        f"missing {role}, --missing drop leaves these rows out{_instead(table, name, role)}"
    )


def _instead(table: Source, name: str, role: str) -> str:
    """The advice to use another column with an alias of the role, "" where there is none."""
    other = next((each for each in table.column_names if each != name and squashed(each) in known_names(role)), None)
    return "" if other is None else f", and --{role}-column '{other}' reads that column instead"


def count_of(table: Source, number: pl.Expr) -> int:
    """An aggregate over all rows as an int, null as 0."""
    return int(table.measured(number)[0] or 0)


def refuse(table: Source, name: str, bad: pl.Expr, what: str, fix: str) -> None:
    """Raise `InputError` where any cell is `bad`, with the count, the first one and the fix."""
    count, rows = table.measured(bad.sum(), pl.len())
    if not count:
        return
    row, value = table.first(name, bad)
    first = reprlib.repr(value) if isinstance(value, str | bytes) else repr(value)
    raise InputError(
        f"{table.name}: column '{name}' has {count} of {rows} {what}, the first {first} in row {row}; {fix}"
    )


# Differences between similar ids, and the normalisation that removes each.
_LOOKS: dict[str, Any] = {
    "blanks": lambda text: text.str.replace_all(_BLANKS, " ").str.strip_chars(),
    "upper and lower case": lambda text: text.str.to_lowercase(),
    "Unicode form": lambda text: text.str.normalize("NFKC"),
    "zeros at the start": lambda text: text.str.replace(r"^([+-]?)0+(\d)", "${1}${2}"),
    "a '.0' at the end": lambda text: text.str.replace(_POINT_ZERO, ""),
}


def _plainest(text: Any) -> Any:
    """Text with all normalisations of `_LOOKS`."""
    for plain in (_LOOKS["Unicode form"], *_LOOKS.values()):
        text = plain(text)
    return text


def likenesses(ids: pl.Series, role: str) -> tuple[str, ...]:
    """Notes about distinct text ids that differ from another one only in a way of `_LOOKS`."""
    if ids.dtype != pl.String or _plainest(ids).n_unique() == len(ids):
        return ()
    ids, notes = ids.alias("id"), []
    for what, plain in _LOOKS.items():
        keys = plain(ids).alias("key")
        surplus = len(ids) - keys.n_unique()
        if surplus:
            pair = pl.DataFrame([keys, ids]).group_by("key").agg("id").filter(pl.col("id").list.len() > 1)
            first, second = sorted(pair.sort("key")["id"][0].to_list())[:2]
            notes.append(
                f"{surplus:,} of {len(ids):,} {role}s differ from another one only by {what}, such as {first!a} and "
                f"{second!a}; they count as different. If they are the same, write them alike in the log"
            )
    return tuple(notes)


def same_but_for_looks(ids: pl.Series, others: pl.Series) -> int:
    """The number of text ids that equal one of the others after normalisation."""
    if ids.dtype != pl.String or others.dtype != pl.String:
        return 0
    return int(_plainest(ids).is_in(_plainest(others).implode()).sum())
