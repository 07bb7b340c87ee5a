"""Models and indexes side by side, and their bars.

python -m benchmarks.rivals [--json]           the bars of the topics rivals, gowalla and planted
python -m benchmarks.rivals --short [--json]   a planted market, fitted and measured in minutes; its lines are not kept

Bars: each index relative to exact search, the tree against the best rival, and LightGCN against its authors' figures at
the same epoch. They are of the metric that the topic judges last. The exit code is 0 once all is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar
from benchmarks.bench import Bench, Place
from benchmarks.command import exit_code
from benchmarks.evidence import Evidence, gather
from benchmarks.origin import check_committed
from benchmarks.published import shares
from benchmarks.tables import rendered
from benchmarks.verdicts import metric_words

__all__ = ["document", "main"]

ROOT = Path(__file__).parents[1]
TOPICS = ("rivals", "gowalla", "planted")
TOLD = "lightgcn"
"""The topic with published figures."""
INDEXED = "two_tower"
"""The method whose vectors the indexes hold."""
# The least metric of an index, as a share of exact search.
INDEXES = {"hnsw": 0.98, "ivf": 0.95, "clusters": 0.9, "scann": 0.98, "qinco": 0.9, "rotlex": 0.95}
TREES = ("dtr", "dtr+cooccurrence", "dtr+transitions")
# The largest relative difference of LightGCN from its published figures.
_AWAY = 0.02


def rival_bars(bench: Bench) -> dict[str, Bar]:
    """The bars by name, for rows that have a line."""
    found: dict[str, Bar] = {}
    for topic, log, rows in _measured(bench, TOPICS):
        found |= {f"{log}: {name}": bar for name, bar in _of_log(rows, bench.suite.topics[topic].judged[-1])}
    for _, log, rows in _measured(bench, (TOLD,)):
        found |= {f"{log}: {name}": bar for name, bar in _of_published(rows)}
    return found


def _measured(bench: Bench, topics: Sequence[str]) -> Iterator[tuple[str, str, Mapping[str, Evidence]]]:
    """Each topic and log that has lines, with its rows but that of an optimum."""
    for name, topic in ((name, topic) for name, topic in bench.suite.topics.items() if name in topics):
        for log in topic.logs:
            rows = gather(bench, name, log)
            if rows:
                yield name, log, {key: row for key, row in rows.items() if topic.rows[key].recipe != "optimum"}


def _of_log(rows: Mapping[str, Evidence], judged: str) -> Iterator[tuple[str, Bar]]:
    figures = {key: value for key, row in rows.items() if (value := row.figure(judged)) is not None}
    for kind, least in INDEXES.items():
        if kind in figures and figures.get(INDEXED):
            yield (
                f"{kind}, share of exact {metric_words(judged)}",
                Bar(figures[kind] / figures[INDEXED], least, most=False),
            )
    trees = [figures[key] for key in TREES if key in figures]
    others = [value for key, value in figures.items() if key not in TREES]
    if trees and others:
        yield "the best tree over the best rival", Bar(max(trees) / max(max(others), 1e-9), 1.0, most=False)


def _of_published(rows: Mapping[str, Evidence]) -> Iterator[tuple[str, Bar]]:
    for row in rows.values():
        line = row.lines[0]
        for name, told in line.figures.items():
            if name.startswith("published/"):
                figure = name.removeprefix("published/")
                away = abs(line.figures[f"removed/{figure}"] / told - 1)
                yield f"{figure}, deviation from the published figure", Bar(away, _AWAY)


def document(bench: Bench) -> dict[str, Any]:
    """All results as a JSON document."""
    logs = {
        log: {
            key: {"title": row.title, "seeds": len(row.lines), "seconds": row.seconds(), **row.figures()}
            for key, row in rows.items()
        }
        for _, log, rows in _measured(bench, TOPICS)
    }
    told = {} if bench.place.short else {key: {"here": a, "paper": b} for key, (_, a, b) in shares(bench).items()}
    missing = [run.name for run in bench.missing([run for run in bench.suite if run.topic in (*TOPICS, TOLD)])]
    own = {name: bar.as_dict() for name, bar in rival_bars(bench).items()}
    return {"logs": logs, "relative to YouTubeDNN's F@20": told, "missing": missing, "bars": own}


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rivals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="fit and measure a planted market, in minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON document, with a member `bars`")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Exit code: 0 if everything was measured, even if a bar fails."""
    bench, made = Bench(Place(arguments.root, arguments.short)), True
    if arguments.short:
        with redirect_stdout(sys.stderr), bench.alone():
            for each in [run for run in bench.suite if run.topic in TOPICS]:
                made &= bench.in_process(each)
    elif arguments.root == ROOT:
        check_committed(ROOT)
    if arguments.json:
        print(json.dumps(document(bench), indent=2))
        return 0 if made else 1
    for topic in TOPICS:
        if topic in bench.suite.topics:
            print(rendered(bench, topic))
    for name, bar in rival_bars(bench).items():
        print(bar.line(name))
    return 0 if made else 1


def main() -> int:
    return exit_code("benchmarks.rivals", lambda: run(parser().parse_args()))


if __name__ == "__main__":
    sys.exit(main())
