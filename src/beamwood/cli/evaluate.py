"""`beamwood evaluate`: the test metrics of a saved retriever."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import Source, load_data, load_split, print_json
from beamwood.cli.measure import as_document, measure, parse_cuts, print_table
from beamwood.errors import InputError

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
    metadata = retriever.metadata
    if not metadata.get("source"):
        raise InputError(f"{folder} does not say which log it was fitted on; it was not made by `beamwood fit LOG`")
    stored: dict[str, Any] = dict(metadata["source"])
    stored |= {name: value for name, value in (("log", log), ("items", items)) if value is not None}
    dataset = load_data(Source(**stored))
    fingerprint = dataset.fingerprint()
    if fingerprint != metadata["data"]["fingerprint"]:
        raise InputError(
            f"{stored['log']} is not the log that {folder} was fitted on (its content has changed), so its test users "
            "may have been trained on; fit again or give the old log with --log"
        )
    split = load_split(dataset, metadata["split"]["name"], metadata["split"]["options"])
    views = measure(retriever.searcher, split, cuts)
    if json:
        document = {"folder": folder, "method": metadata["method"], "split": split.rule, "views": as_document(views)}
        print_json(document)
    else:
        print_table({metadata["method"]: views}, cuts)
