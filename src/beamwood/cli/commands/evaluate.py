"""`beamwood evaluate`: the test metrics of a saved retriever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import numpy as np
import typer

from beamwood import load
from beamwood.blocks import evenly
from beamwood.cli import options as o
from beamwood.cli.measure import cuts_within, measure_sampled, parse_cuts, print_table
from beamwood.cli.output import check_page, finish
from beamwood.cli.stages import TwoStages, check_staged, measure_stages, ranks_pairs
from beamwood.errors import InputError, nearest
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.gap import TailGap
    from beamwood.evaluation.results import PerQuery
    from beamwood.evaluation.tail import TailRule
    from beamwood.types import Searcher

__all__ = ["evaluate", "tail_rule", "with_tail_label"]

# The most test users for whom all items are scored.
_GAP_QUERIES = 2000
# For a ranker, which scores every pair separately.
_DEAR_GAP_QUERIES = 200

_Cuts = Annotated[
    o.Text, typer.Option("-k", "--k", metavar="N,N", help="Lengths of the evaluated lists; 20,40 by default.")
]
_Sampled = Annotated[
    o.Count,
    typer.Option(
        "--sampled", min=1, metavar="N", help="Also rank each label among N sampled items; 99 in many papers."
    ),
]
_OneStageQueries = Annotated[
    o.Count,
    typer.Option(
        "--one-stage-queries",
        min=0,
        metavar="N",
        hidden=True,
        help="two_stage: test users for whom the ranker also ranks the whole catalogue; 0: none. Default: 200, "
        "or as many as need two million scores.",
    ),
]


def evaluate(
    folder: o.FittedFolder,
    log: o.MovedLog = None,
    items: o.MovedItems = None,
    k: _Cuts = None,
    tail: o.Tail = None,
    tail_of: o.TailOf = None,
    html: o.Page = None,
    sampled: _Sampled = None,
    one_stage_queries: _OneStageQueries = None,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Measure a retriever on the test part of its log, which training never saw."""
    from beamwood.cli.origin import split_of
    from beamwood.evaluation.protocol import evaluate_split
    from beamwood.evaluation.summary import measure_tail

    if html is not None:
        check_page(html)
    rule = tail_rule(tail, tail_of)
    retriever = load(folder, method, verify=True)
    cuts = parse_cuts(k, len(retriever.items), (20, 40))
    if sampled is not None:
        cuts_within(cuts, sampled)
    split = split_of(folder, retriever, log, items)
    searcher = retriever.searcher
    if one_stage_queries is not None:
        check_staged(folder, retriever)
    measured = EvaluationReport(
        folder,
        retriever.metadata["method"],
        split,
        cuts,
        # First the parts that may be refused, so that no work is wasted.
        gap=None if tail is None else measure_gap(searcher, split, rule),
        sampled=None if sampled is None else measure_sampled(searcher, split, cuts, sampled),
        views=evaluate_split(searcher, split, ks=cuts, rule=rule),
        rare=None if tail is None else measure_tail(searcher, split, cuts, rule),
        stages=measure_stages(searcher, split, cuts, one_stage_queries),
    )
    document = measured.document() if json or html is not None else {}
    page = None
    if html is not None:
        from beamwood.cli.details import details
        from beamwood.report.evaluate import evaluation_page

        document |= details(searcher, split, cuts)
        page = html, evaluation_page(document)
    finish(document, measured.show, as_json=json, page=page)


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The results for a saved retriever; None where not requested or not applicable."""

    folder: str
    method: str
    split: Split
    cuts: tuple[int, ...]
    views: dict[str, PerQuery]
    rare: tuple[str, int, dict[str, PerQuery]] | None
    gap: TailGap | None
    sampled: dict[str, Any] | None
    stages: TwoStages | None

    def document(self) -> dict[str, Any]:
        """All results, JSON-able."""
        from beamwood.evaluation.summary import as_document, for_whom

        document: dict[str, Any] = {"folder": self.folder, "method": self.method, "split": self.split.rule}
        document["views"] = as_document(self.views)
        document["for_whom"] = for_whom({self.method: self.views}, self.split, f"f@{self.cuts[0]}")
        if self.rare is not None:
            rule, queries, views = self.rare
            gap = None if self.gap is None else self.gap.as_dict()
            document["tail"] = {"rule": rule, "queries": queries, "views": as_document(views), "probability_gap": gap}
        if self.sampled is not None:
            document["sampled"] = self.sampled
        if self.stages is not None:
            document["stages"] = self.stages.as_dict()
        return document

    def show(self) -> None:
        """Print all results for people."""
        print_table({self.method: self.views}, self.cuts)
        for view, result in self.views.items():
            shown = ", ".join(f"{name} {value:.4f}" for name, value in result.overall.items())
            print(f"{view}: {shown} ({result.tail_rule})")
        if self.rare is not None:
            rule, queries, views = self.rare
            print(f"\n{with_tail_label(queries)}; {rule}")
            if views:
                print_table({self.method: views}, self.cuts)
        if self.gap is not None:
            gaps = self.gap.gaps
            print(
                f"probability ({self.gap.made_by}) of a tail item less that of any item, in 1 / number of items, over "
                f"{counted(len(gaps), 'test user')}: mean {gaps.mean():+z.4f}, median {np.median(gaps):+z.4f}"
            )
        if self.sampled is not None:
            shown = ", ".join(f"{name} {value:.4f}" for name, value in self.sampled["metrics"].items())
            print(f"\nsampled protocol: {shown}\n({self.sampled['rule']})")
        if self.stages is not None:
            print("\n" + "\n".join(self.stages.in_words()))


def tail_rule(share: float | None, of: str | None) -> TailRule:
    """The rule of --tail and --tail-of; without a share the bottom 20 %."""
    from beamwood.evaluation.tail import TailOf, TailRule

    if share is None and of is not None:
        raise InputError("--tail-of says what --tail is a share of; give --tail too, as --tail 0.2, or leave it out")
    of = "items" if of is None else of
    if of not in get_args(TailOf):
        raise InputError(f"--tail-of {of!r} is unknown{nearest(of, get_args(TailOf))}")
    return TailRule(of=cast(TailOf, of), share=0.2 if share is None else share)


def with_tail_label(count: int) -> str:
    """The users behind the metrics on the tail."""
    if not count:
        return "no test user has a tail label: raise --tail"
    return f"on the {counted(count, 'test user')} with a tail label"


def measure_gap(searcher: Searcher, split: Split, rule: TailRule) -> TailGap:
    """The popularity gap of the tail, for evenly sampled test users."""
    from beamwood.evaluation.gap import tail_gap

    rows = evenly(len(split.test), _DEAR_GAP_QUERIES if ranks_pairs(searcher) else _GAP_QUERIES)
    return tail_gap(searcher, split.test.take(rows).query(searcher.needs), rule.tail(split.train).mask)
