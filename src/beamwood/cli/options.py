"""Options that several subcommands share, and groups of them (see `expand`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    "NewItemShare",
    "NumItems",
    "Number",
    "Overwrite",
    "Page",
    "Preset",
    "ReadOptions",
    "RefitUnlistedItems",
    "Seed",
    "SplitName",
    "StoredItemShare",
    "Tail",
    "TailOf",
    "Text",
    "Texts",
    "TimeLimit",
    "UnlistedItems",
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

FittedFolder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The folder of a fitted model (see `beamwood fit`).")
]
NumItems = Annotated[Count, typer.Option("-k", "--k", metavar="N", help="Number of items; 10 by default.")]
LogPath = Annotated[
    str,
    typer.Argument(
        metavar="LOG", help="The log, a file or a folder: Parquet, CSV, JSON lines, Arrow or RecBole .inter."
    ),
]
MovedItems = Annotated[
    Text, typer.Option("--items", metavar="FILE", hidden=True, help="The item table, if it has moved.")
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
        help="Split of the log: users, leave-one-out, time, sessions or boundary.",
        autocompletion=beginning("users", "leave-one-out", "time", "sessions", "boundary"),
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**63 - 1, metavar="N", hidden=True, help="Seed of split, tree and training."),
]
Tail = Annotated[
    Number,
    typer.Option(
        "--tail",
        min=0.001,
        max=0.999,
        metavar="SHARE",
        help="Also evaluate on this share of the rarest items, such as 0.2.",
    ),
]
TailOf = Annotated[
    Text,
    typer.Option(
        "--tail-of",
        metavar="WORD",
        hidden=True,
        help="Unit of --tail: items, interactions, or prefixes (items, as LPO4Rec counts).",
    ),
]
MethodFile = Annotated[
    Text,
    typer.Option(
        "--method",
        metavar="FILE",
        hidden=True,
        help="The .py file of the custom method that FOLDER was fitted with.",
    ),
]
_time_limit = partial(typer.Option, "--time-limit", metavar="TIME")
TimeLimit = Annotated[Text, _time_limit(help="Stop training or search after: 90s, 30m, 1h.")]
EachTimeLimit = Annotated[Text, _time_limit(help="Stop each method, and the weights of each sum, after: 90s, 30m, 1h.")]
Page = Annotated[Text, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite the output of an earlier fit.")]
Preset = Annotated[
    Text, typer.Option("--preset", metavar="NAME", help="Named settings, such as paper: as in the paper.")
]
_unlisted_items = partial(typer.Option, "--unlisted-items", metavar="WORD", hidden=True)
_of_unlisted = "Items of the log that are missing in the item table: error or keep"
UnlistedItems = Annotated[str, _unlisted_items(help=f"{_of_unlisted}.")]
RefitUnlistedItems = Annotated[Text, _unlisted_items(help=f"{_of_unlisted}. Default: as in the fit.")]
_new_item_share = partial(
    typer.Option,
    "--new-item-share",
    metavar="SHARE",
    min=0,
    max=1,
    help="Maximum share of positions for items added after training; default: 0.1.",
)
NewItemShare = Annotated[Number, _new_item_share()]
StoredItemShare = Annotated[Number, _new_item_share(hidden=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the log and the item table are read."""

    items: Annotated[
        Text,
        typer.Option(
            "--items", metavar="FILE", help="The item table; `recommend` can filter by its column 'category'."
        ),
    ] = None
    user_column: Annotated[
        Text, typer.Option("--user-column", metavar="NAME", help="Column of user ids, if its name is not recognised.")
    ] = None
    item_column: Annotated[Text, typer.Option("--item-column", metavar="NAME", help="Column of item ids.")] = None
    time_column: Annotated[
        Text, typer.Option("--time-column", metavar="NAME", help="Column of times; none: use the order of the rows.")
    ] = None
    weight_column: Annotated[
        Text, typer.Option("--weight-column", metavar="NAME", hidden=True, help="Column of weights, for --min-weight.")
    ] = None
    min_weight: Annotated[
        Number,
        typer.Option(
            "--min-weight", metavar="X", help="Keep rows of at least this weight, such as ratings of 4 or more."
        ),
    ] = None
    boundary_column: Annotated[
        Text,
        typer.Option(
            "--boundary-column",
            metavar="NAME",
            hidden=True,
            help="Column with 'history' or 'future' ('train' or 'test') for each row.",
        ),
    ] = None
    items_column: Annotated[
        Text, typer.Option("--items-column", metavar="NAME", hidden=True, help="Column of item ids in the item table.")
    ] = None
    unlisted_items: UnlistedItems = "error"
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
        typer.Option("--drop-duplicates", hidden=True, help="Drop rows that are equal in all columns read."),
    ] = False
    time_format: Annotated[
        Text,
        typer.Option("--time-format", metavar="TEXT", hidden=True, help="Format of times, such as '%d.%m.%Y %H:%M'."),
    ] = None
    separator: Annotated[
        Text,
        typer.Option(
            "--separator", metavar="MARK", hidden=True, help="Column separator of a text file: ';', '::', tab."
        ),
    ] = None
    columns: Annotated[
        Text,
        typer.Option(
            "--columns",
            metavar="NAME,NAME",
            hidden=True,
            help="Columns of a text file without a header, such as user,item,-,time.",
        ),
    ] = None
    event_column: Annotated[
        Text,
        typer.Option("--event-column", metavar="NAME", hidden=True, help="Column of event types, for --events."),
    ] = None
    events: Annotated[
        Text,
        typer.Option(
            "--events",
            metavar="KIND,KIND=X",
            help='Event types that count, with weights: buy,view=0.3; or as JSON: {"a,b": 1}.',
        ),
    ] = None
    negative_events: Annotated[
        Text,
        typer.Option(
            "--negative-events",
            metavar="KIND,KIND",
            hidden=True,
            help="Negative event types, such as skip: excluded from histories, used by --without-rejected.",
        ),
    ] = None
