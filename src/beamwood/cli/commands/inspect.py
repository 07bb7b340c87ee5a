"""`beamwood inspect`: the contents of a saved folder, and diagnostics of its tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from beamwood import load
from beamwood.cli import options as o
from beamwood.cli.output import check_page, finish
from beamwood.cli.stages import first_of, percent_of
from beamwood.errors import InputError
from beamwood.steps import tell
from beamwood.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from beamwood.data import Split
    from beamwood.retrieval.retriever import Retriever
    from beamwood.retrieval.searchers.tree import TreeSearcher
    from beamwood.theory.diagnostics import TreeReport
    from beamwood.types import ItemLists

__all__ = ["inspect"]


def inspect(
    folder: o.FittedFolder,
    users: Annotated[
        int,
        typer.Option(
            "--users", min=0, metavar="N", help="Number of random validation users for diagnostics of a tree; 0: none."
        ),
    ] = 200,
    widths: Annotated[
        str, typer.Option("--widths", metavar="N,N", help="Beam widths to compare with exact search.")
    ] = "20,50,150,400",
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
    beam_widths = parse_widths(widths)
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
    elif html is not None:
        raise InputError(f"--html writes the diagnostics of a tree; {folder} has none, or --users is 0")
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


@dataclass(frozen=True, slots=True)
class DiagnosisData:
    """The queries of a tree's diagnostics, their source in words, and the data where the log exists."""

    histories: ItemLists
    labels: ItemLists
    words: str
    split: Split | None = None


def diagnosis_data(folder: str, retriever: Retriever, users: int, log: str | None, items: str | None) -> DiagnosisData:
    """Validation users of the log, else, also where all users trained, halves of stored histories."""
    from beamwood.cli.origin import split_of

    refitted = "refit" in retriever.metadata
    if log is not None or (log_is_there(folder, retriever) and not refitted):
        split = split_of(folder, retriever, log, items)
        valid = split.valid.labelled()
        valid = valid.sample(users, seed=0)
        if len(valid) == 0:
            raise InputError(f"the split of {folder} has no validation user to diagnose on; use --users 0")
        return DiagnosisData(valid.histories, valid.labels, counted(len(valid), "validation user"), split)
    stored = retriever.histories
    usable = np.flatnonzero(stored.lengths >= 2) if stored is not None else np.empty(0, int)
    if stored is None or len(usable) == 0:
        raise InputError(f"{folder} keeps no histories and its log is gone; give --log, or --users 0")
    usable = np.sort(np.random.default_rng(0).permutation(usable)[:users])
    why = "refit trained on all users" if refitted else "the log is not where it was"
    tell(f"{why}: halves of stored histories are used, which training may have seen")
    middle = (stored.indptr[usable] + stored.indptr[usable + 1]) // 2
    histories = stored.slices(stored.indptr[usable], middle)
    labels: ItemLists = stored.slices(middle, stored.indptr[usable + 1]).distinct()
    halved = counted(len(usable), "stored history", "stored histories")
    return DiagnosisData(histories, labels, f"{halved} cut in half, which training may have seen")


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
    from beamwood.retrieval.columns.label_column import LabelColumn

    column = None if retriever.columns is None else retriever.columns.columns.get("category")
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


def log_is_there(folder: str, retriever: Retriever) -> bool:
    """Whether the log that the folder names still exists."""
    from beamwood.cli.origin import origin_of

    # os.path.exists is False also for invalid paths.
    return bool(retriever.metadata.get("source")) and os.path.exists(origin_of(folder, retriever.metadata).source.log)


def parse_widths(text: str) -> list[int]:
    """The beam widths of "20,50"."""
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        widths = [0]
    if min(widths) < 1:
        raise InputError(f"--widths {text!r} is not a list of numbers of 1 or more; write --widths 20,50")
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
        numbers = ["-" if value is None else f"{value:z.4f}" for value in facts]
        rows.append([str(level.level), f"{level.nodes:,}", f"{level.recall:.4f}", f"{level.lost:z.4f}", *numbers])
    return head, rows


def level_caption(report: TreeReport) -> str:
    """The caption of the table of levels."""
    calibrated = f"calibrated: the {report.probability}; " if report.probability else ""
    return (
        f"{calibrated}heap violation: a score more than {report.heap_tolerance:g} {report.unit} from its best child's, "
        "up to a constant for each query"
    )


def beam_rows(report: TreeReport) -> tuple[list[str], list[list[str]]]:
    """The table of beam widths, brute force last."""
    head = ["beam width", "scored nodes", f"of the exact top {report.k}", "score missed", f"recall@{report.k}"]
    rows = [
        [
            str(beam.beam_width),
            f"{beam.scored_nodes:,.0f}",
            f"{beam.overlap:.4f}",
            f"{beam.regret:z.4f}",
            f"{beam.recall:.4f}",
        ]
        for beam in (*report.beams, report.exact)
    ]
    rows[-1][0] = "all items"
    return head, rows


def margin_rows(report: TreeReport) -> tuple[list[str], list[list[str]]]:
    """The table of the labels' margins."""
    head = [name if name == "found" else percent_of(name) for name in report.margin]
    return head, [[f"{value:z.4f}" for value in report.margin.values()]]


def search_rows(search: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The table of the ways of searching that were validated, cheapest first, the chosen one marked."""
    head = ["", "way", "beam width", "leaves judged", "nodes judged", search["monitor"], "likely to lose at most"]
    rows = []
    for place, point in enumerate(search["curve"]):
        loss = max(0.0, -point["lowest"])
        rows.append(
            [
                "chosen" if place == search["chosen"] else "",
                point["kind"],
                f"{point['beam_width']:,}",
                f"{point['judged']:,}" if point["judged"] else "-",
                f"{point['nodes']:,.0f}",
                f"{point['metric']:.4f}",
                f"{100 * loss:.2f} %" if place < len(search["curve"]) - 1 else "-",
            ]
        )
    return head, rows


def search_caption(search: dict[str, Any]) -> str:
    """The caption of the table of ways."""
    return (
        f"how it is searched: the cheapest way by which {search['queries']:,} validation queries lose at most "
        f"{100 * search['may_lose']:g} % of {search['monitor']}, "
        f"and likely at most {100 * search['may_lose_level']:g} %"
    )


def indented_lines(document: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Keys and values, nested values indented."""
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from indented_lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {value}"


def print_inspection(document: dict[str, Any], report: TreeReport | None) -> None:
    """Print the document for people."""
    from rich.console import Console
    from rich.table import Table

    hidden = ("diagnostics", "outline", "shape", "search")
    print("\n".join(indented_lines({name: value for name, value in document.items() if name not in hidden})))
    tables = {search_caption(document["search"]): search_rows(document["search"])} if "search" in document else {}
    if report is not None:
        tables |= report_tables(report)
    console = Console(width=140)
    for title, (head, rows) in tables.items():
        # A title of the table itself would wrap at the width of a narrow one.
        console.print(title, style="italic", markup=False, highlight=False)
        table = Table()
        for name in head:
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def report_tables(report: TreeReport) -> dict[str, tuple[list[str], list[list[str]]]]:
    """The tables of the diagnostics by their titles."""
    return {
        f"levels ({level_caption(report)})": level_rows(report),
        "margin of the labels in the beam (a label is lost below 0)": margin_rows(report),
        "beam against exact search": beam_rows(report),
    }
