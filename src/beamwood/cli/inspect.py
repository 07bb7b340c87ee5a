"""`beamwood inspect`: what a saved folder holds, and what its tree does well and badly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import note, print_json, split_of
from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever
    from beamwood.theory.diagnostics import TreeReport
    from beamwood.types import ItemLists

__all__ = ["inspect"]


def inspect(
    folder: Annotated[str, typer.Argument(help="A folder that `beamwood fit` saved.")],
    users: Annotated[
        int, typer.Option("--users", min=0, help="Queries to diagnose a tree on; 0: only describe.")
    ] = 200,
    widths: Annotated[
        str, typer.Option("--widths", help="Beam widths to compare with exact search.")
    ] = "20,50,150,400",
    log: Annotated[Optional[str], typer.Option("--log", help="The log, where it has moved since.")] = None,  # noqa: UP045
    items: o.Items = None,
    html: Annotated[Optional[str], typer.Option("--html", help="Write the diagnostics as a page here.")] = None,  # noqa: UP045
    json: o.Json = False,
) -> None:
    """Verify a folder's hashes, show what it holds, and diagnose its tree on validation users."""
    from beamwood.retrieval.retriever import Retriever
    from beamwood.retrieval.tree import TreeSearcher

    retriever = Retriever.load(folder)
    document = description(folder, retriever)
    report = None
    # Of two stages the first may have a tree.
    searcher = getattr(retriever.searcher, "retriever", retriever.searcher)
    if isinstance(searcher, TreeSearcher) and users > 0:
        from beamwood.theory.diagnostics import diagnose

        histories, labels, words = queries(folder, retriever, users, log, items)
        document["queries"] = words
        report = diagnose(searcher, histories, labels, widths=parse_widths(widths))
        document["diagnostics"] = report.as_dict()
    elif html is not None:
        raise InputError(f"--html writes the diagnostics of a tree; {folder} has none, or --users is 0")
    if html is not None and report is not None:
        Path(html).parent.mkdir(parents=True, exist_ok=True)
        Path(html).write_text(diagnostics_page(folder, report, document["queries"]))
        note(f"the diagnostics are in {html}")
    if json:
        print_json(document)
        return
    show(document, report)


def description(folder: str, retriever: Retriever) -> dict[str, Any]:
    """What the artefact says of itself."""
    document: dict[str, Any] = {
        "folder": folder,
        "searcher": retriever.searcher.kind,
        "items": len(retriever.items),
        "users": None if retriever.users is None else len(retriever.users),
        "item_id_type": str(retriever.items.ids.dtype),
        "categories": retriever.categories is not None,
    } | retriever.metadata
    tree = getattr(retriever.searcher, "tree", None)
    if tree is not None:
        shape = tree.shape
        document["tree"] = {
            "root_fanout": shape.root_fanout,
            "branching": shape.branching,
            "depth": shape.depth,
            "leaves": shape.capacity,
            "empty_leaves": shape.capacity - tree.num_items,
            "nodes": shape.num_nodes,
            "beam_width": retriever.searcher.beam_width,  # type: ignore[attr-defined]
        }
    return document


def queries(
    folder: str, retriever: Retriever, users: int, log: str | None, items: str | None
) -> tuple[ItemLists, ItemLists, str]:
    """Histories, labels and where they come from: validation users of the log, else halves of stored histories."""
    import numpy as np

    source = retriever.metadata.get("source") or {}
    if log is not None or Path(str(source.get("log", ""))).exists():
        split = split_of(folder, retriever.metadata, log, items)
        rows = np.flatnonzero(split.valid.labels.lengths > 0)[:users]
        if len(rows) == 0:
            raise InputError(f"the split of {folder} has no validation user to diagnose on; use --users 0")
        return split.valid.histories.take(rows), split.valid.labels.take(rows), f"{len(rows)} validation users"
    stored = retriever.histories
    usable = np.flatnonzero(stored.lengths >= 2)[-users:] if stored is not None else np.empty(0, int)
    if stored is None or len(usable) == 0:
        raise InputError(f"{folder} keeps no histories and its log is gone; give --log, or --users 0")
    note("the log is not where it was: halves of stored histories are used, which training may have seen")
    middle = (stored.indptr[usable] + stored.indptr[usable + 1]) // 2
    histories = stored.slices(stored.indptr[usable], middle)
    labels: ItemLists = stored.slices(middle, stored.indptr[usable + 1]).distinct()
    return histories, labels, f"{len(usable)} stored histories cut in half, which training may have seen"


