"""The page of a log: ids, times, history lengths, how concentrated item popularity is, and what splits keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.report.page import render_page

__all__ = ["description_page"]

Document = Mapping[str, Any]


def description_page(document: Document) -> str:
    """The page of the document of `beamwood describe --html --json`."""
    return render_page("describe", document, description_charts(document))


def description_charts(document: Document) -> dict[str, Any]:
    """The charts by name."""
    from beamwood.report.charts import bar_chart, curves

    groups, users = document["lengths"]["groups"], document["users"]["number"]
    bars = [{"x": _span(each), "y": each["users"] / users} for each in groups]
    made = {"lengths": bar_chart(bars, "rows", "users", many=True)}
    points = [{"x": 100 * each["items"], "y": 100 * each["rows"]} for each in document["popularity"]["curve"]]
    made["popularity"] = curves(points, "% of the items, most taken first", "% of the rows")
    times = document["times"]
    if times is not None and "rows_by_time" in times:
        rows = [{"x": each["from"], "y": each["rows"] / document["taken"]} for each in times["rows_by_time"]]
        made["times"] = bar_chart(rows, "from", "rows", many=True)
    return made


def _span(group: Document) -> str:
    return f"{group['low']:,}" if group["low"] == group["high"] else f"{group['low']:,}–{group['high']:,}"
