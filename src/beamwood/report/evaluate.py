"""The page of an evaluation: how good it is in both views, for whom, how far its probabilities hold, what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.report.compare import ORDER, group_name
from beamwood.report.page import render

__all__ = ["evaluation_page"]

Document = Mapping[str, Any]
TITLES = {"removed": "seen items removed", "kept": "seen items kept"}


def evaluation_page(document: Document) -> str:
    """The page of what `beamwood evaluate --html --json` says."""
    metrics = document["views"]["removed"]["metrics"]
    cut = document["views"]["removed"]["protocol"]["ks"][0]
    shown = [f"{name}@{cut}" for name in ("f", "recall", "ndcg", "hit_rate", "coverage") if f"{name}@{cut}" in metrics]
    return render("evaluate", document, evaluation_charts(document), views=ORDER, titles=TITLES, shown=shown, cut=cut)


def evaluation_charts(document: Document) -> dict[str, Any]:
    """The charts by name."""
    from beamwood.report.charts import bars, calibration, histogram

    made = {"metrics": metrics(document)}
    for part, title in (("history", "items in the history"), ("popularity", "interactions of the label in training")):
        made[part] = by_group(document["for_whom"], part, title)
    if document["calibration"]:
        rows = [
            {"predicted": each["predicted"], "observed": each["observed"], "count": each["pairs"]}
            for each in document["calibration"]["ranges"]
        ]
        made["calibration"] = calibration(rows)
    if document["beam"]:
        lost = [{"x": str(level), "y": share} for level, share in enumerate(document["beam"]["lost"], start=1)]
        made["lost"] = bars(lost, "level", "labels lost")
    gap = document.get("tail", {}).get("probability_gap")
    if gap:
        drawn = gap["histogram"]
        made["gap"] = histogram(drawn["edges"], drawn["counts"], "tail item less any item, in 1 / number of items")
    return made


def metrics(document: Document) -> dict[str, Any]:
    """Every metric with its interval, both views beside each other."""
    from beamwood.report.charts import beside

    rows = [
        {"name": name, "part": TITLES[view], "mean": document["views"][view]["metrics"][name]}
        | {"low": bounds[0], "high": bounds[1]}
        for view in ORDER
        for name, bounds in document["views"][view]["interval_95"].items()
    ]
    return beside(rows, [TITLES[view] for view in ORDER])


def by_group(whom: Document, part: str, title: str) -> dict[str, Any]:
    """A figure over groups of users or labels, a line a view."""
    from beamwood.report.charts import lines

    groups = [group_name(group) for group in whom["removed"][part]["groups"]]
    rows = [
        {"name": TITLES[view], "group": group} | cell
        for view in ORDER
        for cells in whom[view][part]["methods"].values()
        for group, cell in zip(groups, cells, strict=True)
        if cell is not None
    ]
    return lines(rows, title, whom["removed"][part]["metric"], groups=groups, names=[TITLES[view] for view in ORDER])
