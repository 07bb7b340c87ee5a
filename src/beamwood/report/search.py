"""The page of a method search: the method chosen, how far the others are behind, and what each answer costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beamwood.report.page import render_page

__all__ = ["search_page"]


def search_page(document: Mapping[str, Any]) -> str:
    """The page of the document of `beamwood fit --html --json` without a method."""
    found = document["portfolio"]
    measured = [row for row in found["rows"] if "value" in row]
    return render_page("search", document, charts(found, measured), found=found, measured=measured)


def charts(found: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with intervals, each method's distance to the chosen one, and quality against milliseconds and
    megabytes.
    """
    from beamwood.report.charts import intervals, scatter

    made = {"quality": intervals([_mean(row, "value") for row in measured], found["metric"])}
    behind = [_mean(row, "behind") for row in measured if "behind" in row]
    if behind:
        made["behind"] = intervals(behind, f"below the chosen one, {found['metric']}", zero=True)
    for key, words in (("ms", "milliseconds a user"), ("mb", "megabytes")):
        rows = [{"name": row["name"], "x": row[key], "y": row["value"], "tone": _tone(row)} for row in measured]
        rows = [row for row in rows if row["x"] > 0]
        if len(rows) > 1:
            made[f"bought-{key}"] = scatter(rows, words, found["metric"])
    return made


def _mean(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    low, high = row[f"{key}_95"] or (row[key], row[key])
    return {"name": row["name"], "mean": row[key], "low": low, "high": high, "tone": _tone(row)}


def _tone(row: Mapping[str, Any]) -> str:
    return "first" if row["chosen"] else "other"
