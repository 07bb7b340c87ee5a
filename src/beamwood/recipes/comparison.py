"""The results of a comparison of methods, with tables, verdicts and a JSON-able document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.evaluation.cost import Cost, measure_cost
from beamwood.evaluation.protocol import evaluate_split
from beamwood.evaluation.results import PerQuery
from beamwood.evaluation.summary import as_document, for_whom, measure_tail
from beamwood.evaluation.tail import TailRule
from beamwood.evaluation.verdict import Verdict, judge_both, verdicts_in_words
from beamwood.notebook import lines, table, text
from beamwood.types import Searcher

__all__ = ["Comparison"]


@dataclass
class Comparison:
    """The results of a comparison, in the order of the methods.

    `results`: by method, then view ("kept", "removed"), the metrics of each query. `costs`: of an answer, by method.
    `seconds`: of each fit. `simplest`: the method that the others have to beat. `tail`: if requested, by method the
    rule in words, the number of queries with a tail label, and both views of these. `left_out`: by method, why it
    exceeded the time limit or failed. `beyond`: references that do not compete, such as the optimum.
    """

    split: Split
    cuts: tuple[int, ...]
    simplest: str
    rule: TailRule = field(default_factory=TailRule)
    with_tail: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, dict[str, PerQuery]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    tail: dict[str, tuple[str, int, dict[str, PerQuery]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    beyond: dict[str, dict[str, PerQuery]] = field(default_factory=dict)

    def add(self, name: str, searcher: Searcher) -> None:
        """Evaluate a searcher, and add its results under this name; verdicts are then made anew."""
        results = evaluate_split(searcher, self.split, ks=self.cuts, rule=self.rule)
        cost = measure_cost(searcher, self.split.test, self.cuts[0])
        if self.with_tail:
            self.tail[name] = measure_tail(searcher, self.split, self.cuts, self.rule)
        # Last, so that an error leaves no half of a method.
        self.results[name], self.costs[name] = results, cost
        for verdicts in ("verdicts", "tail_verdicts"):
            self.__dict__.pop(verdicts, None)

    @property
    def metric(self) -> str:
        """The metric that decides."""
        return f"f@{self.cuts[0]}"

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """By view the winner, and whether its lead is significant."""
        return judge_both(self.results, self.metric, self.simplest)

    @cached_property
    def tail_verdicts(self) -> dict[str, Verdict]:
        """The same on the labels of the tail."""
        return judge_both(self.on_tail()[2], self.metric, self.simplest, on_tail=True)

    def verdicts_by(self, metric: str) -> dict[str, Verdict]:
        """The verdicts by another metric, such as "ndcg@20". Errors: a metric that was not measured."""
        measured = next(iter(self.results.values()))["kept"].values
        if metric not in measured:
            raise InputError(f"metric={metric!r} was not measured{nearest(str(metric), measured)}")
        return judge_both(self.results, metric, self.simplest)

    @property
    def conclusion(self) -> str:
        """The verdicts in words."""
        return verdicts_in_words(self.verdicts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The titles of a table of the methods."""
        return "method", f"{self.metric} kept", "removed", "ms a user", "fit, s"

    def row(self, name: str) -> tuple[Any, ...]:
        """The row of a method: its name, the means of both views, milliseconds of an answer, seconds of the fit."""
        means = (view.values[self.metric].mean() for view in self.results[name].values())
        return name, *means, self.costs[name].milliseconds, self.seconds.get(name)

    def __repr__(self) -> str:
        rows = map(self.row, self.results)
        return "\n".join([lines(self.columns, rows), *([self.conclusion] if len(self.results) > 1 else [])])

    def _repr_html_(self) -> str:
        shown = table(self.columns, map(self.row, self.results))
        return shown + text([self.conclusion] if len(self.results) > 1 else [])

    def on_tail(self) -> tuple[str, int, dict[str, dict[str, PerQuery]]]:
        """The rule in words, the number of queries with a tail label, and the views of each method.

        Errors: the comparison was made without a tail.
        """
        if not self.tail:
            raise InputError("the tail was not measured; compare with tail=TailRule(), where two test users have some")
        described, queries, _ = next(iter(self.tail.values()))
        return described, queries, {name: views for name, (_, _, views) in self.tail.items()}

    def document(self) -> dict[str, Any]:
        """All results, JSON-able."""
        document: dict[str, Any] = {
            "methods": {name: as_document(views) for name, views in self.results.items()},
            "seconds": self.seconds,
            "costs": {name: cost.as_dict() for name, cost in self.costs.items()},
            "verdict": {view: verdict.as_dict() for view, verdict in self.verdicts.items()},
            "paired_tests": _as_tests(self.verdicts),
            "conclusion": self.conclusion,
            "for_whom": for_whom(self.results, self.split, self.metric),
            "split": self.split.rule,
            "data": _facts(self.split),
        }
        if self.beyond:
            document["beyond"] = {name: as_document(views) for name, views in self.beyond.items()}
        if self.left_out:
            document["left_out"] = self.left_out
        if self.tail:
            described, queries, views = self.on_tail()
            document["tail"] = {
                "rule": described,
                "queries": queries,
                "methods": {name: as_document(own) for name, own in views.items()},
                "verdict": {view: verdict.as_dict() for view, verdict in self.tail_verdicts.items()},
                "paired_tests": _as_tests(self.tail_verdicts),
            }
        return document


def _as_tests(verdicts: Mapping[str, Verdict]) -> dict[str, list[dict[str, Any]]]:
    """By view the paired tests of the winner against each other method."""
    return {view: [test.as_dict() for test in verdict.tests] for view, verdict in verdicts.items()}


def _facts(split: Split) -> dict[str, Any]:
    """The data and split behind the results."""
    return {
        "users": len(split.dataset.users),
        "items": len(split.dataset.items),
        "events": len(split.dataset.histories.items),
        "test_users": len(split.test),
        "fingerprint": split.dataset.fingerprint(),
    }
