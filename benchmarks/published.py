"""The DTR paper's Table 2 against our results: F@20 of each method relative to YouTubeDNN's.

The paper's MIND log has five times the users of ours, so only relative figures are comparable.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.evidence import Evidence, gather
from benchmarks.figures import EMPTY, markdown, number

__all__ = ["PUBLISHED", "published_table", "shares"]

LOG, BASE, FIGURE = "mind_dtr", "youtube_dnn", "kept/f@20"
PUBLISHED = {
    "youtube_dnn": ("rivals", 0.2243),
    "sasrec": ("rivals", 0.2254),
    "gru4rec": ("rivals", 0.2203),
    "lightgcn": ("rivals", 0.0806),
    "scann": ("rivals", 0.1766),
    "hnsw": ("rivals", 0.2233),
    "qinco": ("rivals", 0.2160),
    "rotlex": ("rivals", 0.2297),
    "jtr": ("rivals", 0.2117),
    "tdm": ("trees", 0.1687),
    "jtm": ("trees", 0.1892),
    "dtr-u": ("trees", 0.2188),
    "dtr-t": ("trees", 0.2250),
    "dtr-t-rl": ("trees", 0.2350),
}
"""Each row's topic, and its F@20 on MIND in Table 2 of the DTR paper."""
# A smaller relative difference from YouTubeDNN counts as level.
_LEVEL = 0.02


def shares(bench: Bench) -> dict[str, tuple[Evidence, float, float]]:
    """Each measured row, and its F@20 relative to YouTubeDNN here and in the paper; empty without YouTubeDNN's line."""
    found = {topic: gather(bench, topic, LOG) for topic in {topic for topic, _ in PUBLISHED.values()}}
    base = found[PUBLISHED[BASE][0]].get(BASE)
    own = None if base is None else base.figure(FIGURE)
    if not own:
        return {}
    made = {}
    for key, (topic, value) in PUBLISHED.items():
        evidence = found[topic].get(key)
        figure = None if evidence is None else evidence.figure(FIGURE)
        if evidence is not None and figure is not None:
            made[key] = evidence, figure / own, value / PUBLISHED[BASE][1]
    return made


def published_table(bench: Bench) -> str:
    """The table, and a sentence for each row whose result differs from the paper's."""
    found = shares(bench)
    if not found:
        return EMPTY
    rows = []
    for key, (evidence, own, told) in found.items():
        figures = number(evidence.figure(FIGURE) or 0.0, 4), number(PUBLISHED[key][1], 4)
        rows.append([evidence.title, figures[0], number(own, 2), figures[1], number(told, 2)])
    headings = ["", "F@20 here", "relative to YouTubeDNN", "F@20 in the paper", "relative to YouTubeDNN there"]
    return "\n\n".join(part for part in (markdown(headings, rows), "\n".join(_differently(found))) if part)


def _differently(found: dict[str, tuple[Evidence, float, float]]) -> Iterator[str]:
    for evidence, own, told in found.values():
        if _side(own) != _side(told):
            yield f"- {evidence.title} is {_side(own)} YouTubeDNN here, and {_side(told)} it in the paper."


def _side(share: float) -> str:
    if abs(share - 1) <= _LEVEL:
        return "level with"
    return "above" if share > 1 else "below"
