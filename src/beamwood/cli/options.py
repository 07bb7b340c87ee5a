"""Options that several subcommands share, and groups of them (see `expand`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Optional

import typer

__all__ = [
    "Boundary",
    "Columns",
    "Count",
    "DropDuplicates",
    "EventColumn",
    "Events",
    "ItemColumn",
    "Items",
    "ItemsColumn",
    "Json",
    "KeepColumns",
    "LogPath",
    "MethodFile",
    "MinWeight",
    "Missing",
    "MovedItems",
    "MovedLog",
    "NegativeEvents",
    "Number",
    "Overwrite",
    "Page",
    "Preset",
    "ReadOptions",
    "Seed",
    "Separator",
    "SplitName",
    "Tail",
    "TailOf",
    "TensorBoard",
    "Text",
    "Texts",
    "TimeColumn",
    "TimeFormat",
    "TimeLimit",
    "Unlisted",
    "UserColumn",
    "UserTable",
    "WeightColumn",
    "beginning",
]


def beginning(*words: str) -> Callable[[str], list[str]]:
    """What a shell completes a value by: those of the words that begin as it does."""

    def found(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return found


# typer reads `Optional[...]` at run time.
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
Count = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045

LogPath = Annotated[
    str,
    typer.Argument(
        metavar="LOG", help="The log: Parquet, CSV, JSON lines, Arrow or RecBole .inter; a file, or a folder of parts."
    ),
]
Items = Annotated[
    Text, typer.Option("--items", metavar="FILE", help="A table of items; recommend filters by its column 'category'.")
]
MovedItems = Annotated[
    Text, typer.Option("--items", metavar="FILE", hidden=True, help="The table of items, if it has moved.")
]
MovedLog = Annotated[Text, typer.Option("--log", metavar="FILE", hidden=True, help="The log, if it has moved.")]
UserTable = Annotated[
    Text, typer.Option("--user-table", metavar="FILE", hidden=True, help="A table of users, for rankers that read it.")
]
SplitName = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="NAME",
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
UserColumn = Annotated[
    Text, typer.Option("--user-column", metavar="NAME", help="Column of users, if it has an unusual name.")
]
ItemColumn = Annotated[Text, typer.Option("--item-column", metavar="NAME", help="Column of items.")]
TimeColumn = Annotated[
    Text, typer.Option("--time-column", metavar="NAME", help="Column of times; none: the order of rows counts.")
]
TimeFormat = Annotated[
    Text,
    typer.Option("--time-format", metavar="TEXT", hidden=True, help="How times are written, as '%d.%m.%Y %H:%M'."),
]
Separator = Annotated[
    Text,
    typer.Option(
        "--separator", metavar="MARK", hidden=True, help="What is between a text file's columns: ';', '::', tab."
    ),
]
Columns = Annotated[
    Text,
    typer.Option(
        "--columns",
        metavar="NAME,NAME",
        hidden=True,
        help="A text file without a line of names: its columns, as user,item,-,time.",
    ),
]
EventColumn = Annotated[
    Text, typer.Option("--event-column", metavar="NAME", hidden=True, help="Column of kinds of events, for --events.")
]
Events = Annotated[
    Text, typer.Option("--events", metavar="KIND,KIND=X", help="Kinds of events that count, weighed as buy,view=0.3.")
]
NegativeEvents = Annotated[
    Text,
    typer.Option(
        "--negative-events",
        metavar="KIND,KIND",
        hidden=True,
        help="Kinds that mean no, as skip: in no history, kept for --without-rejected.",
    ),
]
WeightColumn = Annotated[
    Text, typer.Option("--weight-column", metavar="NAME", hidden=True, help="Column of weights, for --min-weight.")
]
MinWeight = Annotated[
    Number,
    typer.Option("--min-weight", metavar="X", help="Keep rows of at least this weight, such as ratings from 4."),
]
Boundary = Annotated[
    Text,
    typer.Option(
        "--boundary-column",
        metavar="NAME",
        hidden=True,
        help="Column that says 'history' or 'future' ('train' or 'test') of each row.",
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        "--missing",
        metavar="WORD",
        hidden=True,
        help="Rows without a user, an item or a time: error or drop.",
        autocompletion=beginning("error", "drop"),
    ),
]
DropDuplicates = Annotated[
    bool,
    typer.Option("--drop-duplicates", hidden=True, help="Leave out rows that repeat another one in all that is read."),
]
ItemsColumn = Annotated[
    Text, typer.Option("--items-column", metavar="NAME", hidden=True, help="Column of item ids in the item table.")
]
Unlisted = Annotated[
    str,
    typer.Option(
        "--unlisted-items",
        metavar="WORD",
        hidden=True,
        help="Items of the log that the item table lacks: error or keep.",
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
KeepColumns = Annotated[
    Text, typer.Option("--keep-columns", help="Item columns that recommend --where asks: price:number,brand.")
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
TensorBoard = Annotated[
    Text, typer.Option("--tensorboard", metavar="FOLDER", hidden=True, help="Also write the curves for TensorBoard.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier fit has written in the same place.")
]
Preset = Annotated[
    Text, typer.Option("--preset", metavar="NAME", help="Settings by one word, as paper: the paper's own form.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the log and the table of items are read."""

    items: Items = None
    user_column: UserColumn = None
    item_column: ItemColumn = None
    time_column: TimeColumn = None
    weight_column: WeightColumn = None
    min_weight: MinWeight = None
    boundary_column: Boundary = None
    items_column: ItemsColumn = None
    unlisted_items: Unlisted = "error"
    missing: Missing = "error"
    drop_duplicates: DropDuplicates = False
    time_format: TimeFormat = None
    separator: Separator = None
    columns: Columns = None
    event_column: EventColumn = None
    events: Events = None
    negative_events: NegativeEvents = None
