"""The page of a training: its loss and validation over the steps, with the updates of the tree marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beamwood.report.page import VIEWS, render_page

__all__ = ["curve_names", "fit_page", "training_charts", "updates"]

Line = Mapping[str, Any]
CHOOSING = VIEWS | {"both": "the mean of both"}
SHOWN = ("f@", "ndcg@", "auc")


def fit_page(document: Mapping[str, Any]) -> str:
    """The page of the document of `beamwood fit --html --json`."""
    charts = training_charts(document["curve"])
    settings = {
        f"{group}.{name}": value
        for group, values in document["plan"].items()
        for name, value in (values.items() if isinstance(values, Mapping) else [("", values)])
    }
    return render_page(
        "fit",
        document,
        charts,
        curves=curve_names(charts),
        updates=updates(document["curve"]),
        settings={name.rstrip("."): value for name, value in settings.items()},
    )


def curve_names(charts: Mapping[str, Any]) -> list[str]:
    """The charts that are curves of training, validation first."""
    return sorted(name for name in charts if name.startswith("valid-")) + [n for n in charts if "loss" in n]


def training_charts(curve: Sequence[Line]) -> dict[str, Any]:
    """The charts by name: "loss" and its parts, "valid-1", .. a validation metric each; `curve` of metrics.jsonl."""
    from beamwood.report.charts import curves

    marks = [{"x": each["step"], "words": each["words"]} for each in updates(curve)]
    made: dict[str, Any] = {}
    for name in names_of(curve, "loss"):
        rows = [{"x": line["step"], "y": line[name]} for line in curve if name in line]
        made[name] = curves(rows, "step", name, marks=marks)
    for number, (metric, names) in enumerate(validation(curve).items(), start=1):
        rows = [
            {"x": line["step"], "y": line[name], "name": CHOOSING.get(view, view)}
            for view, name in names.items()
            for line in curve
            if name in line
        ]
        known = dict.fromkeys(row["name"] for row in rows)
        shown = [name for name in CHOOSING.values() if name in known]
        shown += [name for name in known if name not in shown]
        made[f"valid-{number}"] = curves(rows, "step", metric, marks=marks, names=shown if len(shown) > 1 else ())
    return made


def updates(curve: Sequence[Line]) -> list[dict[str, Any]]:
    """Each update of the tree: its step, whether it was kept, the metric before and after, and a sentence."""
    return [
        {"step": line["step"], "number": int(line["update"]), "kept": bool(line["update_kept"])}
        | {"before": line["metric_before"], "after": line["metric_after"], "seconds": line["update_seconds"]}
        | {"words": f"update {line['update']:.0f}: {line['metric_before']:.4f}, then {line['metric_after']:.4f}"}
        for line in curve
        if "update" in line
    ]


def names_of(curve: Sequence[Line], part: str) -> list[str]:
    """The names of measurements that contain `part`."""
    return [name for name in dict.fromkeys(n for line in curve for n in line) if part in name and "/" not in name]


def validation(curve: Sequence[Line]) -> dict[str, dict[str, str]]:
    """By metric and view, the measurement's name in the lines, in the order shown.

    As {"f@20": {"removed": "valid/removed/f@20"}}.
    """
    found: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(n for line in curve for n in line if n.startswith("valid/")):
        *views, metric = name.removeprefix("valid/").split("/")
        found.setdefault(metric, {})["/".join(views)] = name
    chosen = {metric: names for metric, names in found.items() if metric.startswith(SHOWN)}
    return chosen or dict(list(found.items())[:2])
