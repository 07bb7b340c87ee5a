"""Test metrics of fitted retrievers, shared by `evaluate`, `compare` and `demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.results import PerQuery

__all__ = ["cuts_of", "cuts_within", "measure_sampled", "parse_cuts", "print_table"]

SHOWN = ("precision", "recall", "f", "ndcg", "hit_rate")


def cuts_of(text: str | None) -> tuple[int, ...]:
    """The cuts of "20,40", ascending; none without a text."""
    try:
        return () if text is None else tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"--k {text!r} is not a list of numbers; write --k 20,40") from None


def parse_cuts(text: str | None, num_items: int, default: Sequence[int] = (20,)) -> tuple[int, ...]:
    """The cuts of "20,40", each in 1..N; by default the given ones, limited to the catalogue."""
    cuts = cuts_of(text) or tuple(sorted({min(cut, num_items) for cut in default}))
    for cut in cuts:
        if not 1 <= cut <= num_items:
            raise InputError(f"k={cut} is outside 1..{num_items}, the number of items; choose another --k")
    return cuts


def cuts_within(cuts: Sequence[int], num_negatives: int) -> list[int]:
    """The cuts that fit lists of a label and `num_negatives` drawn items. Errors: none does."""
    kept = [k for k in cuts if k <= num_negatives + 1]
    if not kept:
        raise InputError(
            f"--k {min(cuts)} is above {num_negatives + 1}, the items that --sampled {num_negatives} ranks; lower "
            f"--k, or draw at least {min(cuts) - 1}"
        )
    return kept


def measure_sampled(searcher: Any, split: Split, cuts: Sequence[int], num_negatives: int) -> dict[str, Any]:
    """The sampled protocol on the test queries: rule, means and bootstrap intervals, for JSON."""
    from beamwood.evaluation.sampled import Sampled, evaluate_sampled
    from beamwood.evaluation.significance import bootstrap_intervals

    kept = cuts_within(cuts, num_negatives)
    lists = Sampled(split.test, split.train.num_items, num_negatives=num_negatives)
    values = evaluate_sampled(searcher, lists, ks=kept)
    intervals = bootstrap_intervals(values, np.random.default_rng(0))
    return {
        "rule": lists.rule,
        "metrics": {name: float(column.mean()) for name, column in values.items()},
        "interval_95": {name: [interval.low, interval.high] for name, interval in intervals.items()},
    }


def print_table(results: Mapping[str, Mapping[str, PerQuery]], cuts: Sequence[int]) -> None:
    """Print a table of both views; for several methods a table for each view."""
    from rich.console import Console
    from rich.table import Table

    from beamwood.evaluation.results import VIEWS
    from beamwood.evaluation.summary import as_document

    documents = {name: as_document(views) for name, views in results.items()}
    names = [f"{name}@{cut}" for cut in cuts for name in SHOWN]
    if len(documents) == 1:
        ((method, document),) = documents.items()
        table = Table("test users", *(VIEWS[view] for view in VIEWS), title=method, title_justify="left")
        for name in names:
            table.add_row(name, *(_cell(document[view], name) for view in VIEWS))
        Console(width=80, markup=False, emoji=False).print(table)
        return
    for view, words in VIEWS.items():
        table = Table("method", *names, title=f"test users, {words}", title_justify="left")
        for method, document in documents.items():
            table.add_row(method, *(_cell(document[view], name) for name in names))
        Console(width=max(100, 24 + 19 * len(names)), markup=False, emoji=False).print(table)


def _cell(document: Mapping[str, Any], name: str) -> str:
    """A mean, for f with half the width of its interval."""
    low, high = document["interval_95"][name]
    spread = f" ±{(high - low) / 2:.4f}" if name.startswith("f@") else ""
    return f"{document['metrics'][name]:.4f}{spread}"
