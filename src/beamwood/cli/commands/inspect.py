"""`beamwood inspect`: the contents of a saved folder, and diagnostics of its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from beamwood import load
from beamwood.cli import options as o
from beamwood.cli.diagnosis_data import DiagnosisData, diagnosis_data
from beamwood.cli.inspection import print_inspection
from beamwood.cli.output import check_page, finish
from beamwood.cli.stages import first_of
from beamwood.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from beamwood.retrieval.retriever import Retriever
    from beamwood.retrieval.searchers.tree import TreeSearcher

__all__ = ["inspect"]

_WIDTHS = "20,50,150,400"


def inspect(
    folder: o.FittedFolder,
    users: Annotated[
        int,
        typer.Option(
            "--users", min=0, metavar="N", help="Number of random validation users for diagnostics of a tree; 0: none."
        ),
    ] = 200,
    widths: Annotated[
        o.Text,
        typer.Option(
            "--widths", metavar="N,N", help=f"Beam widths to compare with exact search; {_WIDTHS} by default."
        ),
    ] = None,
    log: o.MovedLog = None,
    items: o.MovedItems = None,
    html: o.Page = None,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Check a folder's files, show what it holds, and diagnose its tree on validation users."""
    from beamwood.retrieval.searchers.tree import TreeSearcher

    if html is not None:
        check_page(html)
    beam_widths = parse_widths(_WIDTHS if widths is None else widths)
    retriever = load(folder, method, verify=True)
    document = description(folder, retriever)
    report = page = None
    # The first part of a blend may have a tree.
    searcher = first_of(retriever.searcher)
    if isinstance(searcher, TreeSearcher) and users > 0:
        from beamwood.theory.diagnostics import diagnose

        asked = diagnosis_data(folder, retriever, users, log, items)
        document["queries"] = asked.words
        report = diagnose(searcher, asked.histories, asked.labels, widths=beam_widths)
        document["diagnostics"] = report.as_dict()
        if html is not None:
            from beamwood.report.inspect import inspection_page

            document |= outlined(searcher, retriever, asked)
            page = html, inspection_page(document)
    else:
        options = {"--html": html, "--widths": widths, "--log": log, "--items": items}
        given = [option for option, value in options.items() if value is not None]
        if given:
            raise InputError(
                f"{given[0]} is for the diagnostics of a tree; {folder} has none, or --users is 0; leave it out"
            )
    finish(document, lambda: print_inspection(document, report), as_json=json, page=page)


def description(folder: str, retriever: Retriever) -> dict[str, Any]:
    """The artefact's own description."""
    from beamwood.retrieval.searchers.blend import sole_part
    from beamwood.retrieval.searchers.tree import TreeSearcher

    document: dict[str, Any] = {
        "folder": folder,
        "searcher": sole_part(retriever.searcher).kind,
        "items": len(retriever.items),
        "users": None if retriever.users is None else len(retriever.users),
        "item_id_type": str(retriever.items.dtype),
        "columns": [] if retriever.columns is None else [*retriever.columns.columns],
    } | retriever.metadata
    searcher = retriever.searcher
    if isinstance(searcher, TreeSearcher):
        document["tree"] = tree_shape(searcher) | {
            "beam_width": searcher.beam_width,
            "light_width": searcher.weights.light.width if searcher.weights.light is not None else 0,
            "terms": [*searcher.weights.terms],
            "scores": searcher.link.probability or "an order alone",
            "searched_by": searcher.searched_by,
        }
    return document


def outlined(searcher: TreeSearcher, retriever: Retriever, asked: DiagnosisData) -> dict[str, Any]:
    """The outline of a tree and its shape, for JSON; titles and counts are the log's, else ids and stored histories."""
    from beamwood.evaluation.examples import titles
    from beamwood.theory.margin import target_margins
    from beamwood.theory.outline import tree_outline

    labels = asked.labels.distinct()
    lost_on = target_margins(searcher, asked.histories, labels).lost_on
    stored, num_items = retriever.histories, searcher.num_items
    if asked.split is not None:
        names, counts_N = titles(asked.split.dataset), asked.split.train.item_counts
    else:
        names = retriever.items.ids.cast(str)
        counts_N = np.bincount(np.empty(0, int) if stored is None else stored.items, minlength=num_items)
    nodes = tree_outline(searcher.tree, names, counts_N, category_lists(retriever), labels.items, lost_on)
    return {"shape": tree_shape(searcher), "outline": [node.as_dict() for node in nodes]}


def category_lists(retriever: Retriever) -> pl.Series | None:
    """The categories of each item as lists of text, None where the fit had none."""
    from beamwood.retrieval.columns.item_columns import CATEGORY
    from beamwood.retrieval.columns.label_column import LabelColumn

    column = None if retriever.columns is None else retriever.columns.get(CATEGORY)
    return column.lists() if isinstance(column, LabelColumn) else None


def tree_shape(searcher: TreeSearcher) -> dict[str, int]:
    """The numbers of a tree."""
    shape = searcher.tree.shape
    return {
        "root_fanout": shape.root_fanout,
        "branching": shape.branching,
        "depth": shape.depth,
        "leaves": shape.capacity,
        "empty_leaves": shape.capacity - searcher.tree.num_items,
        "nodes": shape.num_nodes,
    }


def parse_widths(text: str) -> list[int]:
    """The beam widths of "20,50"."""
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        widths = [0]
    if min(widths) < 1:
        raise InputError(f"--widths {text!r} is not a list of numbers of 1 or more; write --widths 20,50")
    return widths
