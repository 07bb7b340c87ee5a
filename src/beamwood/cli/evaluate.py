"""`beamwood evaluate`: the test metrics of a saved retriever."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import print_json, split_of
from beamwood.cli.measure import as_document, measure, measure_tail, parse_cuts, print_table
from beamwood.errors import InputError, nearest

__all__ = ["evaluate"]


def evaluate(
    folder: Annotated[str, typer.Argument(help="A folder that `beamwood fit` saved.")],
    log: Annotated[Optional[str], typer.Option("--log", help="The log, where it has moved since.")] = None,  # noqa: UP045
    items: o.Items = None,
    k: Annotated[str, typer.Option("--k", help="Cuts, as 20,40.")] = "20,40",
    tail: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--tail", min=0.001, max=0.999, help="Also on labels among this share of the rarest items."),
    ] = None,
    tail_of: Annotated[
        str, typer.Option("--tail-of", help="What --tail is a share of: items or interactions.")
    ] = "items",
    json: o.Json = False,
) -> None:
    """Measure on the test part of the log that the retriever was fitted on, which training never saw."""
    from beamwood.evaluation.metrics import TailRule
    from beamwood.retrieval.retriever import Retriever

    if tail_of not in ("items", "interactions"):
        raise InputError(f"--tail-of {tail_of!r} is unknown{nearest(tail_of, ['items', 'interactions'])}")
    rule = TailRule(of=tail_of, share=0.2 if tail is None else tail)
    retriever = Retriever.load(folder)
    cuts = parse_cuts(k, len(retriever.items))
    split = split_of(folder, retriever.metadata, log, items)
    views = measure(retriever.searcher, split, cuts, rule)
    rare = None
    if tail is not None:
        rare = measure_tail(retriever.searcher, split, cuts, rule)
    if json:
        document = {
            "folder": folder,
            "method": retriever.metadata["method"],
            "split": split.rule,
            "views": as_document(views),
        }
        if rare is not None:
            document["tail"] = {"rule": rare[0], "queries": rare[1], "views": as_document(rare[2])}
        print_json(document)
        return
    print_table({retriever.metadata["method"]: views}, cuts)
    for view, result in views.items():
        shown = ", ".join(f"{name} {value:.4f}" for name, value in result.overall.items())
        print(f"{view}: {shown} ({result.tail_rule})")
    if rare is not None:
        print(f"\non the {rare[1]} test users with a tail label; {rare[0]}")
        print_table({retriever.metadata["method"]: rare[2]}, cuts)
