"""Cost and quality of answers side by side: the same users, one machine, one run, one thread."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import beamwood
from beamwood.artefact import read_manifest
from beamwood.artefact.replace import whole_file
from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.retrieval.index import HnswIndex
from beamwood.retrieval.retriever import Retriever
from benchmarks.around import around
from benchmarks.contenders import TREE, Contender, contenders, natives
from benchmarks.job import Job, Measured
from benchmarks.judged import Found, Judge, overlaps, seeded
from benchmarks.measure import multiply_adds_a_ms
from benchmarks.timing import spent_in_turns

__all__ = ["answers"]

K = 20
# The number of timed answers, and the number of items that the tree's scorer may score for those of a `dear` row.
_TIMED, _LEAVES = 300, 3_000_000
# The tree as fitted and its full beam are evaluated on all users.
_WHOLE = ("tree", "tree full")


def answers(job: Job) -> Measured:
    """Measures each contender of the given folders: figures "KEY/NAME" by its key, and the speed of the machine.

    `values`: "KEY/both", F@20 of each user in the seeded order, averaged over both views. `training`: the rows' titles,
    and the rows in which the tree's scorer reranks candidates. Errors: a folder that was not fitted on the split.
    """
    began = time.perf_counter()
    found = {name: _loaded(folder, job) for name, folder in job.folders.items()}
    rows = contenders(found, _Graphs(job.work / "graphs"))
    queries = seeded(job.split)
    judged = dict(Judge(queries, job.work / "judged", _WHOLE).found(rows, _state(job.folders)))
    looked = time.perf_counter() - began
    figures: dict[str, float] = {}
    values: dict[str, NDArray[np.float64]] = {}
    shares = overlaps(judged, rows)
    for row in rows:
        own = judged[row.key]
        figures |= {f"{row.key}/{name}": value for name, value in _figures(own, row, shares).items()}
        values[f"{row.key}/both"] = own.both
    figures |= _lost(judged) | _timed(rows, next(iter(found.values())), queries)
    tree = job.folders.get(TREE, next(iter(job.folders.values())))
    figures |= around(tree, queries, _TIMED)
    seconds = {"evaluate": looked, "answers": time.perf_counter() - began - looked}
    named = {"titles": {row.key: row.title for row in rows}, "behind": [row.key for row in rows if row.behind]}
    return Measured(figures, values, len(queries), named, seconds)


def _figures(own: Found, row: Contender, shares: Mapping[str, float]) -> dict[str, float]:
    figures = {
        "kept/f@20": float(own.kept.mean()),
        "removed/f@20": float(own.removed.mean()),
        "both": float(own.both.mean()),
        "users": float(len(own.kept)),
        "scored": own.scored,
        "mb": row.megabytes,
    }
    return figures | ({"overlap": shares[row.key]} if row.key in shares else {})


def _lost(judged: Mapping[str, Found]) -> dict[str, float]:
    """The loss in F@20 of the tree as fitted against its full beam, in percent, by view."""
    if not set(_WHOLE) <= judged.keys():
        return {}
    own, full = (judged[key] for key in _WHOLE)
    views = {"kept": (own.kept, full.kept), "removed": (own.removed, full.removed)}
    return {f"lost/{view}": 100 * (1 - float(a.mean() / b.mean())) for view, (a, b) in views.items()}


def _timed(rows: Sequence[Contender], names: Retriever, queries: Queries) -> dict[str, float]:
    """Milliseconds of `recommend` by history, seen items removed, and the machine's rate of multiply-adds."""
    count = {row.key: min(_TIMED, len(queries)) for row in rows}
    for row in rows:
        if row.dear:
            count[row.key] = min(count[row.key], max(3, _LEAVES // len(names.items)))
    histories = [names.items.decode(row) for row in queries.take(np.arange(min(_TIMED, len(queries)))).histories]
    peaks: list[float] = []

    def asks(row: Contender) -> Callable[[int], Any]:
        retriever = Retriever(row.searcher, names.items)
        return lambda number: retriever.recommend([histories[number]], K)

    spent = spent_in_turns(
        {row.key: asks(row) for row in rows},
        {row.key: [*natives(row.searcher)] for row in rows},
        count,
        lambda: peaks.append(multiply_adds_a_ms()),
    )
    figures = {f"{key}/{name}": value for key, each in spent.items() for name, value in each.figures().items()}
    return figures | {"machine/multiply_adds_a_ms": max(peaks), "machine/load": os.getloadavg()[0]}


class _Graphs:
    """HNSW graphs, each built once and stored in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, vectors_ND: NDArray[np.float32]) -> HnswIndex:
        """The graph of the vectors under a name."""
        vectors_ND = np.ascontiguousarray(vectors_ND, np.float32)
        digest = hashlib.sha256(vectors_ND.tobytes()).hexdigest()[:16]
        path = self.folder / f"{name}-{digest}.npz"
        if not path.exists():
            config, arrays = HnswIndex(vectors_ND).export()
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as fresh, fresh.open("wb") as file:
                np.savez(file, **config, **arrays)
        with np.load(path) as kept:
            config = {each: int(kept[each]) for each in kept.files if kept[each].ndim == 0}
            return HnswIndex.restore(
                vectors_ND, config, {each: kept[each] for each in kept.files if each not in config}
            )


def _loaded(folder: Path, job: Job) -> Retriever:
    retriever = beamwood.load(folder)
    fitted_on = retriever.metadata.get("data", {}).get("fingerprint")
    if fitted_on != job.split.dataset.fingerprint():
        raise InputError(f"{folder} was not fitted on this log; omit --folder, or give a folder fitted on it")
    return retriever


def _state(folders: Mapping[str, Path]) -> str:
    """The content of the folders, by checksums."""
    return " ".join(f"{name}={read_manifest(folder).get('checksum')}" for name, folder in sorted(folders.items()))
