"""Times in text: year first, months by name, zones by offset or name, or by a given format."""

from __future__ import annotations

import itertools
import re
import zoneinfo
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import polars as pl

from beamwood.data.files.source import Source, reading
from beamwood.errors import InputError

__all__ = ["UNREAD", "ReadTimes", "by_format", "by_shape", "looks_like_time", "numeric_date"]

# Unambiguous zone abbreviations: those of RFC 2822 and Europe's.
_OFFSETS = {
    "Z": "+00:00",
    "UT": "+00:00",
    "UTC": "+00:00",
    "GMT": "+00:00",
    "EST": "-05:00",
    "EDT": "-04:00",
    "CST": "-06:00",
    "CDT": "-05:00",
    "MST": "-07:00",
    "MDT": "-06:00",
    "PST": "-08:00",
    "PDT": "-07:00",
    "CET": "+01:00",
    "CEST": "+02:00",
    "EET": "+02:00",
    "EEST": "+03:00",
}
_ZONE = r"([A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)[\])]?$"
# What may stand before a comment in brackets; two digits alone are an offset only behind a clock, not in a date.
_OFFSET = rf":\d{{2}}(?:[.,]\d+)? ?[+-]\d{{2}}|[+-]\d{{2}}:?\d{{2}}|(?:\d|\b)(?i:{'|'.join(_OFFSETS)})"
_MOST_ZONES = 100
_DATES = ("%Y-%m-%d", "%d %B %Y", "%B %d %Y", "%d-%B-%Y")
_CLOCKS = ("%H:%M:%S%.f", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
# The formats of C, Python and web server logs.
_OTHERS = ("%B %d %H:%M:%S %Y", "%B %d %H:%M:%S %#z %Y", "%B %d %Y %H:%M:%S %#z", "%d/%B/%Y:%H:%M:%S %#z")
_SAMPLE = 1000
UNREAD = f"text of which none of the first {_SAMPLE:,} times can be read"
# "%Y" would read the 24 of 1-Jul-24, Jul 1 24 and Jul 1 10:00:00 24 as the year 24.
_SHORT_YEAR = r"^\d{1,2}[ /-][A-Za-z]+\.?[ /-]\d{1,3}(\D|$)|^[A-Za-z]+\.? \d{1,2} (\d{1,3}( |$)|\d{1,2}:.* \d{1,3}$)"
_NUMERIC_DATE = re.compile(
    r"(\d{1,2})([ /.-])(\d{1,2})(,? |[/.-])(\d{4}|\d{2})(?:(,? +)(\d{1,2}:\d{2}(?::\d{2})?)( ?[AaPp][Mm])?)?"
)


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """The Int64 `time` of each row, None where only the order of rows is known, and how it was read, in words.

    `unit`: since 1970, where dates were read; None for numbers, which are kept; "order" for scaled numbers that only
    order rows. `scale`: the factor of scaled numbers.
    """

    time: pl.Expr | None
    words: str
    unit: Literal["us", "ns", "order"] | None = None
    scale: int = 1


def by_shape(table: Source, name: str) -> ReadTimes | None:
    """Read text with the year first or the month by name; other cells become null.

    The formats found in a sample are tried on all rows, and all formats where these leave some row unread. None where
    no cell of the sample can be read.
    """
    column = table.column(name).cast(pl.String)
    text = _plain(column)
    words = _zone_words(table, text)
    with reading(table.name):
        given = table.frame.filter(column.is_not_null()).head(_SAMPLE)
        sample = given.select(_without_zones(text, words).alias("text")).collect()
    seen = tuple(shape for shape in _shapes() if _parsed(sample["text"], shape).is_not_null().any())
    if not seen and len(sample) == _SAMPLE:
        # Fails early: trying every format on all rows would be slow.
        return None
    kind = "ISO 8601 text" if all(shape.startswith("%Y") and "%p" not in shape for shape in seen) else "text"
    time = _microseconds(text, seen, words)
    (lost,) = table.measured((time.is_null() & column.is_not_null()).sum())
    return ReadTimes(_microseconds(text, _shapes(), words) if lost else time, kind, "us")


def by_format(table: Source, name: str, time_format: str) -> ReadTimes:
    """Read text by a format such as "%d.%m.%Y %H:%M", UTC without a zone; "%f" is any fraction of a second, as in
    Python.

    Errors: an invalid format.
    """
    pattern = _checked_format(time_format)
    text = table.column(name).cast(pl.String).str.strip_chars()
    if ",%f" in time_format:
        text = text.str.replace(r"^(.*),(\d+)", "${1}.${2}")
    words = _zone_words(table, text) if "%Z" in time_format else []
    places = any(word.upper() not in _OFFSETS for word in words)
    time = _microseconds(text, (re.sub(r"[\s(\[]*%Z[\])]?", "" if places else "%#z", pattern),), words)
    try:
        table.frame.select(time.count()).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"--time-format {time_format!r} cannot be used: {reason}; mend it") from error
    return ReadTimes(time, f"text by {time_format!r}", "us")


