"""What `beamwood inspect` prints: a description, and tables of a tree's diagnostics and of the ways to search it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamwood.cli.stages import percent_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamwood.theory.diagnostics import TreeReport

__all__ = ["print_inspection"]

Table = tuple[list[str], list[list[str]]]
"""The head of a table, and its rows."""


def level_rows(report: TreeReport) -> Table:
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


def beam_rows(report: TreeReport) -> Table:
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


def margin_rows(report: TreeReport) -> Table:
    """The table of the labels' margins."""
    head = [name if name == "found" else percent_of(name) for name in report.margin]
    return head, [[f"{value:z.4f}" for value in report.margin.values()]]


def search_rows(search: dict[str, Any]) -> Table:
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
    from rich.table import Table as RichTable

    hidden = ("diagnostics", "outline", "shape", "search")
    print("\n".join(indented_lines({name: value for name, value in document.items() if name not in hidden})))
    tables = {search_caption(document["search"]): search_rows(document["search"])} if "search" in document else {}
    if report is not None:
        tables |= report_tables(report)
    console = Console(width=140)
    for title, (head, rows) in tables.items():
        # A title of the table itself would wrap at the width of a narrow one.
        console.print(title, style="italic", markup=False, highlight=False)
        table = RichTable()
        for name in head:
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def report_tables(report: TreeReport) -> dict[str, Table]:
    """The tables of the diagnostics by their titles."""
    return {
        f"levels ({level_caption(report)})": level_rows(report),
        "margin of the labels in the beam (a label is lost below 0)": margin_rows(report),
        "beam against exact search": beam_rows(report),
    }
