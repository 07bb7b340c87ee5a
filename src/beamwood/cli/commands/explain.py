"""`beamwood explain`: the reasons for a server's answer, from the model and the history as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.output import on_one_line, print_json
from beamwood.cli.stores import reading_store
from beamwood.errors import InputError
from beamwood.extras import asking_for
from beamwood.retrieval.new_items.extended import NOWHERE
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.serve.messages import Item

__all__ = ["explain"]

_Request = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The request_id of an answer from the last day.")]
_Store = Annotated[
    str, typer.Option("--store", metavar="ADDRESS", help="Address of the server's store, such as sqlite:PATH.")
]
_Folder = Annotated[o.Text, typer.Option("--folder", metavar="FOLDER", help="The model, if it has moved.")]
_Items = Annotated[o.Text, typer.Option("--items", metavar="FILE", help="The item table of the server.")]


def explain(
    request_id: _Request,
    *,
    store: _Store,
    folder: _Folder = None,
    items: _Items = None,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Explain an earlier answer of a server: path, parts of the score, and attention on the history."""
    with asking_for("beamwood explain"):
        import msgspec

        from beamwood.methods.reload import searchers_of
        from beamwood.serve.monitoring.replay import replayed
        from beamwood.serve.problems import Problem
    try:
        with reading_store(store, "beamwood explain") as opened:
            again = replayed(
                opened,
                request_id,
                folder=None if folder is None else Path(folder),
                items=Path(items) if items else None,
                searchers=None if method is None else partial(searchers_of, method),
            )
    except Problem as problem:
        raise InputError(problem.message) from None
    document = msgspec.to_builtins(again.answer) | {"reproduced": again.reproduced}
    if json:
        print_json(document)
        return
    as_it_was = "as it was answered" if again.reproduced else "NOT as it was answered: events or items changed since"
    answer = again.answer
    print(f"{answer.model}, {counted(answer.history_used, 'item')} of history, {as_it_was}")
    if answer.allowed is not None:
        print(f"the filter allowed {counted(answer.allowed, 'item')}")
    if not answer.items:
        print("no item was found")
    for item in answer.items:
        print(f"  {item.rank:>3}  {on_one_line(item.item)}  {_number(item.score)}{_source(item)}")
        for reason in _reasons(item.explain or {}):
            print(f"       {reason}")


def _source(item: Item) -> str:
    """Where an item comes from that the model alone did not put in its place."""
    source = "" if item.source == "model" else f", {item.source.replace('_', ' ')}"
    return source if item.promotion is None else f"{source} by {on_one_line(item.promotion)}"


def _number(score: float) -> str:
    return "without a score" if score <= NOWHERE else f"{score:z.4f}"


def _reasons(explain: Mapping[str, Any]) -> Iterator[str]:
    """A line for each kind of reason; see `serve.answer.explaining`."""
    if "parts" in explain:
        yield "parts: " + ", ".join(map(_part, explain["parts"]))
    if "path" in explain:
        yield "path: " + " > ".join(map(_step, explain["path"]))
    if "tree_parts" in explain:
        yield "tree: " + ", ".join(f"{name} {score:z.4f}" for name, score in explain["tree_parts"].items())
    for key, weight in (("attention", "weight"), ("history", "score")):
        if explain.get(key):
            yield f"{key}: " + ", ".join(f"{on_one_line(each['item'])} {each[weight]:z.4f}" for each in explain[key])


def _part(part: Mapping[str, Any]) -> str:
    if part["score"] is None:
        return f"{part['kind']} not found"
    return f"{part['kind']} {_number(part['score'])} (rank {part['rank']})"


def _step(step: Mapping[str, Any]) -> str:
    reached = "" if step["reached"] else ", not reached"
    return f"node {step['node']} (rank {step['rank']} of {step['of']}{reached})"
