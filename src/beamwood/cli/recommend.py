"""`beamwood recommend`: items for users or histories, from a saved retriever."""

from __future__ import annotations

import json as documents
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamwood import load
from beamwood.cli import options as o
from beamwood.cli.inputs import print_json
from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.retrieval.request import Allowed
    from beamwood.retrieval.retriever import Retriever

__all__ = ["recommend"]

_HISTORY_HELP = 'What somebody took, oldest first: 5,9,2; ids with commas as JSON: ["a,b", "c"].'
_User = Annotated[o.Texts, typer.Option("--user", metavar="ID", help="A user of the log; may be given again.")]
_UsersFile = Annotated[o.Text, typer.Option("--users-file", metavar="FILE", help="User ids, one a line.")]
_History = Annotated[o.Texts, typer.Option("--history", metavar="IDS", help=_HISTORY_HELP)]
_Count = Annotated[o.Count, typer.Option("-k", "--k", metavar="N", help="How many items; 10 unless given.")]
_Category = Annotated[
    o.Texts, typer.Option("--category", metavar="NAME", help="Only items of this category; may be given again.")
]
_AllowedItems = Annotated[
    o.Text, typer.Option("--allowed-items", metavar="FILE", help="Only these items, an id a line.")
]
_IncludeSeen = Annotated[bool, typer.Option("--include-seen", help="Keep seen items among the answers.")]
_Context = Annotated[
    o.Texts,
    typer.Option("--context", metavar="NAME=VALUE", hidden=True, help="A column of the context that the model reads."),
]
_OnUnknown = Annotated[str, typer.Option("--on-unknown", metavar="WORD", help="Ids that are unknown: error or ignore.")]


def recommend(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="What `beamwood fit` saved.")],
    user: _User = None,
    users_file: _UsersFile = None,
    history: _History = None,
    k: _Count = None,
    category: _Category = None,
    allowed_items: _AllowedItems = None,
    include_seen: _IncludeSeen = False,
    context: _Context = None,
    on_unknown: _OnUnknown = "error",
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Recommend items to users of the log, or to given histories. Filters act inside the search."""
    from beamwood.retrieval.request import Request

    retriever = load(folder, method)
    names = [*(user or []), *(read_lines(users_file) if users_file else [])]
    if users_file and not names:
        raise InputError(f"--users-file {users_file} holds no ids; write one a line")
    if bool(names) == bool(history):
        raise InputError("give either --user (or --users-file) or --history")
    allowed = allowed_of(retriever, category, allowed_items, on_unknown)
    labels = history or names
    if names and retriever.users is None:
        raise InputError(f"{folder} keeps no users; give --history")
    request = Request(
        histories=[retriever.items.parse_all(parse_history(row), on_unknown=on_unknown) for row in history]
        if history
        else None,
        k=min(10, len(retriever.items)) if k is None else k,
        users=retriever.users.parse_all(names, on_unknown=on_unknown) if names and retriever.users else None,
        allowed=allowed,
        context=context_of(context, retriever.searcher.needs.names, len(labels)),
        seen="keep" if include_seen else "remove",
        on_unknown=on_unknown,
    )
    try:
        found = retriever.answer(request)
    except InputError as error:
        raise InputError(str(error).replace("on_unknown='ignore'", "--on-unknown ignore")) from error
    if json:
        rows = zip(labels, found.item_ids, found.scores, strict=True)
        print_json([{"query": label, "items": items, "scores": scores} for label, items, scores in rows])
        return
    for label, items, scores in zip(labels, found.item_ids, found.scores, strict=True):
        print(label)
        for rank, (item, score) in enumerate(zip(items, scores, strict=True), start=1):
            print(f"  {rank:>3}  {item}  {score:.4f}")


def allowed_of(
    retriever: Retriever, category: list[str] | None, allowed_items: str | None, on_unknown: str
) -> Allowed | None:
    """The filter of --category or --allowed-items."""
    if category and allowed_items:
        raise InputError("give either --category or --allowed-items")
    if category:
        return {"category": category}
    return retriever.items.parse_all(read_lines(allowed_items), on_unknown=on_unknown) if allowed_items else None


def context_of(texts: list[str] | None, known: Sequence[str], num_rows: int) -> dict[str, list[str]] | None:
    """The context of --context, the same for every row."""
    if not texts:
        return None
    pairs = [parse_pair(text, known) for text in texts]
    twice = [name for name in {name for name, _ in pairs} if sum(name == other for other, _ in pairs) > 1]
    if twice:
        raise InputError(f"--context gives '{twice[0]}' more than once; give one value for each column")
    return {name: [value] * num_rows for name, value in pairs}


def parse_history(text: str) -> list[str]:
    """The ids of "5,9,2", or of a JSON list."""
    try:
        listed = documents.loads(text)
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list) and all(isinstance(item, str | int) for item in listed):
        return [str(item) for item in listed]
    return [item for item in text.split(",") if item.strip()]


def parse_pair(text: str, known: Sequence[str]) -> tuple[str, str]:
    """Name and value of "name=value", where a known name may hold "=" and blanks itself."""
    for name in sorted(known, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text.removeprefix(f"{name}=").strip()
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--context {text!r} has no '='; write --context column=value")
    return name.strip(), value.strip()


def read_lines(path: str) -> list[str]:
    """The lines of a text file that are not blank."""
    try:
        return [line for line in Path(path).read_text("utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
