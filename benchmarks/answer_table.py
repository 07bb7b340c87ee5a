"""Answers side by side as Markdown: a table for each log, findings on the tree and the indexes, and the bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from beamwood.evaluation.significance import Interval, holm, paired_t, t_interval
from benchmarks.bars import bars_of
from benchmarks.figures import held, markdown, number, p_value
from benchmarks.lines import Line
from benchmarks.suite import Suite

__all__ = ["answer_table", "bar_table", "equal_time", "said"]

Values = Mapping[str, NDArray[np.float64]]

_HEADINGS = (
    "",
    "ms, median",
    "ms, 99th percentile",
    "multiply-adds at peak, M",
    "Python overhead, ms",
    "scored",
    "F@20, seen kept",
    "F@20, seen removed",
    "users",
    "overlap@20 with exact",
    "MB",
)


def answer_table(suite: Suite, line: Line, values: Values) -> str:
    """The table of a log's line, and the sentences that its results select."""
    sizes = " users, ".join(f"{line.data[key]:,}" for key in ("users", "items")) + " items"
    heading = f"**{suite.logs[line.log].title}** (`{line.log}`): {sizes}; {line.queries:,} test users; {made_on(line)}"
    sentences = "\n".join(f"- {each}" for each in said(line, values))
    return f"{heading}\n\n{markdown(_HEADINGS, _rows(line))}\n\n{sentences}"


def bar_table(lines: Sequence[Line]) -> str:
    """The bars of all logs, and whether each holds."""
    rows = [
        [line.log, name, number(bar.value, 3), f"{'≤' if bar.most else '≥'} {number(bar.bound, 3)}", held(bar.holds)]
        for line in lines
        for name, bar in bars_of(line.log, line.data["items"], line.figures)
    ]
    return markdown(["log", "bar", "measured", "bound", "holds"], rows)


def made_on(line: Line) -> str:
    """The date and the machine of the line."""
    peak, load = line.figures["machine/multiply_adds_a_ms"] / 1e6, line.figures["machine/load"]
    kernels = f"{line.date}, kernels of level {line.machine.get('level')}"
    return f"{kernels}, {number(peak, 1)} M multiply-adds a ms at peak, load {number(load, 1)}"


def said(line: Line, values: Values) -> list[str]:
    """Findings on the tree as fitted, and on indexes whose candidates the tree's scorer reranks."""
    return [*_of_tree(line), *_of_indexes(line, values)]


def equal_time(line: Line, values: Values) -> dict[str, tuple[str | None, Interval, float]]:
    """For each row in which the scorer reranks an index's candidates: the best search of the tree that is no slower,
    the gain in F@20 over it, and the p-value after Holm's correction.

    If no search of the tree is as fast, the first is None and the fastest is compared. F@20 is the mean over both
    views, paired over users.
    """
    figures, trees = line.figures, [key for key in line.training["titles"] if key.startswith("tree")]
    found: dict[str, tuple[str | None, Interval, float]] = {}
    for key in line.training["behind"] if trees else ():
        within = [tree for tree in trees if figures[f"{tree}/ms/median"] <= figures[f"{key}/ms/median"]]
        best = max(within, key=lambda tree: figures[f"{tree}/both"], default=None)
        rival = min(trees, key=lambda tree: figures[f"{tree}/ms/median"]) if best is None else best
        one, other = values[f"{key}/both"], values[f"{rival}/both"]
        change = one[: len(other)] - other[: len(one)]
        found[key] = best, t_interval(change), paired_t(change) if change.any() else 1.0
    p_values = holm(np.array([p for _, _, p in found.values()])) if found else []
    return {key: (best, change, float(p)) for (key, (best, change, _)), p in zip(found.items(), p_values, strict=True)}


def _rows(line: Line) -> Iterator[list[str]]:
    figures, peak = line.figures, line.figures["machine/multiply_adds_a_ms"]
    for key, title in line.training["titles"].items():

        def cell(name: str, digits: int, key: str = key) -> str:
            value = figures.get(f"{key}/{name}")
            return "" if value is None else number(value, digits)

        work = figures[f"{key}/ms/median"] * peak / 1e6
        yield [
            title,
            cell("ms/median", 2),
            cell("ms/p99", 2),
            number(work, 1),
            cell("ms/around", 2),
            cell("scored", 0),
            cell("kept/f@20", 4),
            cell("removed/f@20", 4),
            cell("users", 0),
            cell("overlap", 3),
            cell("mb", 1),
        ]


def _of_tree(line: Line) -> Iterator[str]:
    figures = line.figures
    if "lost/kept" not in figures:
        return
    nodes, ms = (figures[f"tree full/{name}"] / figures[f"tree/{name}"] for name in ("scored", "ms/median"))
    lost = {view: number(figures[f"lost/{view}"], 2) for view in ("kept", "removed")}
    yield (
        f"The tree as fitted scores {number(nodes, 1)} times fewer nodes than its full beam, and its latency is "
        f"{number(ms, 1)} times lower. It loses {lost['kept']} % of F@20 with seen items kept, {lost['removed']} % "
        "with seen items removed (a negative loss is a gain)."
    )


def _of_indexes(line: Line, values: Values) -> Iterator[str]:
    titles, found = line.training["titles"], equal_time(line, values)
    better = {key: each for key, each in found.items() if each[0] and each[2] < 0.05 and each[1].mean > 0}
    within = {key: each for key, each in found.items() if each[0] and key not in better}
    for key, (tree, change, p) in better.items():
        yield (
            f"**At equal latency, {titles[key]} has a higher F@20 than the tree** ({titles[str(tree)]}): "
            f"{_interval(change)}, p {p_value(p)}."
        )
    if within:
        listed = "; ".join(f"{titles[key]} {_interval(each[1])}" for key, each in within.items())
        start = "No other index" if better else "No index"
        yield (
            f"{start} reranked by the tree's scorer is significantly above the best search of the tree at equal latency"
            f": {listed}."
        )
    for key, (tree, change, _) in found.items():
        if tree is None:
            yield (
                f"{titles[key]} is faster than every search of the tree here; its F@20 against the fastest of them: "
                f"{_interval(change)}."
            )


def _interval(change: Interval) -> str:
    return f"{_signed(change.mean)} [{_signed(change.low)}, {_signed(change.high)}]"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value, 4)
