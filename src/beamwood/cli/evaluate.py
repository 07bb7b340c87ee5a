"""`beamwood evaluate`: the test metrics of a saved retriever."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import print_json, split_of
from beamwood.cli.measure import as_document, measure, parse_cuts, print_table

__all__ = ["evaluate"]


def evaluate(
    folder: Annotated[str, typer.Argument(help="A folder that `beamwood fit` saved.")],
    log: Annotated[Optional[str], typer.Option("--log", help="The log, where it has moved since.")] = None,  # noqa: UP045
    items: o.Items = None,
    k: Annotated[str, typer.Option("--k", help="Cuts, as 20,40.")] = "20,40",
    json: o.Json = False,
) -> None:
    """Measure on the test part of the log that the retriever was fitted on, which training never saw."""
    from beamwood.retrieval.retriever import Retriever

    retriever = Retriever.load(folder)
    cuts = parse_cuts(k, len(retriever.items))
    split = split_of(folder, retriever.metadata, log, items)
    views = measure(retriever.searcher, split, cuts)
    if json:
        document = {
            "folder": folder,
            "method": retriever.metadata["method"],
            "split": split.rule,
            "views": as_document(views),
        }
        print_json(document)
    else:
        print_table({retriever.metadata["method"]: views}, cuts)
