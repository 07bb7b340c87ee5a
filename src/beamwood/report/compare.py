"""The page of a comparison: which method wins, how certain that is, what it costs, and for which users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beamwood.report.page import VIEWS, render_page

__all__ = ["comparison_charts", "comparison_page"]

Document = Mapping[str, Any]
# Charts of groups of users or labels: the part of a document, and its title.
GROUPED = {"history": "items in the history", "popularity": "interactions of the label in training"}
SHARES = {"better": "better for", "equal": "equal for", "worse": "worse for"}


def comparison_page(document: Document) -> str:
    """The page of a `recipes.comparison.Comparison.document`."""
    return render_page("compare", document, comparison_charts(document), headline=headline(document))


def headline(document: Document) -> str:
    """The verdict on answers without seen items, in a few words."""
    verdict = document["verdict"]["removed"]
    if verdict["winner"] is None:
        return "Nothing was learned"
    if verdict["certain"]:
        return f"{verdict['winner']} is best"
    return f"{verdict['winner']} leads, and that is not certain"


def comparison_charts(document: Document) -> dict[str, Any]:
    """The charts by name."""
    made: dict[str, Any] = {}
    for view in VIEWS:
        verdict = document["verdict"][view]
        made[f"quality-{view}"] = quality(document, view)
        if verdict["winner"] is not None:
            made[f"differences-{view}"] = difference_chart(verdict)
            made[f"users-{view}"] = wins(verdict)
        for part, title in GROUPED.items():
            asked = document["for_whom"][view][part]
            made[f"{part}-{view}"] = by_group(
                asked, title, {name: asked["methods"][name] for name in spoken_of(document, view)}
            )
    if document["costs"]:
        made |= bought(document, "milliseconds", "milliseconds a user") | bought(document, "megabytes", "megabytes")
    return made


def spoken_of(document: Document, view: str) -> list[str]:
    """The methods that the verdict covers, the winner first; without a winner, those with the best means."""
    verdict = document["verdict"][view]
    if verdict["winner"] is None:
        return methods_best_first(document, view)[:3]
    uncertain = [rival["name"] for rival in verdict["rivals"] if not rival["certain"]]
    named = [verdict["winner"], verdict["rivals"][0]["name"], *uncertain[:1], verdict["simplest"]]
    return list(dict.fromkeys(named))


def methods_best_first(document: Document, view: str) -> list[str]:
    """The methods by the mean that decides the comparison, best first."""
    metric = document["verdict"][view]["metric"]
    return sorted(document["methods"], key=lambda name: -document["methods"][name][view]["metrics"][metric])


def quality(document: Document, view: str) -> dict[str, Any]:
    """Means and intervals, best first, below the best possible value where that is known."""
    from beamwood.report.charts import intervals

    verdict = document["verdict"][view]
    metric, beyond = verdict["metric"], document.get("beyond", {})
    rows = []
    for name in [*beyond, *methods_best_first(document, view)]:
        measured = (beyond.get(name) or document["methods"][name])[view]
        low, high = measured["interval_95"][metric]
        tone = "first" if name == verdict["winner"] else "other"
        rows.append({"name": name, "mean": measured["metrics"][metric], "low": low, "high": high, "tone": tone})
    return intervals(rows, metric)


def difference_chart(verdict: Document) -> dict[str, Any]:
    """The winner minus each other method; certain differences stand out."""
    from beamwood.report.charts import intervals

    rows = [
        {"name": rival["name"], "mean": rival["difference"], "low": rival["low"], "high": rival["high"]}
        | {"tone": "first" if rival["certain"] else "other"}
        for rival in verdict["rivals"]
    ]
    return intervals(rows, f"difference of {verdict['metric']}", zero=True)


def wins(verdict: Document) -> dict[str, Any]:
    """For each other method, the share of users for whom the winner is better."""
    from beamwood.report.charts import share_chart

    rows = [{"name": each["name"]} | {words: each[key] for key, words in SHARES.items()} for each in verdict["rivals"]]
    return share_chart(rows, list(SHARES.values()))


def by_group(part: Document, title: str, lines_of: Mapping[str, Sequence[Document | None]]) -> dict[str, Any]:
    """A figure over groups of users or labels; `lines_of`: by name the mean of each group, None of an empty one."""
    from beamwood.report.charts import line_chart

    labels = group_names(part["groups"])
    rows = [
        {"name": name, "group": label, **cell}
        for name, cells in lines_of.items()
        for label, cell in zip(labels, cells, strict=True)
        if cell is not None
    ]
    return line_chart(rows, title, part["metric"], groups=labels, names=list(lines_of))


def group_names(groups: Sequence[Document]) -> list[str]:
    """The upper bound of each group, in whole thousands, rounded up, where that leaves the names distinct and true."""
    highs = [group["high"] for group in groups]
    short = [f"≤{high:,}" if high < 10_000 else f"≤{-(-high // 1000):,}k" for high in highs]
    return short if len(set(short)) == len(short) else [f"≤{high:,}" for high in highs]


def bought(document: Document, cost: str, title: str) -> dict[str, Any]:
    """Quality against cost; left out where a cost is 0, which a logarithmic axis cannot show."""
    from beamwood.report.charts import scatter

    verdict = document["verdict"]["removed"]
    rows = [
        {"name": name, "x": own[cost], "y": document["methods"][name]["removed"]["metrics"][verdict["metric"]]}
        | {"tone": "first" if name == verdict["winner"] else "other"}
        for name, own in document["costs"].items()
        if own[cost] > 0
    ]
    return {cost: scatter(rows, title, verdict["metric"])} if rows else {}
