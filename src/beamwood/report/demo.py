"""The page of the demo: the comparison, the best possible quality, and the training of the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.report.compare import comparison_charts, headline
from beamwood.report.fit import curve_names, training_charts, updates
from beamwood.report.page import VIEWS, render_page

__all__ = ["TITLE", "demo_page"]

TITLE = "beamwood demo"


def demo_page(document: Mapping[str, Any]) -> str:
    """The page of the demo's document: a comparison, `curve`, the lines of a run, and `market`."""
    charts = comparison_charts(document) | training_charts(document["curve"])
    return render_page(
        "demo",
        document,
        charts,
        headline=headline(document),
        title=TITLE,
        curves=curve_names(charts),
        updates=updates(document["curve"]),
        possible=possible(document),
    )


def possible(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By view, the winner's quality and the best possible."""
    rows = []
    for view in VIEWS:
        verdict = document["verdict"][view]
        best = max((views[view]["metrics"][verdict["metric"]] for views in document["beyond"].values()), default=None)
        rows.append({"view": view, "metric": verdict["metric"], "value": verdict["value"], "best": best})
    return rows
