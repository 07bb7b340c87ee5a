"""`beamwood evaluate`: the test metrics of a saved retriever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np
import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import note, print_json, split_of
from beamwood.cli.measure import (
    as_document,
    measure,
    measure_sampled,
    measure_stages,
    measure_tail,
    parse_cuts,
    print_table,
    stages_in_words,
)
from beamwood.errors import InputError, nearest

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.gap import TailGap
    from beamwood.evaluation.metrics import TailRule

__all__ = ["evaluate", "tail_rule"]

# All items are scored for so many test users at most.
_GAP_QUERIES = 2000
# Of a ranker, which looks at every pair anew.
_DEAR_GAP_QUERIES = 200
# Searchers whose scores are what a softmax was trained on; others' are sums of counts or likelihoods.
_LOGITS = ("sequence", "sasrec", "two-tower", "tree-din")


def evaluate(
    folder: Annotated[str, typer.Argument(help="A folder that `beamwood fit` saved.")],
    log: Annotated[Optional[str], typer.Option("--log", help="The log, where it has moved since.")] = None,  # noqa: UP045
    items: o.Items = None,
    k: Annotated[str, typer.Option("--k", help="Cuts, as 20,40.")] = "20,40",
    tail: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--tail", min=0.001, max=0.999, help="Also on labels among this share of the rarest items."),
    ] = None,
    tail_of: Annotated[
        str, typer.Option("--tail-of", help="What --tail is a share of: items or interactions.")
    ] = "items",
    html: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--html", help="Also write one page here; with --tail it draws what the tail is left."),
    ] = None,
    sampled: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--sampled", min=1, help="Also each label among this many drawn items (99 in many papers)."),
    ] = None,
    json: o.Json = False,
) -> None:
    """Measure on the test part of the log that the retriever was fitted on, which training never saw."""
    from beamwood.retrieval.retriever import Retriever

    rule = tail_rule(tail, tail_of)
    retriever = Retriever.load(folder)
    cuts = parse_cuts(k, len(retriever.items))
    split = split_of(folder, retriever.metadata, log, items)
    views = measure(retriever.searcher, split, cuts, rule)
    rare, gap = None, None
    if tail is not None:
        rare = measure_tail(retriever.searcher, split, cuts, rule)
        gap = measure_gap(retriever.searcher, split, rule)
    if html is not None:
        tables = {"views": as_document(views)} | ({} if rare is None else {"tail": as_document(rare[2])})
        write_page(html, retriever.metadata["method"], split.rule, rule.describe(), tables, gap)
    among = None if sampled is None else measure_sampled(retriever.searcher, split, cuts, sampled)
    stages = measure_stages(retriever.searcher, split, cuts)
    if json:
        document = {
            "folder": folder,
            "method": retriever.metadata["method"],
            "split": split.rule,
            "views": as_document(views),
        }
        if rare is not None:
            document["tail"] = {"rule": rare[0], "queries": rare[1], "views": as_document(rare[2])}
            document["tail"]["probability_gap"] = None if gap is None else gap.as_dict()
        if among is not None:
            document["sampled"] = among
        if stages is not None:
            document["stages"] = stages.as_dict()
        print_json(document)
        return
    print_table({retriever.metadata["method"]: views}, cuts)
    for view, result in views.items():
        shown = ", ".join(f"{name} {value:.4f}" for name, value in result.overall.items())
        print(f"{view}: {shown} ({result.tail_rule})")
    if rare is not None:
        print(f"\non the {rare[1]} test users with a tail label; {rare[0]}")
        print_table({retriever.metadata["method"]: rare[2]}, cuts)
    if gap is not None:
        print(
            f"probability ({gap.made_by}) of a tail item less that of any item, in 1 / number of items, over "
            f"{len(gap.gaps)} test users: mean {gap.gaps.mean():+.4f}, median {np.median(gap.gaps):+.4f}"
        )
    if among is not None:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in among["metrics"].items())
        print(f"\nsampled protocol: {shown}\n({among['rule']})")
    if stages is not None:
        print()
        for line in stages_in_words(stages):
            print(line)


def tail_rule(share: float | None, of: str) -> TailRule:
    """The rule of --tail and --tail-of; without a share the bottom 20 %."""
    from beamwood.evaluation.metrics import TailRule

    if of not in ("items", "interactions"):
        raise InputError(f"--tail-of {of!r} is unknown{nearest(of, ['items', 'interactions'])}")
    return TailRule(of=of, share=0.2 if share is None else share)


def measure_gap(searcher: Any, split: Split, rule: TailRule) -> TailGap | None:
    """What the tail is left by the retriever, for test users drawn evenly; None for one that knows users alone."""
    from beamwood.evaluation.gap import tail_gap
    from beamwood.types import needs_users

    mask = rule.mask(split.train.item_counts)
    if needs_users(searcher) or not 0 < mask.sum() < len(mask):
        return None
    count = len(split.test)
    most = _DEAR_GAP_QUERIES if hasattr(searcher, "scorer") else _GAP_QUERIES
    rows = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
    return tail_gap(searcher.score, split.test.histories.take(rows), mask, logits=searcher.kind in _LOGITS)


def write_page(
    path: str, method: str, split: str, rule: str, documents: dict[str, dict[str, Any]], gap: TailGap | None
) -> None:
    """The tables of both views, of all test users and of those with a tail label, and the gap as a histogram."""
    import html as escape

    from beamwood.evaluation.page import page, table

    parts = [f"<p>{escape.escape(split)}; {escape.escape(rule)}</p>"]
    for name, views in documents.items():
        who = "all test users" if name == "views" else "test users with a tail label"
        for document in views.values():
            rows = []
            for metric, value in document["metrics"].items():
                low, high = document["interval_95"].get(metric, (None, None))
                rows.append((metric, f"{value:.4f}", "" if low is None else f"{low:.4f} to {high:.4f}"))
            consumed = document["protocol"]["consumed"]
            parts.append(table(f"{who}, {consumed}", ("metric", method, "95 % interval"), rows))
    if gap is not None:
        parts += [gap.figure(), f"<p>Probabilities: {escape.escape(gap.made_by)}; {len(gap.gaps)} test users.</p>"]
    try:
        Path(path).write_text(page(f"{method} on the test data", parts), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--html {path} cannot be written: {error}") from None
    note(f"wrote {path}")
