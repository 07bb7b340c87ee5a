"""The page of a tree: its nodes level by level, where it loses targets, and its beam against exact search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamwood.report.page import render_page
from beamwood.words import counted

__all__ = ["inspection_page"]

Document = Mapping[str, Any]
Words = list[tuple[str, str]]


def inspection_page(document: Document) -> str:
    """The page of the document of `beamwood inspect --html --json` for a tree."""
    report = document["diagnostics"]
    panels = [f"calibration-{level['level']}" for level in report["levels"] if level["calibration"]]
    facts = {key: document.get(key) for key in ("folder", "method", "searcher", "item_id_type", "beamwood", "created")}
    charts = inspection_charts(report)
    search = document.get("search")
    if search:
        charts["search"] = search_chart(search)
    return render_page(
        "inspect",
        document,
        charts,
        report=report,
        search=search,
        ways={kind: WAYS[kind] for kind in _kinds(search)} if search else {},
        panels=panels,
        about={name: value for name, value in facts.items() if value is not None},
        tree=[{"words": words(node), "below": list(node["below"]) or None} for node in document["outline"]],
    )


def words(node: Document) -> Words:
    """The label of a node, with the style of each part: a leaf's item, for other nodes the most frequent below."""
    if node["items"] == 1 and not node["below"]:
        said = [("name", node["examples"][0])]
        said += [("soft", ", ".join(part["name"] for part in node["categories"]))] if node["categories"] else []
    else:
        name = "all items" if node["level"] == 0 else f"level {node['level']}, node {node['number']:,}"
        said = [
            ("name", name),
            ("", counted(node["items"], "item")),
            ("soft", f"{100 * node['share']:.1f} % of interactions"),
        ]
        said += [("", ", ".join(f"{part['name']} {100 * part['share']:.0f} %" for part in node["categories"]))]
        said += [("soft", ", ".join(node["examples"]))]
    if node["lost"]:
        said.append(("lost", f"{node['lost']:,} of {counted(node['labels'], 'label')} lost here"))
    return [(style, text) for style, text in said if text]


def inspection_charts(report: Document) -> dict[str, Any]:
    """The charts by name."""
    from beamwood.report.charts import bar_chart, calibration_chart, curves

    levels = report["levels"]
    made = {
        "lost": bar_chart([{"x": str(level["level"]), "y": level["lost"]} for level in levels], "level", "labels lost"),
        "found": curves(beams(report), "nodes scored", "share", names=list(FOUND.values())),
    }
    for level in levels:
        if level["calibration"]:
            rows = [
                {"predicted": each["predicted"], "observed": each["observed"], "count": each["nodes"]}
                for each in level["calibration"]
            ]
            made[f"calibration-{level['level']}"] = calibration_chart(rows)
    return made


WAYS = {
    "steer": "the light head walks down the tree, and the scorer judges the best leaves",
    "cascade": "the light head picks the best nodes of each level, and the scorer judges these",
    "beam": "the scorer judges every node that the beam reaches",
}


def search_chart(search: Document) -> dict[str, Any]:
    """The search settings that validation compared, by cost and quality."""
    from beamwood.report.charts import choice

    rows = [
        {"x": point["nodes"], "y": point["metric"], "name": point["kind"], "words": _way(point)}
        for point in search["curve"]
    ]
    return choice(rows, "nodes judged", search["monitor"], chosen=search["chosen"], names=_kinds(search))


def _kinds(search: Document) -> list[str]:
    return [kind for kind in WAYS if any(point["kind"] == kind for point in search["curve"])]


def _way(point: Document) -> str:
    judged = f", {point['judged']:,} judged" if point["judged"] else ""
    return f"{point['kind']}, beam {point['beam_width']:,}{judged}"


FOUND = {"overlap": "of the exact best", "recall": "of the labels"}


def beams(report: Document) -> list[dict[str, Any]]:
    """For each beam width, the shares found and the number of scores computed; brute force last."""
    return [
        {"x": beam["scored_nodes"], "y": beam[key], "name": name}
        for beam in (*report["beams"], report["exact"])
        for key, name in FOUND.items()
    ]
