"""The results of a search for the best method, JSON-able and as a printed table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beamwood.evaluation.results import PerQuery
from beamwood.evaluation.significance import t_interval
from beamwood.fitting.validation import Monitor
from beamwood.recipes.portfolio.choice import Candidate, within
from beamwood.recipes.portfolio.search_folder import Trial
from beamwood.types import FloatArray
from beamwood.words import counted

__all__ = ["as_rows", "figures_of", "table_lines"]

Row = dict[str, Any]


def as_rows(
    candidates: Sequence[Candidate],
    trials: Sequence[Trial],
    best: Candidate | None,
    milliseconds: float | None = None,
    megabytes: float | None = None,
) -> list[Row]:
    """A row for each candidate, best first, then for contenders without a result.

    `value` with its 95 % interval; `behind`: the paired difference to the chosen one, with its interval; `looks` and
    total `seconds`; `ms` and `mb` of an answer; `note`: over a budget, or why there is no result.
    """
    rows = []
    for candidate in sorted(candidates, key=lambda each: (-each.value, len(each.parts))):
        row: Row = {"name": candidate.name, "chosen": best is not None and candidate.name == best.name}
        row |= _interval("value", candidate.values)
        if best is not None and not row["chosen"]:
            row |= _interval("behind", np.asarray(best.values, float) - np.asarray(candidate.values, float))
        over = "" if within(candidate, milliseconds, megabytes) else "over the budget"
        row |= {"ms": candidate.milliseconds, "mb": candidate.megabytes, "note": over}
        rows.append(row | _effort(candidate.name, trials))
    known = {row["name"] for row in rows}
    failed = {each.name: each for each in trials if each.name not in known}
    return rows + [
        {"name": name, "chosen": False, "note": each.why} | _effort(name, trials) for name, each in failed.items()
    ]


def _effort(name: str, trials: Sequence[Trial]) -> Row:
    own = [each.seconds for each in trials if each.name == name]
    return {"looks": len(own), "seconds": round(sum(own), 2)}


def _interval(name: str, values: FloatArray) -> Row:
    if len(values) < 2:
        return {name: float(np.mean(values)), f"{name}_95": None}
    found = t_interval(np.asarray(values, np.float64))
    return {name: found.mean, f"{name}_95": [found.low, found.high]}


def figures_of(views: Mapping[str, PerQuery]) -> dict[str, Any]:
    """By view the mean of every metric, with intervals, and the number of users."""
    figures: dict[str, Any] = {}
    for view, found in views.items():
        own = {name: _interval("value", values) for name, values in found.values.items()}
        figures[view] = {"users": len(found), "metrics": own}
    return figures


def table_lines(document: Mapping[str, Any]) -> list[str]:
    """The table, and the chosen model's results on test users."""
    head = ("", document["metric"], "95 %", "below the chosen", "ms", "MB", "seconds", "")
    cells = [head, *(_cells(row) for row in document["rows"])]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    shown = [
        "  ".join(
            cell.ljust(width) if place in (0, 7) else cell.rjust(width) for place, (cell, width) in enumerate(pairs)
        )
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]
    view = Monitor.of(document["monitor"]).view
    lines = [line.rstrip() for line in shown]
    if document["not_tried"]:
        lines.append(f"not tried in this time: {', '.join(document['not_tried'])}; a longer --time-limit tries more")
    lines.append(
        f"{document['chosen']} is chosen, on {counted(document['validation_users'], 'validation user')} ({view})"
    )
    if all(row.get("value", 0) == 0 for row in document["rows"]):
        kept = f"; if users take the same items again, choose --monitor kept/{document['metric']}"
        lines.append(f"every model scores 0, so the choice means nothing{kept if view == 'removed' else ''}")
    for name, figures in document.get("test", {}).items():
        own = figures["metrics"][document["metric"]]
        between = "" if own["value_95"] is None else f" [{own['value_95'][0]:z.4f}, {own['value_95'][1]:z.4f}]"
        lines.append(
            f"on {counted(figures['users'], 'test user')}, seen items {name}: {document['metric']} "
            f"{own['value']:z.4f}{between}"
        )
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    name, note, seconds = f"{'* ' if row['chosen'] else '  '}{row['name']}", row["note"] or "", f"{row['seconds']:.0f}"
    if "value" not in row:
        return name, "–", "", "", "", "", seconds, note
    behind = ""
    if "behind" in row:
        behind = f"{row['behind']:z.4f}" + _bounds(row["behind_95"])
    return (
        name,
        f"{row['value']:z.4f}",
        _bounds(row["value_95"]).strip(),
        behind,
        f"{row['ms']:.2f}",
        f"{row['mb']:.1f}",
        seconds,
        note,
    )


def _bounds(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:z.4f}, {interval[1]:z.4f}]"
