"""Parsing of options: durations, configurations, data and its split."""

from __future__ import annotations

import glob
import math
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from beamwood.cli.listed import parse_events, parse_names
from beamwood.cli.native_words import held_back
from beamwood.errors import InputError, nearest, nearest_path
from beamwood.steps import step, tell
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.cli.options import ReadOptions
    from beamwood.data import Dataset, Split
    from beamwood.fitting.method_config import MethodConfig
    from beamwood.methods import Method

__all__ = [
    "DataSource",
    "EACH_ALIKE",
    "load_data",
    "load_split",
    "make_config",
    "note_of_weights",
    "parse_duration",
    "parse_time_limit",
    "reading_options",
]

EACH_ALIKE = "from each event alike; the weights of --events count in methods that count"
"""What methods learn that do not read weights."""
# Fewer validation or test users leave much to chance.
_FEW_USERS = 30


@dataclass(frozen=True, slots=True)
class DataSource:
    """The source of the data, stored in an artefact so that `evaluate` can read it again."""

    log: str
    items: str | None = None
    user: str | None = None
    item: str | None = None
    time: str | None = None
    weight: str | None = None
    boundary: str | None = None
    items_column: str | None = None
    unlisted: str = "error"
    user_table: str | None = None
    context: tuple[str, ...] = ()
    min_weight: float | None = None
    keep_columns: tuple[str, ...] = ()
    missing: str = "error"
    drop_duplicates: bool = False
    time_format: str | None = None
    separator: str | None = None
    columns: tuple[str, ...] | None = None
    event: str | None = None
    events: dict[str, float] | None = None
    negative_events: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        log: str,
        reading: ReadOptions,
        *,
        user_table: str | None = None,
        context: tuple[str, ...] = (),
        keep_columns: str | None = None,
    ) -> Self:
        """The source given by the options. Errors: an option for the item table, without one."""
        _check_about_items(reading, keep_columns)
        return cls(
            log=log,
            items=reading.items,
            user=reading.user_column,
            item=reading.item_column,
            time=reading.time_column,
            weight=reading.weight_column,
            boundary=reading.boundary_column,
            items_column=reading.items_column,
            unlisted=reading.unlisted_items,
            user_table=user_table,
            context=context,
            min_weight=reading.min_weight,
            keep_columns=parse_names(keep_columns),
            missing=reading.missing,
            drop_duplicates=reading.drop_duplicates,
            time_format=reading.time_format,
            separator=reading.separator,
            columns=None if reading.columns is None else tuple(reading.columns.split(",")),
            event=reading.event_column,
            events=parse_events(reading.events),
            negative_events=parse_names(reading.negative_events),
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "log": str(Path(self.log).resolve()),
            "items": self.items and str(Path(self.items).resolve()),
            "user_table": self.user_table and str(Path(self.user_table).resolve()),
        }


def _check_about_items(reading: ReadOptions, keep_columns: str | None) -> None:
    """Errors: an option for the item table, without one."""
    about_items = {
        "--items-column": reading.items_column,
        "--unlisted-items keep": reading.unlisted_items == "keep",
        "--keep-columns": keep_columns,
    }
    for option, given in about_items.items():
        if given and reading.items is None:
            raise InputError(f"{option} is for the item table; give one with --items, or leave the option out")


def parse_duration(option: str, text: str) -> float:
    """Seconds of "500ms", "90s", "30m", "1h30m" or a plain number of seconds. Errors: another form."""
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?=\d)(?:{number}h)?(?:{number}m)?(?:{number}s)?(?:{number}ms)?|{number}", text.strip())
    parts = [float(part or 0) for part in match.groups()] if match else [math.inf]
    seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1, 0.001, 1), strict=False))
    if seconds == math.inf:
        raise InputError(f"{option} {text!r} is not a duration; write 30m, 90s or 500ms")
    return seconds


def parse_time_limit(text: str | None) -> float | None:
    """The seconds of a time limit; None stays None. Errors: another form, and 0."""
    seconds = None if text is None else parse_duration("--time-limit", text)
    if seconds == 0:
        raise InputError(f"--time-limit {text!r} is not above 0; write 30m, 90s or 1h30m")
    return seconds


def reading_options(source: DataSource) -> dict[str, Any]:
    """The options of `read_log` for a source, except `drop_duplicates`. Errors: an unknown word."""
    from beamwood.data import ColumnNames

    if source.unlisted not in ("error", "keep"):
        raise InputError(
            f"--unlisted-items {source.unlisted!r} is unknown{nearest(source.unlisted, ['error', 'keep'])}"
        )
    return {
        "columns": ColumnNames(
            user=source.user,
            item=source.item,
            time=source.time,
            weight=source.weight,
            boundary=source.boundary,
            context=tuple(source.context),
            event=source.event,
        ),
        "min_weight": source.min_weight,
        "missing": source.missing,
        "time_format": source.time_format,
        "separator": source.separator,
        "header": source.columns,
        "events": source.events,
        "negative_events": source.negative_events,
    }


