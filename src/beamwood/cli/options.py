"""Options that several subcommands share, and groups of them (see `expand`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Optional

import typer

__all__ = [
    "Boundary",
    "ItemColumn",
    "Items",
    "ItemsColumn",
    "Json",
    "LogPath",
    "MethodFile",
    "MinWeight",
    "MovedItems",
    "Overwrite",
    "Page",
    "Preset",
    "ReadOptions",
    "Seed",
    "SplitName",
    "TimeColumn",
    "Tail",
    "TailOf",
    "TimeLimit",
    "Unlisted",
    "UserColumn",
    "UserTable",
    "WeightColumn",
]

# typer reads `Optional[...]` at run time.
Text = Optional[str]  # noqa: UP045

LogPath = Annotated[str, typer.Argument(help="The interaction log: Parquet, CSV, JSON lines, Arrow, RecBole .inter.")]
Items = Annotated[Text, typer.Option("--items", help="A table of items, with a 'category' column if there is one.")]
MovedItems = Annotated[Text, typer.Option("--items", help="The table of items, where it has moved since.")]
UserTable = Annotated[Text, typer.Option("--user-table", help="A table of users, for methods with columns of it.")]
SplitName = Annotated[str, typer.Option("--split", help="users, leave-one-out, time or boundary.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seeds the split, the tree and the training.")]
UserColumn = Annotated[Text, typer.Option("--user-column", help="Column of user ids.")]
ItemColumn = Annotated[Text, typer.Option("--item-column", help="Column of item ids.")]
TimeColumn = Annotated[Text, typer.Option("--time-column", help="Column of times.")]
WeightColumn = Annotated[Text, typer.Option("--weight-column", help="Column of weights, for --min-weight.")]
MinWeight = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--min-weight", help="Keep the rows of at least this weight, such as ratings from 4."),
]
Boundary = Annotated[
    Text,
    typer.Option("--boundary-column", help="Column that says 'history' or 'future' ('train' or 'test') of each row."),
]
ItemsColumn = Annotated[Text, typer.Option("--items-column", help="Column of item ids in the item table.")]
Unlisted = Annotated[
    str, typer.Option("--unlisted-items", help="error or keep: items of the log that the item table lacks.")
]
Tail = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--tail", min=0.001, max=0.999, help="Also on labels among this share of the rarest items."),
]
TailOf = Annotated[
    str,
    typer.Option(
        "--tail-of", help="What the tail is a share of: items, interactions, prefixes (items, as LPO4Rec counts)."
    ),
]
MethodFile = Annotated[
    Text, typer.Option("--method", help="The .py file of the method, of a folder that was fitted with one of its own.")
]
TimeLimit = Annotated[Text, typer.Option("--time-limit", help="End training after so long, as 30m, 90s or 1h30m.")]
Page = Annotated[Text, typer.Option("--html", help="Also write what was found as a page here.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the artefact that the output folder holds, and its run.")
]
Preset = Annotated[
    Text, typer.Option("--preset", help="Settings of the method's own, such as paper; `beamwood settings` lists them.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


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
