"""The data of a command: where they are, how they are read, and reading them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from beamwood.cli.listed import parse_events, parse_names
from beamwood.cli.native_words import held_back
from beamwood.errors import InputError, check_utf8, nearest, nearest_path
from beamwood.steps import step, tell
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.cli.options import ReadOptions
    from beamwood.data import Dataset
    from beamwood.methods import Method

__all__ = [
    "DataSource",
    "EACH_ALIKE",
    "load_data",
    "note_of_weights",
    "reading_options",
]

EACH_ALIKE = "from each event alike; the weights of --events count in methods that count"
"""What methods learn that do not read weights."""


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

    def __post_init__(self) -> None:
        for path in (self.log, self.items, self.user_table):
            if path is not None:
                check_utf8(os.path.realpath(path))

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
        """The source given by the options. Errors: an option for a missing item table; a path not in UTF-8."""
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
