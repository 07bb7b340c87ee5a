"""Test metrics of fitted retrievers: measured alike by `evaluate`, `compare` and `demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.metrics import TailRule
    from beamwood.evaluation.protocol import PerQuery

__all__ = [
    "as_document",
    "compared",
    "evenly",
    "measure",
    "measure_sampled",
    "measure_tail",
    "parse_cuts",
    "print_table",
]

SHOWN = ("precision", "recall", "f", "ndcg", "hit_rate")


def parse_cuts(text: str | None, num_items: int, default: Sequence[int] = (20,)) -> tuple[int, ...]:
    """The cuts of "20,40", each in 1..N; without a text the default ones, of a small catalogue all its items."""
    from beamwood.errors import InputError

    if text is None:
        return tuple(sorted({min(cut, num_items) for cut in default}))
    try:
        cuts = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"--k {text!r} is no list of numbers; write --k 20,40") from None
    for cut in cuts:
        if not 1 <= cut <= num_items:
            raise InputError(f"k={cut} is outside 1..{num_items}, the number of items; choose another --k")
    return cuts


def measure(searcher: Any, split: Split, cuts: Sequence[int], rule: TailRule | None = None) -> dict[str, PerQuery]:
    """Both views of the test queries: consumed items left in ("all") and taken out ("new")."""
    from beamwood.evaluation.protocol import evaluate_split

    return evaluate_split(searcher, split, ks=cuts, rule=rule)


def measure_tail(
    searcher: Any, split: Split, cuts: Sequence[int], rule: TailRule
) -> tuple[str, int, dict[str, PerQuery]]:
    """The rule in words, how many queries have a tail label, and both views of these, judged by those labels alone.

    No view where no query has a tail label.
    """
    from beamwood.evaluation.protocol import evaluate_both
    from beamwood.evaluation.tail import tail_queries

    rare = rule.tail(split.train)
    if not rare.mask[split.test.labels.items].any():
        return rare.rule, 0, {}
    queries = tail_queries(split.test, rare)
    views = evaluate_both(searcher, queries, ks=cuts, tail=rare)
    return queries.rule, len(queries), views


def measure_sampled(
    searcher: Any, split: Split, cuts: Sequence[int], num_negatives: int, *, seed: int = 0
) -> dict[str, Any]:
    """The sampled protocol on the test queries: rule, means and bootstrap intervals, for JSON."""
    from beamwood.errors import InputError
    from beamwood.evaluation.sampled import Sampled, evaluate_sampled, sampled_rule
    from beamwood.evaluation.significance import bootstrap_interval
    from beamwood.retrieval.ranked import TwoStageSearcher

    kept = [k for k in cuts if k <= num_negatives + 1]
    if not kept:
        raise InputError(f"every cut of --k is above {num_negatives + 1}, the items of a list; choose a smaller --k")
    lists = Sampled(split.test, split.train.num_items, num_negatives=num_negatives, seed=seed)
    values = evaluate_sampled(searcher, lists, ks=kept)
    intervals = {name: bootstrap_interval(column, np.random.default_rng(seed)) for name, column in values.items()}
    rule = sampled_rule(num_negatives, seed)
    return {
        "rule": f"{rule}; of two stages the ranker's score alone" if isinstance(searcher, TwoStageSearcher) else rule,
        "metrics": {name: float(column.mean()) for name, column in values.items()},
        "interval_95": {name: [interval.low, interval.high] for name, interval in intervals.items()},
    }


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most so many of the rows 0 .. count - 1, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def as_document(views: Mapping[str, PerQuery], *, seed: int = 0) -> dict[str, Any]:
    """Means, bootstrap intervals and protocol of both views, for JSON."""
    from beamwood.evaluation.significance import bootstrap_interval

    document = {}
    for view, result in views.items():
        rng = np.random.default_rng(seed)
        intervals = {name: bootstrap_interval(column, rng) for name, column in result.values.items()}
        bounds = {name: [interval.low, interval.high] for name, interval in intervals.items()}
        document[view] = result.as_dict() | {"interval_95": bounds}
    return document


def compared(
    results: Mapping[str, Mapping[str, PerQuery]], baseline: str, metric: str, *, seed: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """Paired tests of `baseline` against the others in both views, adjusted after Holm."""
    from beamwood.evaluation.significance import compare

    tests = {}
    for view in ("all", "new"):
        values = {name: views[view].values[metric] for name, views in results.items()}
        tests[view] = [c.as_dict() for c in compare(values, baseline, np.random.default_rng(seed))]
    return tests


def print_table(results: Mapping[str, Mapping[str, PerQuery]], cuts: Sequence[int]) -> None:
    """One table for people, on stdout."""
    from rich.console import Console
    from rich.table import Table

    documents = {name: as_document(views) for name, views in results.items()}
    for view, words in (("all", "consumed items left in"), ("new", "consumed items taken out")):
        table = Table(title=f"test users, {words}", title_justify="left")
        table.add_column("method")
        for cut in cuts:
            for name in SHOWN:
                table.add_column(f"{name}@{cut}")
        for method, document in documents.items():
            metrics, bounds = document[view]["metrics"], document[view]["interval_95"]
            cells = []
            for cut in cuts:
                for name in SHOWN:
                    key = f"{name}@{cut}"
                    low, high = bounds[key]
                    spread = f" ±{(high - low) / 2:.4f}" if name == "f" else ""
                    cells.append(f"{metrics[key]:.4f}{spread}")
            table.add_row(method, *cells)
        Console(width=max(100, 24 + 11 * len(SHOWN) * len(cuts) + 8 * len(cuts))).print(table)
