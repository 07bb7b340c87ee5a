"""The page of an evaluation: quality in both views and by group of users, calibration, and where targets are lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.report.compare import GROUPED, by_group
from beamwood.report.page import VIEWS, render_page

__all__ = ["evaluation_page"]

Document = Mapping[str, Any]


def evaluation_page(document: Document) -> str:
    """The page of the document of `beamwood evaluate --html --json`."""
    metrics = document["views"]["removed"]["metrics"]
    cut = document["views"]["removed"]["protocol"]["ks"][0]
    shown = [f"{name}@{cut}" for name in ("f", "recall", "ndcg", "hit_rate", "coverage") if f"{name}@{cut}" in metrics]
    return render_page("evaluate", document, evaluation_charts(document), shown=shown, cut=cut)


def evaluation_charts(document: Document) -> dict[str, Any]:
    """The charts by name."""
    from beamwood.report.charts import bar_chart, calibration_chart, histogram

    made = {"metrics": metrics(document)}
    for part, title in GROUPED.items():
        views = {view: document["for_whom"][view][part] for view in VIEWS}
        cells = {VIEWS[view]: next(iter(each["methods"].values())) for view, each in views.items()}
        made[part] = by_group(views["removed"], title, cells)
    if document["calibration"]:
        rows = [
            {"predicted": each["predicted"], "observed": each["observed"], "count": each["pairs"]}
            for each in document["calibration"]["ranges"]
        ]
        made["calibration"] = calibration_chart(rows)
    if document["beam"]:
        lost = [{"x": str(level), "y": share} for level, share in enumerate(document["beam"]["lost"], start=1)]
        made["lost"] = bar_chart(lost, "level", "labels lost")
    gap = document.get("tail", {}).get("probability_gap")
    if gap:
        drawn = gap["histogram"]
        made["gap"] = histogram(drawn["edges"], drawn["counts"], "tail item less any item, in 1 / number of items")
    return made


def metrics(document: Document) -> dict[str, Any]:
    """Every metric with its interval, both views beside each other."""
    from beamwood.report.charts import paired_chart

    rows = [
        {"name": name, "part": words, "mean": document["views"][view]["metrics"][name]}
        | {"low": bounds[0], "high": bounds[1]}
        for view, words in VIEWS.items()
        for name, bounds in document["views"][view]["interval_95"].items()
    ]
    return paired_chart(rows, list(VIEWS.values()))
