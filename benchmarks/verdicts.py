"""The findings of a table: sentences that its paired tests select."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.evidence import Evidence, Paired, paired
from benchmarks.figures import number, p_value
from benchmarks.suite import Topic

__all__ = ["metric_words", "verdict"]

_FIGURES = {
    "f": "F",
    "ndcg": "NDCG",
    "hit_rate": "hit rate",
    "recall": "recall",
    "precision": "precision",
    "mrr": "MRR",
}
_VIEWS = {
    "kept": "seen items kept",
    "removed": "seen items removed",
    "tail kept": "users with a tail label",
    "sampled": "among 100 items",
}


def verdict(topic: Topic, rows: Mapping[str, Evidence]) -> str:
    """For each judged figure of the topic: the rows above, below, and not significantly different from a reference.

    The reference is `against`, else the row with the highest figure. Fewer than two rows have no verdict.
    """
    said = [_of_figure(topic, figure, rows) for figure in topic.judged]
    return "\n".join(f"- {each}" for each in said if each)


def _of_figure(topic: Topic, figure: str, rows: Mapping[str, Evidence]) -> str:
    having = {key: row for key, row in rows.items() if figure in row.values}
    if len(having) < 2 or topic.against not in (None, *having):
        return ""
    if topic.against is None:
        return _of_the_highest(figure, having)
    tests, base = paired(having, topic.against, figure), having[topic.against].title
    above = [key for key, test in tests.items() if test.is_certain and test.difference.mean > 0]
    below = [key for key, test in tests.items() if test.is_certain and test.difference.mean < 0]
    level = [key for key, test in tests.items() if not test.is_certain]
    said = [
        f"above {base}: {_listed(above, having)}." if above else f"no row is significantly above {base}.",
        f"Below it: {_listed(below, having)}." if below else "",
        f"Not significantly different from it: {_listed(level, having)}." if level else "",
    ]
    return f"By {_words(figure)}, " + " ".join(part for part in said if part)


def _of_the_highest(figure: str, rows: Mapping[str, Evidence]) -> str:
    order = sorted(rows, key=lambda key: -(rows[key].figure(figure) or 0.0))
    first, tests = order[0], paired(rows, order[0], figure)
    level = [key for key in order[1:] if not tests[key].is_certain]
    beaten = [key for key in order[1:] if tests[key].is_certain]
    said = [
        f"By {_words(figure)}, {rows[first].title} has the highest figure.",
        f"Not significantly different from it: {_listed(level, rows)}." if level else "",
        f"It is above {'the' if level else 'all'} others: {_next(tests[beaten[0]], rows)}." if beaten else "",
    ]
    return " ".join(part for part in said if part)


def _next(test: Paired, rows: Mapping[str, Evidence]) -> str:
    low, high = -test.difference.high, -test.difference.low
    bounds = f"{number(-test.difference.mean, 4)} [{number(low, 4)}, {number(high, 4)}]"
    return f"the next of them, {rows[test.row].title}, by {bounds}, p {p_value(test.p)}"


def _listed(keys: list[str], rows: Mapping[str, Evidence]) -> str:
    titles = [rows[key].title for key in keys]
    return ("; " if any("," in title for title in titles) else ", ").join(titles)


def _words(figure: str) -> str:
    view = figure.partition("/")[0]
    return f"{metric_words(figure)} ({_VIEWS.get(view, view)})"


def metric_words(figure: str) -> str:
    """A figure's metric in words: `removed/f@20` is F@20."""
    name, _, cut = figure.rpartition("/")[2].partition("@")
    return f"{_FIGURES.get(name, name)}@{cut}"
