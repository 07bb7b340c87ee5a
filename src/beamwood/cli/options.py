"""Options that several subcommands share, and groups of them (see `expand`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Optional

import typer

from beamwood.errors import InputError, nearest

__all__ = [
    "Count",
    "FittedFolder",
    "Json",
    "LogPath",
    "MethodFile",
    "MovedItems",
    "MovedLog",
    "NumItems",
    "Number",
    "Overwrite",
    "Page",
    "Preset",
    "ReadOptions",
    "Seed",
    "SplitName",
    "Tail",
    "TailOf",
    "Text",
    "Texts",
    "TimeLimit",
    "beginning",
]


def beginning(*words: str) -> Callable[[str], list[str]]:
    """Shell completion of a value: the words with the typed prefix."""

    def found(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return found


# typer evaluates `Optional[...]` at run time.
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
Count = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045

FittedFolder = Annotated[str, typer.Argument(metavar="FOLDER", help="What `beamwood fit` saved.")]
NumItems = Annotated[Count, typer.Option("-k", "--k", metavar="N", help="How many items; 10 unless given.")]
LogPath = Annotated[
    str,
    typer.Argument(
        metavar="LOG", help="The log: Parquet, CSV, JSON lines, Arrow or RecBole .inter; a file, or a folder of parts."
    ),
]
MovedItems = Annotated[
    Text, typer.Option("--items", metavar="FILE", hidden=True, help="The table of items, if it has moved.")
]
MovedLog = Annotated[Text, typer.Option("--log", metavar="FILE", hidden=True, help="The log, if it has moved.")]


def _known_split(name: str) -> str:
    """The name. Errors: an unknown split, checked before a log is read."""
    from beamwood.data import SPLITS

    if name not in SPLITS:
        raise InputError(f"--split '{name}' is unknown{nearest(name, SPLITS)}")
    return name


SplitName = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="NAME",
        callback=_known_split,
        help="What tests: users, leave-one-out, time or boundary.",
        autocompletion=beginning("users", "leave-one-out", "time", "boundary"),
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", min=0, max=2**63 - 1, metavar="N", hidden=True, help="Seeds the split, the tree and the training."
    ),
]
Tail = Annotated[
    Number,
    typer.Option(
        "--tail", min=0.001, max=0.999, metavar="SHARE", help="Also judge by this share of the rarest items, as 0.2."
    ),
]
TailOf = Annotated[
    Text,
    typer.Option(
        "--tail-of",
        metavar="WORD",
        hidden=True,
        help="What the tail is a share of: items, interactions, or prefixes (items, as LPO4Rec counts).",
    ),
]
MethodFile = Annotated[
    Text,
    typer.Option(
        "--method",
        metavar="FILE",
        hidden=True,
        help="The .py file of a method of your own that FOLDER was fitted with.",
    ),
]
TimeLimit = Annotated[
    Text,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="End the training or the search after: 90s, 30m, 1h.",
    ),
]
Page = Annotated[Text, typer.Option("--html", metavar="FILE", help="Also write a page for the browser.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier fit has written in the same place.")
]
Preset = Annotated[
    Text, typer.Option("--preset", metavar="NAME", help="Settings by one word, as paper: the paper's own form.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the log and the item table are read."""

    items: Annotated[
        Text,
        typer.Option("--items", metavar="FILE", help="A table of items; recommend filters by its column 'category'."),
    ] = None
    user_column: Annotated[
        Text, typer.Option("--user-column", metavar="NAME", help="Column of users, if it has an unusual name.")
    ] = None
    item_column: Annotated[Text, typer.Option("--item-column", metavar="NAME", help="Column of items.")] = None
    time_column: Annotated[
        Text, typer.Option("--time-column", metavar="NAME", help="Column of times; none: the order of rows counts.")
    ] = None
    weight_column: Annotated[
        Text, typer.Option("--weight-column", metavar="NAME", hidden=True, help="Column of weights, for --min-weight.")
    ] = None
    min_weight: Annotated[
        Number,
        typer.Option("--min-weight", metavar="X", help="Keep rows of at least this weight, such as ratings from 4."),
    ] = None
    boundary_column: Annotated[
        Text,
        typer.Option(
            "--boundary-column",
            metavar="NAME",
            hidden=True,
            help="Column that says 'history' or 'future' ('train' or 'test') of each row.",
        ),
    ] = None
    items_column: Annotated[
        Text, typer.Option("--items-column", metavar="NAME", hidden=True, help="Column of item ids in the item table.")
    ] = None
    unlisted_items: Annotated[
        str,
        typer.Option(
            "--unlisted-items",
            metavar="WORD",
            hidden=True,
            help="Items of the log that the item table lacks: error or keep.",
        ),
    ] = "error"
    missing: Annotated[
        str,
        typer.Option(
            "--missing",
            metavar="WORD",
            hidden=True,
            help="Rows without a user, an item or a time: error or drop.",
            autocompletion=beginning("error", "drop"),
        ),
    ] = "error"
    drop_duplicates: Annotated[
        bool,
        typer.Option(
            "--drop-duplicates", hidden=True, help="Leave out rows that repeat another one in all that is read."
        ),
    ] = False
    time_format: Annotated[
        Text,
        typer.Option("--time-format", metavar="TEXT", hidden=True, help="How times are written, as '%d.%m.%Y %H:%M'."),
    ] = None
    separator: Annotated[
        Text,
        typer.Option(
            "--separator", metavar="MARK", hidden=True, help="What is between a text file's columns: ';', '::', tab."
        ),
    ] = None
    columns: Annotated[
        Text,
        typer.Option(
            "--columns",
            metavar="NAME,NAME",
            hidden=True,
            help="A text file without a line of names: its columns, as user,item,-,time.",
        ),
    ] = None
    event_column: Annotated[
        Text,
        typer.Option("--event-column", metavar="NAME", hidden=True, help="Column of kinds of events, for --events."),
    ] = None
    events: Annotated[
        Text,
        typer.Option("--events", metavar="KIND,KIND=X", help="Kinds of events that count, weighed as buy,view=0.3."),
    ] = None
    negative_events: Annotated[
        Text,
        typer.Option(
            "--negative-events",
            metavar="KIND,KIND",
            hidden=True,
            help="Kinds that mean no, as skip: in no history, kept for --without-rejected.",
        ),
    ] = None