def parse_widths(text: str) -> list[int]:
    """The beam widths of "20,50"."""
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        widths = [0]
    if min(widths) < 1:
        raise InputError(f"--widths {text!r} is no list of numbers of 1 or more; write --widths 20,50")
    return widths


def level_rows(report: TreeReport) -> tuple[list[str], list[list[str]]]:
    """The table of levels."""
    head = ["level", "nodes", "recall", "lost here", "heap violations", "order violations", "calibration error"]
    head += ["KL tree sampling", "KL uniform"]
    rows = []
    for level in report.levels:
        facts = [
            level.heap_violations,
            level.order_violations,
            level.calibration_error,
            level.kl_tree,
            level.kl_uniform,
        ]
        numbers = ["" if value is None else f"{value:.4f}" for value in facts]
        rows.append([str(level.level), f"{level.nodes:,}", f"{level.recall:.4f}", f"{level.lost:.4f}", *numbers])
    return head, rows


def beam_rows(report: TreeReport) -> tuple[list[str], list[list[str]]]:
    """The table of beam widths, brute force last."""
    head = ["beam width", "scored nodes", f"of the exact top {report.k}", "score missed", f"recall@{report.k}"]
    rows = [
        [
            str(beam.beam_width),
            f"{beam.scored_nodes:,.0f}",
            f"{beam.overlap:.4f}",
            f"{beam.regret:.4f}",
            f"{beam.recall:.4f}",
        ]
        for beam in (*report.beams, report.exact)
    ]
    rows[-1][0] = "all items"
    return head, rows


def margin_rows(report: TreeReport) -> tuple[list[str], list[list[str]]]:
    """The table of the labels' margins."""
    words = {"found": "found"} | {name: f"{name[1:]} %" for name in report.margin if name != "found"}
    return [words[name] for name in report.margin], [[f"{value:.4f}" for value in report.margin.values()]]


def show(document: dict[str, Any], report: TreeReport | None) -> None:
    """The document for people."""
    from rich.console import Console
    from rich.table import Table

    for name, value in document.items():
        if name == "diagnostics":
            continue
        if isinstance(value, dict):
            print(f"{name}:")
            for key, inner in value.items():
                print(f"  {key}: {inner}")
        else:
            print(f"{name}: {value}")
    if report is None:
        return
    console = Console(width=140)
    tables = {
        "levels": level_rows(report),
        "margin of the labels in the beam (a label is lost below 0)": margin_rows(report),
        "beam against exact search": beam_rows(report),
    }
    for title, (head, rows) in tables.items():
        table = Table(title=title, title_justify="left")
        for name in head:
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def diagnostics_page(folder: str, report: TreeReport, words: str) -> str:
    """The tables and their plots as one page."""
    from beamwood.evaluation.page import line_chart, page, table

    parts = [table(f"Levels, {words}", *level_rows(report)), table("Beam against exact search", *beam_rows(report))]
    parts.insert(1, table("Margin of the labels in the beam (a label is lost below 0)", *margin_rows(report)))
    series = {
        "recall of the labels by level": [(float(level.level), level.recall) for level in report.levels],
        "heap violations by level": [
            (float(level.level), level.heap_violations) for level in report.levels if level.heap_violations is not None
        ],
        "KL of tree sampling from the softmax, by level": [
            (float(level.level), level.kl_tree) for level in report.levels if level.kl_tree is not None
        ],
    }
    parts += [line_chart(name, points, across="level") for name, points in series.items() if len(points) > 1]
    overlap = [(float(beam.beam_width), beam.overlap) for beam in report.beams]
    if len(overlap) > 1:
        parts.append(line_chart(f"share of the exact top {report.k} found", overlap, across="beam width"))
    last = next((level for level in reversed(report.levels) if level.calibration), None)
    if last is not None and last.calibration:
        head = ["predicted between", "nodes", "predicted, mean", "observed, mean"]
        bins = last.calibration
        rows = [[f"{b.low:g} and {b.high:g}", str(b.nodes), f"{b.predicted:.5f}", f"{b.observed:.5f}"] for b in bins]
        parts.append(table(f"Calibration of level {last.level}", head, rows))
    return page(f"The tree in {folder}", parts)
