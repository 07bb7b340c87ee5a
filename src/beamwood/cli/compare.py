"""`beamwood compare`: methods on the same split, with paired tests; says so when the tree loses."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np
import typer

from beamwood.cli import options as o
from beamwood.cli.evaluate import tail_rule, with_tail_label
from beamwood.cli.fit import fit_method, starting_anew
from beamwood.cli.inputs import (
    Source,
    check_items_options,
    load_data,
    load_split,
    make_config,
    note,
    parse_duration,
    print_json,
)
from beamwood.cli.measure import as_document, compared, measure, measure_tail, parse_cuts, print_table
from beamwood.errors import InputError
from beamwood.evaluation.protocol import VIEWS

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.metrics import TailRule
    from beamwood.retrieval.retriever import Retriever

__all__ = ["compare", "verdict"]

STARTED = {"melt": "--from", "cities": "--from", "two-stage": "--retriever"}


def compare(
    log: o.LogPath,
    methods: Annotated[
        str,
        typer.Option(
            "--methods", help="Methods, separated by commas; dtr+cooccurrence: the second's score added to the first's."
        ),
    ] = "popularity,cooccurrence,transitions,ease,two_tower,dtr,dtr+cooccurrence,dtr+ease",
    items: o.Items = None,
    split: o.SplitName = "users",
    seed: o.Seed = 2026,
    k: Annotated[Optional[str], typer.Option("--k", help="Cuts, as 20,40; 20 where none are given.")] = None,  # noqa: UP045
    tail: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--tail", min=0.001, max=0.999, help="Also on labels among this share of the rarest items."),
    ] = None,
    tail_of: o.TailOf = "items",
    time_limit: o.TimeLimit = None,
    user_column: o.UserColumn = None,
    item_column: o.ItemColumn = None,
    time_column: o.TimeColumn = None,
    weight_column: o.WeightColumn = None,
    min_weight: o.MinWeight = None,
    boundary_column: o.Boundary = None,
    items_column: o.ItemsColumn = None,
    unlisted_items: o.Unlisted = "error",
    json: o.Json = False,
) -> None:
    """Fit several methods on the same training users and compare them on the same test users."""
    from beamwood.methods import load_method
    from beamwood.methods.sums import parts, sum_of

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if len(set(names)) != len(names) or len(names) < 2:
        raise InputError(f"--methods {methods!r} must name at least two different methods")
    modules = {part: load_method(part) for name in names for part in parts(name)}
    check_alone(tuple(modules), split)
    limit, rule = parse_duration(time_limit), tail_rule(tail, tail_of)
    source = Source(
        log,
        items,
        user_column,
        item_column,
        time_column,
        weight_column,
        boundary_column,
        items_column,
        unlisted_items,
        min_weight=min_weight,
    )
    check_items_options(source)
    data = load_split(load_data(source), split, {"seed": seed})
    cuts = parse_cuts(k, len(data.dataset.items))
    if len(data.test) < 2:
        raise InputError(
            "the split leaves 1 test user, of whom nothing can be tested; give more users or another --split"
        )
    on_tail = 0 if tail is None else num_with_tail_label(data, rule)
    if tail is not None and on_tail < 2:
        note(f"--tail is left out: {on_tail} test users have a tail label, and a comparison needs 2; raise the share")
    results, seconds, rare = {}, {}, {}
    fitted: dict[str, Retriever] = {}
    with starting_anew("nothing is kept of a comparison"), tempfile.TemporaryDirectory() as scratch:
        for place, name in enumerate(names):
            for part in parts(name):
                if part not in fitted:
                    began = time.perf_counter()
                    config = make_config(modules[part], None, [])
                    fitted[part] = fit_method(
                        modules[part], data, config, out=f"{scratch}/{part}", seed=seed, limit=limit
                    )
                    seconds[part] = round(time.perf_counter() - began, 1)
                    note(f"{part}: fitted in {seconds[part]} s")
            began = time.perf_counter()
            searcher = sum_of([fitted[part] for part in parts(name)], data, seed=seed).searcher
            if len(parts(name)) > 1:
                seconds[name] = round(sum(seconds[part] for part in parts(name)) + time.perf_counter() - began, 1)
            later = {part for other in names[place + 1 :] for part in parts(other)}
            fitted = {part: retriever for part, retriever in fitted.items() if part in later}
            results[name] = measure(searcher, data, cuts, rule)
            if on_tail >= 2:
                rare[name] = measure_tail(searcher, data, cuts, rule)
    metric = f"f@{cuts[0]}"
    baseline = "dtr" if "dtr" in names else names[-1]
    tests = compared(results, baseline, metric)
    conclusion = verdict(tests, baseline, metric)
    rare_views = {name: views for name, (_, _, views) in rare.items()}
    if json:
        document = {
            "methods": {name: as_document(views) for name, views in results.items()},
            "seconds": seconds,
            "paired_tests": tests,
            "conclusion": conclusion,
            "split": data.rule,
        }
        if rare:
            described, queries, _ = rare[baseline]
            document["tail"] = {
                "rule": described,
                "queries": queries,
                "methods": {name: as_document(views) for name, views in rare_views.items()},
                "paired_tests": compared(rare_views, baseline, metric),
            }
        print_json(document)
        return
    print_table(results, cuts)
    print(conclusion)
    if rare:
        described, queries, _ = rare[baseline]
        print(f"\n{with_tail_label(queries)}; {described}")
        print_table(rare_views, cuts)
        print(verdict(compared(rare_views, baseline, metric), baseline, metric))


def check_alone(names: Sequence[str], split: str) -> None:
    """Errors: a method that goes on from a fitted one, or whose own settings do not fit the split."""
    for name in names:
        if name in STARTED:
            raise InputError(
                f"{name} goes on from a fitted model, and compare fits each method by itself; fit it by `beamwood fit "
                f"LOG --method {name} {STARTED[name]} FOLDER` and judge both folders by `beamwood evaluate`"
            )
    if "ranker" in names and split == "users":
        raise InputError(
            "ranker knows the users of training only, but --split users tests on others; use --split leave-one-out, "
            "time or boundary, or leave ranker out"
        )


def num_with_tail_label(split: Split, rule: TailRule) -> int:
    """How many test users have a tail label."""
    labels = split.test.labels
    return len(np.unique(labels.rows[rule.tail(split.train).mask[labels.items]]))


def verdict(tests: Mapping[str, list[dict[str, Any]]], baseline: str, metric: str) -> str:
    """What the paired tests say of the baseline, plainly."""
    from beamwood.methods.sums import parts

    losses: list[str] = []
    wins: list[str] = []
    lost = set()
    for view, rivals in tests.items():
        for test in rivals:
            if max(test["adjusted"].values()) >= 0.05:
                continue
            mean = test["difference"]["mean"]
            (wins if mean > 0 else losses).append(f"{test['rival']} ({view}: {mean:+.4f})")
            if mean <= 0 and baseline not in parts(test["rival"]):
                lost.add(view)
    if losses:
        where = "here" if len(lost) != 1 else f"with {VIEWS[next(iter(lost))]}"
        advice = f"Do not use the tree {where}. " if baseline == "dtr" and lost else ""
        above = f", and above {', '.join(wins)}," if wins else ""
        return f"{advice}{baseline} is significantly below {', '.join(losses)}{above} in {metric}."
    if wins:
        return f"{baseline} is significantly above {', '.join(wins)} and below none in {metric}."
    return f"{baseline} differs significantly from no rival in {metric}; the simplest method is the better choice."
