"""Costs around a search of a saved folder: Python, filters, threads, batch jobs, start-up and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import beamwood
from beamwood.data.queries import Queries
from beamwood.kept import Prepared
from beamwood.retrieval.batch.group_answers import OfRetriever, in_process
from beamwood.retrieval.batch.job import Job
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.request import Request
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import Query, SearchOptions
from benchmarks.contenders import natives
from benchmarks.measure import seconds_of
from benchmarks.timing import seconds_inside, spent_in_turns

__all__ = ["around"]

K = 20
SHARES = {".1 %": 0.001, ".01 %": 0.0001}
_BATCH, _TURNS, _ROWS, _ROUNDS = 64, 20, 256, 3

_START = """
import json, sys, time
import beamwood, beamwood.retrieval.retriever, beamwood.retrieval.searchers.tree
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) / 1000
before, began = anonymous(), time.process_time()
retriever = beamwood.load(sys.argv[1])
seconds = time.process_time() - began
for history in json.load(open(sys.argv[2])):
    retriever.recommend([history], 20)
print(json.dumps({"s": seconds, "imports_mb": before, "private_mb": anonymous()}))
"""


def around(folder: Path, queries: Queries, count: int) -> dict[str, float]:
    """The figures by name, over this many queries; see the functions below."""
    retriever = beamwood.load(folder)
    queries = queries.take(np.arange(min(count, len(queries))))
    histories = [retriever.items.decode(row) for row in queries.histories]
    figures = _started(folder, histories[:20]) | _python(retriever, queries, histories)
    tree = part_with(retriever.searcher, TreeSearcher)
    if tree is not None:
        figures |= _light_share(tree, folder) | _threads(folder, queries) | _beside(folder, queries)
    return figures | _job(retriever, histories)


def _started(folder: Path, histories: list[list[Any]]) -> dict[str, float]:
    """In a fresh process: processor seconds of `load` without imports, and the private memory."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([[str(item) if isinstance(item, str) else int(item) for item in row] for row in histories], file)
        file.flush()
        command = [sys.executable, "-c", _START, str(folder), file.name]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {f"load/{name}": value for name, value in found.items()} | {"load/artefact_mb": _size(folder) / 1e6}


def _size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _python(retriever: Retriever, queries: Queries, histories: list[list[Any]]) -> dict[str, float]:
    """Median milliseconds outside compiled code: by history, by user and with a cached filter; and the cost of filters
    relative to the native search with their mask. The fastest of three rounds counts: other load only adds time."""
    order = np.random.default_rng(2026).permutation(len(retriever.items))
    columns = ItemColumns.of(pl.DataFrame({"order": order}))
    filtered = Retriever(retriever.searcher, retriever.items, columns=columns)
    asks: dict[str, Callable[[int], Any]] = {"history": lambda row: retriever.recommend([histories[row]], K)}
    if retriever.users is not None:
        users = retriever.users.decode(queries.users)
        asks["user"] = lambda row: retriever.recommend(users=[users[row]], k=K)
    for name, share in SHARES.items():
        where = {"order": {"lt": max(1, round(share * len(order)))}}
        asks[f"filter {name}"] = lambda row, where=where: filtered.recommend([histories[row]], K, where=where)
    inside = {name: [*natives(retriever.searcher)] for name in asks}
    for ask in asks.values():
        ask(0)
    count = dict.fromkeys(asks, len(histories))
    rounds = [spent_in_turns(asks, inside, count) for _ in range(_ROUNDS)]
    found = {name: min((each[name].figures() for each in rounds), key=lambda own: own["ms/median"]) for name in asks}
    figures = {f"python/{name}": each["ms/around"] for name, each in found.items() if "ms/around" in each}
    native = _native_with_masks(retriever, queries, order)
    for name, ms in native.items():
        figures[f"filter/{name}"] = found[f"filter {name}"]["ms/median"] / max(ms, 1e-6)
    return figures