def _checked_format(time_format: str) -> str:
    """The format in Polars' syntax. Errors: no directive; no day; a fraction of a second without "." or ","."""
    if "%" not in time_format:
        raise InputError(
            f"--time-format {time_format!r} has no directive such as %Y; write the pattern of the times, such as "
            "'%d.%m.%Y %H:%M'"
        )
    if re.search(r"%[-_0]?[cdDeFjmsvxyY+UWG]", time_format) is None:
        raise InputError(
            f"--time-format {time_format!r} has no day; write date and time in one column, as '%d.%m.%Y %H:%M'"
        )
    pattern = re.sub(r"[.,]%f", "%.f", time_format)
    if "%f" in pattern:
        raise InputError(
            f"--time-format {time_format!r}: %f goes behind '.' or ','; write %3f, %6f or %9f for as many digits"
        )
    return pattern


def numeric_date(texts: pl.Series) -> tuple[str, list[str]]:
    """The order of numeric dates with the year last, in words, and the formats that read all texts; "" for others."""
    found = [match for text in texts.to_list() if (match := _NUMERIC_DATE.fullmatch(text.strip()))]
    if not found or 2 * len(found) < len(texts):
        return "", []
    first, second = (max(int(match[place]) for match in found) for place in (1, 3))
    orders = [order for order, month in ((("%d", "%m"), second), (("%m", "%d"), first)) if month <= 12]
    formats = [_format_of(found[0], *each) for each in orders]
    formats = [each for each in formats if _parsed(texts.str.strip_chars(), each).is_not_null().all()]
    if len(orders) == 2:
        return "with day and month either way round", formats
    return "with the day first" if second <= 12 else "with the month first" if first <= 12 else "in two orders", formats


def looks_like_time(texts: pl.Series) -> bool:
    """Whether all texts are times of a known shape, or dates of numbers, also with a year of two digits."""
    texts = texts.drop_nulls()
    # A cheap test first: trying all formats takes a hundred times as long.
    if not len(texts) or not texts.str.contains(r"\d\D+\d").all():
        return False
    if all(_NUMERIC_DATE.fullmatch(text.strip()) for text in texts.to_list()):
        return True
    # Computed first: within one expression it would be repeated for each format, and a log may have many columns.
    bare = texts.to_frame("text").select(_without_zones(_by_name(pl.col("text")), _OFFSETS))
    read = (_moment(pl.col("text"), shape).is_not_null() for shape in _shapes())
    return bool(bare.select(pl.any_horizontal(read).all()).item())


def _format_of(match: re.Match[str], first: str, second: str) -> str:
    _, mark, _, other, year, gap, clock, half = match.groups()
    date = f"{first}{mark}{second}{other}{'%Y' if len(year) == 4 else '%y'}"
    if clock is None:
        return date
    seconds = ":%S" if clock.count(":") == 2 else ""
    half_day = "" if half is None else " %p" if half[0] == " " else "%p"
    return f"{date}{gap}{'%H' if half is None else '%I'}:%M{seconds}{half_day}"


def _plain(column: pl.Expr) -> pl.Expr:
    """`_by_name`, null for years of two digits, which need a format too."""
    text = _by_name(column)
    return pl.when(~text.str.contains(_SHORT_YEAR)).then(text)


