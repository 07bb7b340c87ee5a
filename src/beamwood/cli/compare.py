"""`beamwood compare`: methods on the same split, with paired tests; says so when the tree loses."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np
import typer

from beamwood.cli import options as o
from beamwood.cli.evaluate import tail_rule, with_tail_label
from beamwood.cli.expand import expanded
from beamwood.cli.fit import fit_method, starting_anew
from beamwood.cli.inputs import Source, load_data, load_split, note, parse_duration, print_json
from beamwood.cli.measure import as_document, compared, measure, measure_tail, parse_cuts, print_table
from beamwood.errors import InputError
from beamwood.evaluation.protocol import VIEWS

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.metrics import TailRule
    from beamwood.evaluation.protocol import PerQuery
    from beamwood.methods import Method
    from beamwood.retrieval.retriever import Retriever

__all__ = ["compare", "verdict"]


@expanded
def compare(
    log: o.LogPath,
    *,
    methods: Annotated[
        str,
        typer.Option(
            "--methods", help="Methods, separated by commas; dtr+cooccurrence: the second's score added to the first's."
        ),
    ] = "popularity,cooccurrence,transitions,ease,two_tower,dtr,dtr+cooccurrence,dtr+ease",
    split: o.SplitName = "users",
    seed: o.Seed = 2026,
    k: Annotated[Optional[str], typer.Option("--k", help="Cuts, as 20,40; 20 where none are given.")] = None,  # noqa: UP045
    tail: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--tail", min=0.001, max=0.999, help="Also on labels among this share of the rarest items."),
    ] = None,
    tail_of: o.TailOf = "items",
    time_limit: o.TimeLimit = None,
    reading: o.ReadOptions,
    json: o.Json = False,
) -> None:
    """Fit several methods on the same training users and compare them on the same test users."""
    sums = named_sums(methods)
    check_alone(sums, split)
    limit, rule = parse_duration(time_limit), tail_rule(tail, tail_of)
    data = load_split(load_data(Source.of(log, reading)), split, {"seed": seed})
    cuts = parse_cuts(k, len(data.dataset.items))
    if len(data.test) < 2:
        raise InputError(
            "the split leaves 1 test user, of whom nothing can be tested; give more users or another --split"
        )
    on_tail = 0 if tail is None else num_with_tail_label(data, rule)
    if tail is not None and on_tail < 2:
        note(f"--tail is left out: {on_tail} test users have a tail label, and a comparison needs 2; raise the share")
    measured = Comparison(data, cuts, rule, with_tail=on_tail >= 2)
    with starting_anew("nothing is kept of a comparison"), tempfile.TemporaryDirectory() as scratch:
        for name, searcher in fitted_in_turn(sums, data, scratch, measured.seconds, seed=seed, limit=limit):
            measured.add(name, searcher)
    if json:
        print_json(measured.document())
    else:
        measured.show()


def named_sums(methods: str) -> dict[str, list[Method]]:
    """The sums that are compared by name. Errors: fewer than two, or two of one name."""
    from beamwood.methods.sums import parts

    listed = [parts(name.strip()) for name in methods.split(",") if name.strip()]
    sums = {"+".join(method.name for method in each): each for each in listed}
    known: dict[str, Method] = {}
    twice = any(known.setdefault(method.name, method) != method for each in listed for method in each)
    if twice or len(sums) != len(listed) or len(sums) < 2:
        raise InputError(f"--methods {methods!r} must name at least two different methods")
    return sums


def check_alone(sums: Mapping[str, Sequence[Method]], split: str) -> None:
    """Errors: a method that goes on from a fitted one, or whose own settings do not fit the split."""
    for method in (method for each in sums.values() for method in each):
        name, needs = method.name, method.needs
        if not needs.alone:
            option = next(each.option for each in needs.fitted if each.required)
            raise InputError(
                f"{name} goes on from a fitted model, and compare fits each method by itself; fit it by `beamwood fit "
                f"LOG --method {name} {option} FOLDER` and judge both folders by `beamwood evaluate`"
            )
        if split == "users" and needs.knows_users(method.Config()):
            raise InputError(
                f"{name} knows the users of training only, but --split users tests on others; use --split "
                f"leave-one-out, time or boundary, or leave {name} out"
            )


def fitted_in_turn(
    sums: Mapping[str, Sequence[Method]],
    data: Split,
    scratch: str,
    seconds: dict[str, float],
    *,
    seed: int,
    limit: float | None,
) -> Iterator[tuple[str, Any]]:
    """The name and the searcher of each sum; every method is fitted once, and kept while a later sum has it."""
    from beamwood.methods.sums import sum_of

    fitted: dict[str, Retriever] = {}
    names = list(sums)
    for place, name in enumerate(names):
        for method in sums[name]:
            if method.name not in fitted:
                began, out = time.perf_counter(), f"{scratch}/{method.name}"
                fitted[method.name] = fit_method(method, data, method.Config(), out=out, seed=seed, limit=limit)
                seconds[method.name] = round(time.perf_counter() - began, 1)
                note(f"{method.name}: fitted in {seconds[method.name]} s")
        began, parts = time.perf_counter(), [method.name for method in sums[name]]
        searcher = sum_of([fitted[part] for part in parts], data, seed=seed).searcher
        if len(parts) > 1:
            seconds[name] = round(sum(seconds[part] for part in parts) + time.perf_counter() - began, 1)
        later = {method.name for other in names[place + 1 :] for method in sums[other]}
        fitted = {part: retriever for part, retriever in fitted.items() if part in later}
        yield name, searcher


@dataclass
class Comparison:
    """What was measured of the methods, in the order in which they are listed."""

    data: Split
    cuts: tuple[int, ...]
    rule: TailRule
    with_tail: bool
    seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, dict[str, PerQuery]] = field(default_factory=dict)
    rare: dict[str, tuple[str, int, dict[str, PerQuery]]] = field(default_factory=dict)

    def add(self, name: str, searcher: Any) -> None:
        """Measure a searcher."""
        self.results[name] = measure(searcher, self.data, self.cuts, self.rule)
        if self.with_tail:
            self.rare[name] = measure_tail(searcher, self.data, self.cuts, self.rule)

    @property
    def metric(self) -> str:
        """What decides."""
        return f"f@{self.cuts[0]}"

    @property
    def baseline(self) -> str:
        """What the others are compared with."""
        return "dtr" if "dtr" in self.results else list(self.results)[-1]

    def tests(self, views: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Paired tests of the baseline against each other method."""
        return compared(views, self.baseline, self.metric)

    def document(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        tests = self.tests(self.results)
        document: dict[str, Any] = {
            "methods": {name: as_document(views) for name, views in self.results.items()},
            "seconds": self.seconds,
            "paired_tests": tests,
            "conclusion": verdict(tests, self.baseline, self.metric),
            "split": self.data.rule,
        }
        if self.rare:
            described, queries, _ = self.rare[self.baseline]
            views = {name: views for name, (_, _, views) in self.rare.items()}
            document["tail"] = {
                "rule": described,
                "queries": queries,
                "methods": {name: as_document(own) for name, own in views.items()},
                "paired_tests": self.tests(views),
            }
        return document

    def show(self) -> None:
        """All of it for people."""
        print_table(self.results, self.cuts)
        print(verdict(self.tests(self.results), self.baseline, self.metric))
        if self.rare:
            described, queries, _ = self.rare[self.baseline]
            views = {name: views for name, (_, _, views) in self.rare.items()}
            print(f"\n{with_tail_label(queries)}; {described}")
            print_table(views, self.cuts)
            print(verdict(self.tests(views), self.baseline, self.metric))


def num_with_tail_label(split: Split, rule: TailRule) -> int:
    """How many test users have a tail label."""
    labels = split.test.labels
    return len(np.unique(labels.rows[rule.tail(split.train).mask[labels.items]]))


def verdict(tests: Mapping[str, list[dict[str, Any]]], baseline: str, metric: str) -> str:
    """What the paired tests say of the baseline, plainly."""
    losses: list[str] = []
    wins: list[str] = []
    lost = set()
    for view, rivals in tests.items():
        for test in rivals:
            if max(test["adjusted"].values()) >= 0.05:
                continue
            mean = test["difference"]["mean"]
            (wins if mean > 0 else losses).append(f"{test['rival']} ({view}: {mean:+.4f})")
            if mean <= 0 and baseline not in test["rival"].split("+"):
                lost.add(view)
    if losses:
        where = "here" if len(lost) != 1 else f"with {VIEWS[next(iter(lost))]}"
        advice = f"Do not use the tree {where}. " if baseline == "dtr" and lost else ""
        above = f", and above {', '.join(wins)}," if wins else ""
        return f"{advice}{baseline} is significantly below {', '.join(losses)}{above} in {metric}."
    if wins:
        return f"{baseline} is significantly above {', '.join(wins)} and below none in {metric}."
    return f"{baseline} differs significantly from no rival in {metric}; the simplest method is the better choice."
