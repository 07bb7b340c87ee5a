"""How a run is fitted and evaluated: each recipe is a function, and a committed line names its recipe."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import beamwood
from beamwood.data.markets.taste_optimum import TasteOptimum
from beamwood.data.whole import whole as whole_split
from beamwood.data.whole import without_labels
from beamwood.evaluation.cost import measure_cost
from beamwood.evaluation.protocol import evaluate_both
from beamwood.evaluation.results import PerQuery
from beamwood.evaluation.sampled import Sampled, evaluate_sampled
from beamwood.evaluation.summary import measure_tail
from beamwood.evaluation.tail import TailRule
from beamwood.methods import load_method
from beamwood.retrieval.retriever import Retriever
from benchmarks.job import Job, Measured
from benchmarks.logs import taste_market
from benchmarks.measure import in_process
from benchmarks.serve_table import flattened
from benchmarks.side_by_side import answers

__all__ = ["RECIPES"]


def fitted(job: Job) -> tuple[Retriever, dict[str, float]]:
    """Fit the row's method on the split and save it; an interrupted attempt resumes."""
    from beamwood.training.run_folder import RunFolder

    assert job.row.method is not None
    settings = job.row.settings | {key: str(folder) for key, folder in job.folders.items()}
    options: dict[str, Any] = {"seed": job.seed}
    resumed = False
    method = load_method(job.row.method)
    if method.needs.trains(method.configured(settings, job.row.preset)):
        run = RunFolder(job.work / "training")
        resumed = run.holds_a_run
        options |= {"run": run, "resume": resumed, "progress": False}
    began, processor = time.perf_counter(), time.process_time()
    retriever = beamwood.fit(job.split, job.row.method, settings, preset=job.row.preset, **options)
    seconds = {"fit": time.perf_counter() - began}
    # This process cannot know the processor time of an earlier attempt.
    if not resumed:
        seconds["processor"] = time.process_time() - processor
    retriever.save(job.saved, overwrite=True)
    return retriever, seconds


def whole(job: Job) -> Measured:
    """Fit, and rank the whole catalogue for every test user, seen items kept and removed."""
    retriever, seconds = fitted(job)
    return _judged(job, retriever, seconds)


def refitted(job: Job) -> Measured:
    """As `whole`, fitted on all events but those of the test: the gain of a refit, before which the test is held back.

    Of the validation users, `data.whole` keeps some.
    """
    split = job.split
    before = replace(split, dataset=without_labels(split, split.test), test=split.valid)
    return whole(replace(job, split=replace(whole_split(before), dataset=split.dataset, test=split.test)))


def tail(job: Job) -> Measured:
    """As `whole`, and again with only the labels among the rarest fifth of the items."""
    retriever, seconds = fitted(job)
    measured = _judged(job, retriever, seconds)
    _, _, views = measure_tail(retriever.searcher, job.split, job.ks, TailRule())
    _add(measured, views, "tail ")
    return measured


def sampled(job: Job) -> Measured:
    """As `whole`, and each label ranked among 99 unseen items, drawn with the run's seed."""
    retriever, seconds = fitted(job)
    measured = _judged(job, retriever, seconds)
    lists = Sampled(job.split.test, job.split.train.num_items, num_negatives=99, seed=job.seed)
    for name, column in evaluate_sampled(retriever.searcher, lists, ks=job.ks).items():
        measured.figures[f"sampled/{name}"], measured.values[f"sampled/{name}"] = float(column.mean()), column
    return measured


def published(job: Job) -> Measured:
    """LightGCN on its authors' split, at the epoch of their published figures; see `benchmarks.lightgcn`."""
    from benchmarks.lightgcn import figures_after, on_published

    found = figures_after(
        on_published(job.split), epochs=job.row.settings["loop.max_epochs"], seed=job.seed, progress=False
    )
    told = {f"published/{name}": value for name, value in found["published"].items()}
    figures = {f"removed/{name}": found[name] for name in found["published"]}
    return Measured(figures | told, seconds={"fit": found["training_seconds"]}, queries=len(job.split.test))


def optimum(job: Job) -> Measured:
    """The optimum of a market of tastes, with or without the context of the next event; nothing is fitted."""
    searcher, began = TasteOptimum(taste_market(job.log), **job.row.settings), time.perf_counter()
    measured = Measured({}, queries=len(job.split.test))
    _add(measured, evaluate_both(searcher, job.split.test, ks=job.ks), "")
    measured.seconds = {"evaluate": time.perf_counter() - began}
    return measured


def fit_only(job: Job) -> Measured:
    """Fit a model for other runs to start from; nothing is evaluated."""
    _, seconds = fitted(job)
    return Measured({}, seconds=seconds)


def served(job: Job) -> Measured:
    """`beamwood serve` with the tree, against FastAPI with two towers: the parts of `benchmarks.serve` of the row.

    A row without `parts` measures all but the steady load of ten minutes.
    """
    from benchmarks.serve import LONG, SUITE, fit
    from benchmarks.serve_run import LONG_PARTS, PARTS, Run

    parts = job.row.settings.get("parts", [part for part in PARTS if part not in LONG_PARTS])
    with tempfile.TemporaryDirectory() as root:
        full = Path(root) / "full"
        in_process(fit, full, "full", SUITE)
        began = time.perf_counter()
        times = LONG if set(parts) <= set(LONG_PARTS) else SUITE
        run = Run(job.folders["dtr"], full, job.folders["two_tower"], times)
        found = run.measured(lambda said: None, parts)  # noqa: ARG005
    return Measured(flattened(found), seconds={"serve": time.perf_counter() - began})


RECIPES: dict[str, Callable[[Job], Measured]] = {
    "whole": whole,
    "refit": refitted,
    "tail": tail,
    "sampled": sampled,
    "fitted": fit_only,
    "published": published,
    "optimum": optimum,
    "answers": answers,
    "serve": served,
}


def _judged(job: Job, retriever: Retriever, seconds: dict[str, float]) -> Measured:
    began = time.perf_counter()
    views = beamwood.evaluate(retriever, job.split, ks=job.ks)
    seconds = seconds | {"evaluate": time.perf_counter() - began}
    training = {key: value for key, value in retriever.metadata["training"].items() if _is_plain(value)}
    measured = Measured({}, {}, len(views["kept"]), training, seconds)
    _add(measured, views, "")
    cost = measure_cost(retriever.searcher, job.split.test, max(job.ks))
    measured.figures |= {"scored": views["kept"].scored, "ms": cost.milliseconds, "mb": cost.megabytes}
    return measured


def _add(measured: Measured, views: Mapping[str, PerQuery], prefix: str) -> None:
    for view, result in views.items():
        measured.figures |= {f"{prefix}{view}/{name}": value for name, value in result.means().items()}
        measured.values |= {f"{prefix}{view}/{name}": column for name, column in result.values.items()}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