def _by_name(column: pl.Expr) -> pl.Expr:
    """Normalised text: single blanks, hyphens in dates, no weekday, comma or comment on an offset, days as 00:00."""
    text = column.str.strip_chars().str.replace(r"^(?i)(mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?,? ", "")
    text = text.str.replace(rf"({_OFFSET})\s*\([A-Za-z ]+\)$", "${1}")
    text = text.str.replace(r"(?:GMT|UTC)([+-]\d{2}:?\d{2})$", "${1}")
    # Unix and Java print the zone before the year.
    text = text.str.replace(r"^([A-Za-z]+ +\d{1,2}) (\d{2}:\d{2}:\d{2}) ([A-Z]{1,5}) (\d{4})$", "${1} ${4} ${2} ${3}")
    # Python's logging and ISO 8601 have a comma before parts of a second.
    text = text.str.replace(r"(\d{2}:\d{2}:\d{2}),(\d)", "${1}.${2}").str.replace_all(",", "")
    text = text.str.replace(r"([+-]\d{2}:?\d{2})\[[^\]]+\]$", "${1}")
    text = text.str.replace(r"^(\d{4})[/.](\d{1,2})[/.](\d{1,2})\b", "${1}-${2}-${3}")
    text = text.str.replace(r"^(\d{4}-\d{1,2}-\d{1,2})[Tt]", "${1} ").str.replace(r"^(\d{8})[Tt]", "${1} ")
    text = text.str.replace(r"^(\d{4})(\d{2})(\d{2}) (\d{2})(\d{2})", "${1}-${2}-${3} ${4}:${5}")
    text = text.str.replace(r"^(.{10} \d{2}:\d{2})(\d{2})", "${1}:${2}")
    bare = r"^(\d{4}-\d{1,2}-\d{1,2}|(\d{1,2} [A-Za-z]+\.? |[A-Za-z]+\.? \d{1,2} |\d{1,2}-[A-Za-z]+-)(\d{4}|\d{2}))$"
    text = text.str.replace(bare, "${1} 00:00").str.replace_all(r"\s+", " ")
    # Numeric dates with the year last need a format.
    return pl.when(~text.str.contains(r"^\d{1,2}[ /.-]\d{1,2}[ /.-]")).then(text)


def _zone_words(table: Source, text: pl.Expr) -> list[str]:
    """The time zone names at the ends of texts."""
    with reading(table.name):
        found = table.frame.select(text.str.extract(_ZONE, 1).unique().alias("word")).collect(engine="streaming")
    words = [word for word in found["word"].drop_nulls().to_list() if word.upper() not in ("AM", "PM")]
    return [word for word in words if word.upper() in _OFFSETS or word in zoneinfo.available_timezones()][:_MOST_ZONES]


def _end(word: str) -> str:
    return rf"(?i)[ \[(]*\b{re.escape(word)}[\])]?$"


def _without_zones(text: pl.Expr, words: Iterable[str]) -> pl.Expr:
    """The text with abbreviations replaced by offsets, and without names of time zones."""
    for word in words:
        text = text.str.replace(_end(word), _OFFSETS.get(word.upper(), ""))
    return text


@cache
def _shapes() -> tuple[str, ...]:
    plain = [f"{date} {clock}" for date, clock in itertools.product(_DATES, _CLOCKS)]
    return (*(f"{shape}%#z" for shape in plain), *plain, *_OTHERS)


def _microseconds(text: pl.Expr, shapes: Sequence[str], words: Iterable[str]) -> pl.Expr:
    """Microseconds in UTC by the first format that fits; a repeated hour counts as the earlier one.

    A place adds nothing to a time with an offset.
    """
    bare, never = _without_zones(text, words), pl.lit(None, pl.Datetime("us"))
    sure = pl.coalesce(never, *(_moment(bare, shape) for shape in shapes if _has_offset(shape)))
    local = pl.coalesce(never, *(_moment(bare, shape) for shape in shapes if not _has_offset(shape)))
    time = local.dt.timestamp("us")
    for place in (word for word in words if word.upper() not in _OFFSETS):
        there = local.dt.replace_time_zone(place, ambiguous="earliest", non_existent="null").dt.timestamp("us")
        time = pl.when(text.str.contains(_end(place))).then(there).otherwise(time)
    return pl.coalesce(sure.dt.timestamp("us"), time)


def _has_offset(shape: str) -> bool:
    return re.search(r"%:*#?z", shape) is not None


def _moment(text: pl.Expr, shape: str) -> pl.Expr:
    if not _has_offset(shape):
        return text.str.to_datetime(shape, time_unit="us", strict=False)
    zoned = text.str.to_datetime(shape, time_unit="us", strict=False, time_zone="UTC")
    return zoned.dt.replace_time_zone(None)


def _parsed(texts: pl.Series, shape: str) -> pl.Series:
    try:
        return texts.to_frame("text").select(_moment(pl.col("text"), shape)).to_series()
    except pl.exceptions.PolarsError:
        return pl.Series([None] * len(texts), dtype=pl.Datetime("us"))