def load_data(source: DataSource) -> Dataset:
    """Read the log and the item table, reporting on stderr. A missing table is an error before the log is read."""
    from beamwood.data import Dataset, read_log

    for table in (source.items, source.user_table):
        # A pattern of names is looked up where it is read.
        if table and not glob.has_magic(table) and not os.path.exists(table):
            raise InputError(f"{table} does not exist{nearest_path(Path(table))}")
    with held_back():
        log = read_log(source.log, drop_duplicates=source.drop_duplicates, **reading_options(source))
    for line in log.report.lines():
        tell(line)
    unlisted: Any = source.unlisted
    with step("sorting rows into histories"), held_back():
        dataset = Dataset.from_log(
            log,
            source.items,
            item_column=source.items_column,
            unlisted=unlisted,
            user_table=source.user_table,
            keep_columns=tuple(source.keep_columns),
        )
    tell(f"{counted(len(dataset.users), 'user')}, {counted(len(dataset.items), 'item')}")
    for line in dataset.report["notes"]:
        tell(line)
    for role in ("item", "user"):
        strange = dataset.report.get(f"{role}s_of_another_type")
        if strange:
            tell(f"left out for ids of another type than the log's: {counted(strange, role)} of the {role} table")
    return dataset


def note_of_weights(dataset: Dataset, methods: Sequence[Method]) -> None:
    """Print a line on methods that ignore event weights, where the data have them."""
    alike = [method.name for method in methods if not method.needs.weighs]
    if dataset.weights is not None and alike:
        names = [*dict.fromkeys(alike)]
        learn = "learns" if len(names) == 1 else "learn"
        tell(f"{', '.join(names)} {learn} {EACH_ALIKE}")


def load_split(dataset: Dataset, name: str, options: dict[str, Any]) -> Split:
    """The named split; its rule is printed on stderr."""
    from beamwood.data import SPLITS

    split = SPLITS[name](dataset, **options)
    tell(f"split: {split.rule}")
    for note in (_of_few_users(split), _of_seen_labels(split), _of_new_items(split)):
        if note is not None:
            tell(note)
    return split


def _of_few_users(split: Split) -> str | None:
    """A note where few users validate or test, and another split would have many more."""
    valid, test, lengths = len(split.valid), len(split.test), split.dataset.histories.lengths
    better = {
        "users": ("leave-one-out", int((lengths >= 3).sum())),
        "time": ("sessions", int((lengths >= 2).sum() // 10)),
    }
    other, others = better.get(split.name, ("", 0))
    if min(valid, test) >= _FEW_USERS or others < 2 * max(valid, test):
        return None
    choose, tests = counted(valid, "user chooses", "users choose"), counted(test, "tests", "test")
    return f"{choose} settings and {tests}, which is few: a fit with --split {other} has {others:,} of each"


def _of_seen_labels(split: Split) -> str | None:
    """A note where at least half of the labels were seen before."""
    seen, labels = split.test.labels_seen, len(split.test.labels.items)
    if 2 * seen < labels:
        return None
    read = split.dataset.report.get("log", {})
    repeats = read.get("duplicates", 0) and not read.get("dropped_duplicates")
    fix = "--drop-duplicates leaves out rows that repeat another" if repeats else "read the view with seen items kept"
    return (
        f"{seen:,} of {labels:,} test labels are items that their user had taken before; with seen items removed no "
        f"method can find them: {fix}"
    )


def _of_new_items(split: Split) -> str | None:
    """A note where at least half of the labels are items that training has no row of."""
    new, labels = split.test.labels_outside(split.train.histories), len(split.test.labels.items)
    if 2 * new < labels:
        return None
    return (
        f"{new:,} of {labels:,} test labels are items without a training row, and hardly any method finds those; "
        "`beamwood describe` counts them in every split, and `beamwood refit` learns from them before you serve"
    )


def make_config(
    method: Method, file: str | None, settings: Sequence[str], *, preset: str | None = None
) -> MethodConfig:
    """A method's settings: of a preset, of a TOML file (its tables are the groups), of `group.key=value` words.

    Later ones override earlier ones.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(Path(file).read_text("utf-8-sig"))
        except FileNotFoundError:
            raise InputError(f"--config {file} does not exist{nearest_path(Path(file))}") from None
        except RecursionError:
            raise InputError(f"--config {file} is not readable TOML: it is nested too deeply") from None
        except IsADirectoryError:
            raise InputError(f"--config {file} is a folder; name a TOML file") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"--config {file} is not readable TOML: {error}") from None
    said = set[str]()
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting!r} has no '='; write --set group.key=value")
        if key.strip() in said:
            raise InputError(f"--set {key.strip()} is given twice; give it once")
        said.add(key.strip())
        values[key.strip()] = parse_value(text.strip())
    return method.configured(values, preset)


def parse_value(text: str) -> Any:
    """A value as TOML reads it, null (which TOML lacks) as None, else the text itself: 3, true, [1, 2], category."""
    if text == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
