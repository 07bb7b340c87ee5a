"""A service under load: its folder, its requests, and the cost of a request."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import beamwood
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.messages import Recommend
from beamwood.serve.settings import Limits
from benchmarks.measure import in_process
from benchmarks.serve_load import offered_load
from benchmarks.serve_process import Process

__all__ = ["Service"]

K = 20
# Memory is stable if this many seconds of load add at most this share.
_WARM_SECONDS, _STANDS = 20.0, 0.001
# Half of a server's limit.
_MOST_CONNECTIONS = Limits().connections // 2
# The number of different requests.
_ASKED = 400


class Service:
    """A service under load: its folder and its requests."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.asked = name, folder, _bodies(folder)

    @property
    def mib(self) -> float:
        """The size of its weights."""
        return (self.folder / "weights.safetensors").stat().st_size / 2**20

    def in_process(self) -> dict[str, float]:
        """`recommend` without HTTP, in a separate process."""
        found: dict[str, float] = in_process(_alone, str(self.folder), [body["history"] for body in self.asked])
        return found

    def narrowed_overlap(self) -> float:
        """The mean overlap@10 of answers by the narrowest beam with those by the fit's own."""
        found: float = in_process(_narrowed, self.folder, [body["history"] for body in self.asked[:100]])
        return found

    def load(self, server: Process, seconds: float, **plan: Any) -> dict[str, Any]:
        """Run a load, and measure the server's cost of a request."""
        plan = {"path": "/v1/recommend", "bodies": self.asked, "connections": 1} | plan
        before, held = server.processor, server.held_up
        found = offered_load(address=server.address, seconds=seconds, **plan)
        count = max(1, sum(each["count"] for each in found["status"].values()))
        found["server_cpu_ms"] = 1e3 * (server.processor - before) / count
        found["server_held_up_ms"] = 1e3 * (server.held_up - held) / count
        return found

    def capacity(self, server: Process, seconds: float, threads: int) -> dict[str, Any]:
        """Closed-loop load, with enough connections to saturate every thread."""
        return self.load(server, seconds, connections=4 * threads)

    def warm(self, server: Process, seconds: float) -> None:
        """Run searches until memory is stable, for at most this long: the store of answers has then reached its bound.

        Half of the requests are short, so that many are answered; the other half need as much memory as those measured.
        As many connections as in the longest queue of a part take their memory first: 9 KiB each, which later ones use
        again.
        """
        short, until = [body | {"beam_width": K} for body in self.asked], time.perf_counter() + seconds
        asked = [body for pair in zip(short, self.asked, strict=True) for body in pair]
        before = 0.0
        while (now := server.mib("VmRSS")) > (1 + _STANDS) * before and time.perf_counter() < until:
            before = now
            self.load(server, min(_WARM_SECONDS, seconds), bodies=asked, connections=_MOST_CONNECTIONS)


def _bodies(folder: Path) -> list[dict[str, Any]]:
    """Requests with histories that the model knows, or random ones if it keeps none."""
    retriever = beamwood.load(folder)
    rng, ids = np.random.default_rng(1), retriever.items
    if retriever.histories is None:
        rows = rng.integers(0, len(ids), (_ASKED, 69))
    else:
        chosen = rng.integers(0, len(retriever.histories), _ASKED)
        rows = [retriever.histories[int(row)][-69:] for row in chosen]  # type: ignore[assignment]
    return [{"history": ids.decode(row), "k": K} for row in rows]


def _narrowed(folder: Path, histories: list[list[Any]], k: int = 10) -> float:
    snapshot, overlaps = open_snapshot(folder), []
    for history in histories:
        lists = [
            recommended(
                snapshot, Recommend(history=history, k=k), StoredHistory(), Limits(), request_id="", pressure=by
            )[0]
            for by in (0.0, 1.0)
        ]
        own, narrowed = ({item.item for item in each.items} for each in lists)
        overlaps.append(len(own & narrowed) / k)
    return statistics.mean(overlaps)


def _alone(folder: str, histories: list[list[Any]]) -> dict[str, float]:
    """Milliseconds of `recommend` in this process: processor and wall time, medians and means."""
    retriever = beamwood.load(folder)
    for history in histories[:50]:
        retriever.recommend([history], K)
    processor, clock = [], []
    for history in histories:
        before = time.process_time(), time.perf_counter()
        retriever.recommend([history], K)
        processor.append(time.process_time() - before[0])
        clock.append(time.perf_counter() - before[1])
    return {"cpu_ms": statistics.mean(processor) * 1e3, "p50_ms": statistics.median(clock) * 1e3}