def _native_with_masks(retriever: Retriever, queries: Queries, order: Any) -> dict[str, float]:
    """Median milliseconds in compiled code, of the faster of the chosen search and a scan of every allowed leaf.

    The mask's counts are computed in advance.
    """
    tree = part_with(retriever.searcher, TreeSearcher)
    if tree is None:
        return {}
    best, way = {}, tree.ways.default.wide_enough(K)
    parts = [queries.take(np.array([row])) for row in range(len(queries))]
    for name, share in SHARES.items():
        mask = order < max(1, round(share * len(order)))
        mask.setflags(write=False)
        allowed = SearchOptions(allowed=mask, prepared=Prepared(mask))

        def asked(row: int, allowed: SearchOptions = allowed) -> tuple[Query, int, SearchOptions]:
            return parts[row].query(tree.needs), K, replace(allowed, excluded=parts[row].histories.distinct())

        asks: Mapping[str, Callable[[int], Any]] = {
            "way": lambda row, asked=asked: tree.searched(*asked(row), way),
            "leaves": lambda row, asked=asked: tree.exact(*asked(row)),
        }
        spent = spent_in_turns(asks, {each: [*natives(tree)] for each in asks}, dict.fromkeys(asks, len(parts)))
        best[name] = min(float(np.median(each.inside_ms)) for each in spent.values())
    return best


def _light_share(tree: TreeSearcher, folder: Path) -> dict[str, float]:
    """The size of the light head's arrays as a share of the folder."""
    own = 0 if tree.weights.light is None else sum(array.nbytes for array in tree.weights.light.arrays().values())
    return {"light/share": own / _size(folder)}


def _threads(folder: Path, queries: Queries) -> dict[str, float]:
    """The throughput of two threads over that of one, by the fastest turn of each."""
    batch, seconds = queries.take(np.arange(_BATCH) % len(queries)), {}
    searchers = {threads: beamwood.load(folder, threads=threads).searcher for threads in (1, 2)}
    for _ in range(_TURNS):
        for threads, searcher in searchers.items():
            query = batch.query(searcher.needs)
            began = time.perf_counter()
            searcher.search(query, K)
            seconds[threads] = min(seconds.get(threads, np.inf), time.perf_counter() - began)
    return {"threads/2 over 1": seconds[1] / seconds[2]}


def _beside(folder: Path, queries: Queries) -> dict[str, float]:
    """How many searches one query waits for while a batch runs on the same one-thread searcher: median wall time.

    A query comes every 5 ms, also in the run without a batch. After such a pause its code is in no cache, and that
    delay is not waiting for other queries.
    """
    searcher = beamwood.load(folder).searcher
    batch = queries.take(np.arange(_ROWS) % len(queries)).query(searcher.needs)
    one = queries.take(np.array([0]))
    over = threading.Event()

    def after_pauses() -> float:
        times = list[float]()
        for _ in range(60):
            time.sleep(0.005)
            times.append(seconds_of(lambda: searcher.search(one.query(searcher.needs), K)))
        return float(np.median(times))

    def keep_busy() -> None:
        while not over.is_set():
            searcher.search(batch, K)

    alone, worker = after_pauses(), threading.Thread(target=keep_busy)
    worker.start()
    try:
        return {"threads/waits": after_pauses() / alone - 1}
    finally:
        over.set()
        worker.join()


def _job(retriever: Retriever, histories: list[list[Any]]) -> dict[str, float]:
    """The share of a batch job's processor time in compiled searches; the job includes writing its Parquet file.

    A job of the same size runs first, so that what libraries load at their first call is not counted.
    """
    rows = (histories * (1 + 2000 // len(histories)))[:2000]
    engine = in_process(OfRetriever(retriever))
    job = Job(engine, Request(histories=rows[:1], k=K), rows, [*range(len(rows))], False, pl.Int64, origin="here")
    with tempfile.TemporaryDirectory() as folder, seconds_inside([*natives(retriever.searcher)]) as inside:
        job.run(Path(folder) / "first.parquet")
        before, began = inside(), time.process_time()
        job.run(Path(folder) / "all.parquet")
        whole = time.process_time() - began
        searching = inside() - before
    return {"job/share": searching / whole} if searching else {}
