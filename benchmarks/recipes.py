"""How a run is made and judged: each recipe is a function, and a committed line names the one that made it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import beamwood
from beamwood.data.split import Split
from beamwood.evaluation.metrics import TailRule
from beamwood.evaluation.protocol import PerQuery
from beamwood.evaluation.sampled import Sampled, evaluate_sampled
from beamwood.evaluation.summary import measure_tail
from beamwood.methods import load_method
from beamwood.retrieval.retriever import Retriever
from benchmarks.suite import Row

__all__ = ["RECIPES", "Job", "Measured"]


@dataclass(frozen=True)
class Job:
    """What a recipe is given: the split, the row, the seed, the cuts, where to work, and the folders by setting."""

    split: Split
    row: Row
    seed: int
    ks: tuple[int, ...]
    work: Path
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def saved(self) -> Path:
        """Where the fitted retriever stands."""
        return self.work / "fitted"


@dataclass
class Measured:
    """What a run measured: `figures` by name, `values` by user for those that tests need, and facts of the fit."""

    figures: dict[str, float]
    values: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    queries: int = 0
    training: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def fitted(job: Job) -> tuple[Retriever, dict[str, float]]:
    """The row's method fitted on the split and saved, going on where an earlier attempt was stopped."""
    from beamwood.training.run_folder import RunFolder

    assert job.row.method is not None
    settings = job.row.settings | {key: str(folder) for key, folder in job.folders.items()}
    options: dict[str, Any] = {"seed": job.seed}
    resumed = False
    if load_method(job.row.method).needs.steps:
        run = RunFolder(job.work / "training")
        resumed = run.holds_a_run
        options |= {"run": run, "resume": resumed, "progress": False}
    began, processor = time.perf_counter(), time.process_time()
    retriever = beamwood.fit(job.split, job.row.method, settings, preset=job.row.preset, **options)
    seconds = {"fit": time.perf_counter() - began}
    # What an earlier attempt used is not known to this process.
    if not resumed:
        seconds["processor"] = time.process_time() - processor
    retriever.save(job.saved, overwrite=True)
    return retriever, seconds


def whole(job: Job) -> Measured:
    """Fit, and rank the whole catalogue for every test user, seen items kept and removed."""
    retriever, seconds = fitted(job)
    return _judged(job, retriever, seconds)


def tail(job: Job) -> Measured:
    """As `whole`, and again by the labels alone that stand among the rarest fifth of the items."""
    retriever, seconds = fitted(job)
    measured = _judged(job, retriever, seconds)
    _, _, views = measure_tail(retriever.searcher, job.split, job.ks, TailRule())
    _add(measured, views, "tail ")
    return measured


def sampled(job: Job) -> Measured:
    """As `whole`, and each label among 99 items that its user has not seen, drawn with the run's seed."""
    retriever, seconds = fitted(job)
    measured = _judged(job, retriever, seconds)
    lists = Sampled(job.split.test, job.split.train.num_items, num_negatives=99, seed=job.seed)
    for name, column in evaluate_sampled(retriever.searcher, lists, ks=job.ks).items():
        measured.figures[f"sampled/{name}"], measured.values[f"sampled/{name}"] = float(column.mean()), column
    return measured


def answer(job: Job, *, asked: int = 300, warm: int = 30) -> Measured:
    """How long one user's answer takes, of a saved folder: `recommend` by id, 20 items, seen items removed."""
    folder = job.folders["of"]
    retriever = beamwood.load(folder)
    users = job.split.dataset.users.decode(job.split.test.users[:asked])
    spent, processor = [], []
    for user in [*users[:warm], *users]:
        began, before = time.perf_counter(), time.process_time()
        retriever.recommend(users=[user], k=20)
        spent.append(time.perf_counter() - began)
        processor.append(time.process_time() - before)
    ms = 1000 * np.array(processor[warm:])
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    found = beamwood.evaluate(retriever, job.split)["removed"]
    figures = {
        "ms/median": float(np.median(ms)),
        "ms/p90": float(np.quantile(ms, 0.9)),
        "removed/f@20": found.means()["f@20"],
        "scored": found.scored,
        "mib": size / 2**20,
    }
    return Measured(figures, {"removed/f@20": found.values["f@20"]}, len(users), {}, {"answers": sum(spent[warm:])})


RECIPES: dict[str, Callable[[Job], Measured]] = {"whole": whole, "tail": tail, "sampled": sampled, "answer": answer}


def _judged(job: Job, retriever: Retriever, seconds: dict[str, float]) -> Measured:
    began = time.perf_counter()
    views = beamwood.evaluate(retriever, job.split, ks=job.ks)
    seconds = seconds | {"evaluate": time.perf_counter() - began}
    training = {key: value for key, value in retriever.metadata["training"].items() if _is_plain(value)}
    measured = Measured({}, {}, len(views["kept"]), training, seconds)
    _add(measured, views, "")
    measured.figures["scored"] = views["kept"].scored
    return measured


def _add(measured: Measured, views: Mapping[str, PerQuery], prefix: str) -> None:
    for view, result in views.items():
        measured.figures |= {f"{prefix}{view}/{name}": value for name, value in result.means().items()}
        measured.values |= {f"{prefix}{view}/{name}": column for name, column in result.values.items()}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
