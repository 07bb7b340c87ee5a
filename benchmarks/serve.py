"""`beamwood serve` under load, against the package in process and FastAPI around two towers in an HNSW graph.

`python -m benchmarks.serve [--short] [--folder FOLDER --full FOLDER --rival FOLDER] [--json]`. What is not named is
fitted on a planted market. Two trees answer: one as a fit leaves it, whose search is as fast as the HTTP around it, and
one that a full beam answers, so that the search threads are what is saturated. Load comes from another process of this
machine, whose processor time is reported apart. Every figure of a bar is a ratio within this run; on a busy machine
read processor times; `server_held_up_ms` says how long a request's threads had no processor, as other programs had it.
Exit 0 whenever it measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import beamwood
from benchmarks.bars import Bar
from benchmarks.measure import in_process, one_thread, print_results
from benchmarks.serve_load import offered_load, start
from benchmarks.serve_process import Process, beamwood_server, lag_at, memory_slope, rival_server

K = 20
# More than a store in memory keeps of answers.
KEPT = 2500
# Of the server's process and of the load's, beside what was answered.
MORE = ("server_cpu_ms", "server_held_up_ms", "load_cpu_s", "late_p99_ms")
PATIENT = ("--timeout", "30s", "--max-wait", "30s")


@dataclass(frozen=True)
class Times:
    """How long each part runs, in seconds, how many steps the models are trained, and how often they are swapped.

    `items`: of the market of the tree as a fit leaves it; `full`: of the one that a full beam answers.
    """

    items: int
    full: int
    steps: int
    part: float
    steady: float
    swaps: int


SHORT = Times(items=1000, full=4000, steps=100, part=4.0, steady=12.0, swaps=6)
LONG = Times(items=10_000, full=10_000, steps=3000, part=30.0, steady=600.0, swaps=20)
SUITE = Times(items=10_000, full=10_000, steps=300, part=10.0, steady=120.0, swaps=20)
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "rival": ("two_tower", {"index.kind": "hnsw"}),
    "model": ("dtr", {}),
    "full": ("dtr", {"model.light_width": 0}),
}


def fit(folder: Path, name: str, times: Times) -> None:
    """A model of `FITS` on a planted market, saved in the folder."""
    from beamwood.data.synthetic import MarketConfig, make_market

    market = make_market(MarketConfig(num_items=times.full if name == "full" else times.items), seed=0)
    dataset = beamwood.Dataset.from_log(beamwood.read_log(market.log), market.item_frame)
    split = beamwood.splits.disjoint_users(dataset, seed=0)
    method, settings = FITS[name]
    beamwood.fit(split, method, settings | {"loop.max_steps": times.steps}, progress=False).save(folder)


def bodies(folder: Path, count: int = 400) -> list[dict[str, Any]]:
    """Requests of histories that the model knows, and of random ones where it keeps none."""
    retriever = beamwood.load(folder)
    rng, ids = np.random.default_rng(1), retriever.items
    if retriever.histories is None:
        rows = rng.integers(0, len(ids), (count, 69))
    else:
        chosen = rng.integers(0, len(retriever.histories), count)
        rows = [retriever.histories[int(row)][-69:] for row in chosen]  # type: ignore[assignment]
    return [{"history": ids.decode(row), "k": K} for row in rows]


def alone(folder: str, histories: list[list[Any]]) -> dict[str, float]:
    """Milliseconds of `recommend` in this process: of the processor and by the clock, medians and means."""
    began = time.perf_counter()
    retriever = beamwood.load(folder)
    loaded = time.perf_counter() - began
    for history in histories[:50]:
        retriever.recommend([history], K)
    processor, clock = [], []
    for history in histories * 2:
        before = time.process_time(), time.perf_counter()
        retriever.recommend([history], K)
        processor.append(time.process_time() - before[0])
        clock.append(time.perf_counter() - before[1])
    return {
        "cpu_ms": statistics.mean(processor) * 1e3,
        "cpu_median_ms": statistics.median(processor) * 1e3,
        "p50_ms": statistics.median(clock) * 1e3,
        "load_s": loaded,
    }


class Service:
    """One of the services under load: its folder, what it is asked, and what it can do."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.asked = name, folder, bodies(folder)
        self.package = self.in_process()
        self.single: dict[str, float] = {}
        self.capacity = 0.0

    def in_process(self) -> dict[str, float]:
        """See `alone`."""
        found: dict[str, float] = in_process(alone, str(self.folder), [body["history"] for body in self.asked])
        return found

    def measure_package_again(self) -> None:
        """What was measured meanwhile is compared with the mean of before and after."""
        after = self.in_process()
        self.package = {name: (before + after[name]) / 2 for name, before in self.package.items()}


class Run:
    """One run over the services: what was found, and which bars hold."""

    def __init__(self, model: Path, full: Path, rival: Path, times: Times) -> None:
        self.model, self.full, self.rival = Service("model", model), Service("full", full), Service("rival", rival)
        self.times = times
        self.found: dict[str, Any] = {"threads": len(os.sched_getaffinity(0)), "load_average": os.getloadavg()[0]}
        self.bars: dict[str, Bar] = {}

    def bar(self, name: str, value: float, bound: float, *, at_most: bool = True) -> None:
        """Keep a bar: `value` must be at most, or at least, `bound`."""
        self.bars[name] = Bar(float(value), bound, at_most)

    def note(self, service: Service, part: str, found: dict[str, Any], **more: Any) -> dict[str, float]:
        """Keep what a part found, as figures."""
        figures = flat(found) | more
        self.found.setdefault(service.name, {"package": service.package})[part] = figures
        return figures

    def load(self, service: Service, server: Process, **plan: Any) -> dict[str, Any]:
        """The load, with what it cost the server a request."""
        whole = {"path": "/v1/recommend", "bodies": service.asked, "seconds": self.times.part, "connections": 1} | plan
        before, held = server.processor, server.held_up
        found = offered_load(address=server.address, **whole)
        count = sum(each["count"] for each in found["status"].values())
        found["server_cpu_ms"] = 1e3 * (server.processor - before) / max(count, 1)
        found["server_held_up_ms"] = 1e3 * (server.held_up - held) / max(count, 1)
        return found

    def fill(self, service: Service, server: Process) -> None:
        """Short searches, until what is kept of answers has reached its bound: from then on memory should stand."""
        asked, until = [body | {"beam_width": K} for body in service.asked], time.perf_counter() + 30
        answered = 0
        while answered < KEPT and time.perf_counter() < until:
            found = self.load(service, server, bodies=asked, connections=4, seconds=1)
            answered += sum(each["count"] for each in found["status"].values())

    def one_by_one(self, service: Service) -> None:
        """What HTTP adds to the package, the start, the memory."""
        with beamwood_server(service.folder, *PATIENT) as server:
            size = (service.folder / "weights.safetensors").stat().st_size / 2**20
            memory = {"anon_mib": server.mib("RssAnon"), "rss_mib": server.mib("VmRSS"), "weights_mib": size}
            self.load(service, server)
            single = self.load(service, server)
            torch = server.has_mapped("libtorch")
        service.measure_package_again()
        service.single = self.note(service, "one_connection", single)
        self.found["start"] = memory | {"seconds": server.seconds_to_ready}
        self.bar("http_cpu_ms_above_package", service.single["server_cpu_ms"] - service.package["cpu_ms"], 0.4)
        self.bar("http_p50_ms_above_package", service.single["p50_ms"] - service.package["p50_ms"], 0.6)
        self.bar("torch_loaded", float(torch), 0)
        self.bar("idle_rss_mib_above_weights", memory["rss_mib"] - size, 120)

    def saturated(self, service: Service, threads: int) -> float:
        """Answers a second with so many threads."""
        with beamwood_server(service.folder, *PATIENT, "--threads", str(threads)) as server:
            self.load(service, server, seconds=1)
            full = self.load(service, server, connections=4 * threads)
        service.capacity = self.note(service, f"saturated_{threads}", full)["a_second"]
        return service.capacity

    def saturation(self, service: Service) -> None:
        """Threads add up."""
        threads = self.found["threads"]
        rates = {count: self.saturated(service, count) for count in sorted({1, 2, threads})}
        ideal = threads / (service.package["cpu_ms"] / 1e3)
        self.bar("saturation_of_ideal", rates[threads] / ideal, 0.85, at_most=False)
        self.bar("two_threads_over_one", rates[2] / rates[1], 1.8, at_most=False)

    def beside_a_batch(self, service: Service) -> None:
        """How much longer a caller waits while batches of 256 are answered, in single searches."""
        with beamwood_server(service.folder, *PATIENT) as server:
            self.load(service, server, seconds=1)
            quiet = self.note(service, "one_connection", self.load(service, server))
            batch = start(
                address=server.address,
                path="/v1/recommend/batch",
                bodies=[{"requests": (service.asked * 2)[:256]}],
                seconds=self.times.part + 1,
                connections=1,
            )
            time.sleep(0.5)
            beside = self.note(service, "beside_batch", self.load(service, server))
            batch()
        service.single = quiet
        waited = beside["p50_ms"] - quiet["p50_ms"]
        self.bar("wait_beside_batch_in_searches", waited / service.package["p50_ms"], 2)

    def steady(self, service: Service) -> None:
        """Four fifths of the capacity, open loop."""
        with beamwood_server(service.folder, *PATIENT) as server:
            self.fill(service, server)
            self.load(service, server)
            samples, lags, watching = [], server.lags(), threading.Event()

            def watch() -> None:
                while not watching.wait(0.25):
                    samples.append((time.perf_counter(), server.mib("VmRSS")))

            watcher = threading.Thread(target=watch)
            watcher.start()
            rate = 0.8 * service.capacity
            found = self.load(service, server, rate=rate, connections=64, seconds=self.times.steady)
            watching.set()
            watcher.join()
            late = lag_at(lags, server.lags(), 0.99)
        figures = self.note(service, "steady", found, loop_lag_p99_ms=1e3 * late)
        self.bar(f"{service.name}_steady_errors", wrong(found), 0)
        self.bar(f"{service.name}_steady_p99_over_p50", figures["p99_ms"] / figures["p50_ms"], 5)
        self.bar(f"{service.name}_steady_rss_growth", memory_slope(samples), 0.01)
        self.bar(f"{service.name}_steady_loop_lag_p99_ms", 1e3 * late, 5)

    def overload(self, service: Service, name: str, *options: str) -> dict[str, float]:
        """Twice the capacity, then back to normal. What was answered well."""
        with beamwood_server(service.folder, "--timeout", "2s", *options) as server:
            self.load(service, server, seconds=1)
            found = self.load(service, server, rate=2 * service.capacity, connections=64, seconds=2 * self.times.part)
            time.sleep(1)
            after = flat(self.load(service, server, seconds=1))
        refused = found["status"].get("429", {"count": 0, "p99_ms": 0.0})
        more = {"refused": refused, "degraded": found["degraded"], "after_p50_ms": after["p50_ms"]}
        figures = self.note(service, f"overload_{name}", found, **more)
        if name == "as_wide":
            return figures
        self.bar(f"{service.name}_overload_goodput", figures["a_second"] / service.capacity, 0.9, at_most=False)
        self.bar(f"{service.name}_overload_refused_p99_ms", refused["p99_ms"], 20)
        self.bar(f"{service.name}_overload_other_errors", wrong(found, 429), 0)
        self.bar(f"{service.name}_overload_recovered_p50", after["p50_ms"] / service.single["p50_ms"], 2)
        return figures

    def brown_out(self, service: Service) -> None:
        """How much more is answered where searches are narrowed."""
        narrowed = self.overload(service, "narrowed")
        as_wide = self.overload(service, "as_wide", "--min-beam", str(10**6))
        self.bar("narrowed_over_as_wide", narrowed["a_second"] / as_wide["a_second"], 1.5, at_most=False)

    def swaps(self, service: Service) -> None:
        """Models are swapped at half of the capacity; a damaged one is refused."""
        with tempfile.TemporaryDirectory() as root:
            for number in range(2):
                shutil.copytree(service.folder, Path(root) / f"m{number}")
            copy_damaged(service.folder, Path(root) / "broken")
            with beamwood_server(Path(root) / "m0", *PATIENT, "--models-dir", root) as server:
                self.fill(service, server)
                self.load(service, server, connections=2)
                load_model(server, "m1")
                base, plan = server.mib("RssAnon"), {"rate": 0.5 * service.capacity, "connections": 64}
                quiet = flat(self.load(service, server, **plan))
                under = start(
                    address=server.address,
                    path="/v1/recommend",
                    bodies=service.asked,
                    seconds=2 * self.times.part,
                    **plan,
                )
                peak = self.peak_of_swaps(server)
                self.bar("damaged_models_that_answered", takes(server, "broken"), 0)
                found = under()
                after = server.mib("RssAnon")
        size = (service.folder / "weights.safetensors").stat().st_size / 2**20
        memory = {"base_mib": base, "peak_mib": peak, "after_mib": after, "quiet_p99_ms": quiet["p99_ms"]}
        figures = self.note(service, "swaps", found, **memory)
        self.bar("swaps_failed_requests", wrong(found), 0)
        self.bar("swaps_p99_over_quiet", figures["p99_ms"] / quiet["p99_ms"], 2)
        if size >= 100:
            # Of a small one it would measure Python.
            self.bar("swaps_anon_peak_of_artefact", max(0.0, peak - base) / size, 0.15)
        self.bar("swaps_anon_after_over_base", after / base - 1, 0.05)

    def peak_of_swaps(self, server: Process) -> float:
        """Swap models, and give the peak of anonymous memory in MiB."""
        peak = 0.0
        for number in range(self.times.swaps):
            load_model(server, f"m{(number + 1) % 2}")
            peak = max(peak, server.mib("RssAnon"))
        return peak

    def beside_the_rival(self, service: Service, rival: Service) -> None:
        """The same requests to FastAPI around two towers, one after the other."""
        with rival_server(rival.folder) as server:
            self.load(rival, server, seconds=1)
            single = self.note(rival, "one_connection", self.load(rival, server))
            self.note(rival, "saturated", self.load(rival, server, connections=4 * self.found["threads"]))
        own = service.single["server_cpu_ms"] - service.package["cpu_ms"]
        theirs = single["server_cpu_ms"] - rival.package["cpu_ms"]
        self.found["http_cpu_ms"] = {"beamwood": own, "rival": theirs}
        self.bar("http_cpu_over_rival", own / theirs, 1)

    def whole(self, say: Callable[[str], None]) -> dict[str, Any]:
        """All parts, one after the other."""
        model, full = self.model, self.full
        say("one connection")
        self.one_by_one(model)
        say("saturation")
        self.saturation(full)
        self.saturated(model, self.found["threads"])
        say("beside a batch")
        self.beside_a_batch(full)
        say("steady load")
        self.steady(full)
        self.steady(model)
        say("overload")
        self.brown_out(full)
        self.overload(model, "narrowed")
        say("swaps")
        self.swaps(full)
        say("the rival")
        self.beside_the_rival(model, self.rival)
        return self.found | {"bars": {name: bar.as_dict() for name, bar in self.bars.items()}}


def load_model(server: Process, path: str) -> None:
    """Have the model of that path answer. Errors: `OSError` where the server refuses it."""
    server.get("/v1/models/load", json.dumps({"path": path}).encode())


def takes(server: Process, path: str) -> bool:
    """Does the server load the model of that path?"""
    try:
        load_model(server, path)
    except OSError:
        return False
    return True


def copy_damaged(folder: Path, target: Path) -> None:
    """A copy of a saved model whose last weights are lost."""
    shutil.copytree(folder, target)
    weights = target / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096] + bytes(4096))


def flat(found: dict[str, Any]) -> dict[str, float]:
    """What was answered well, and what it cost."""
    good = found["status"].get(
        "200", {"count": 0, "a_second": 0.0, "p50_ms": np.nan, "p90_ms": np.nan, "p99_ms": np.nan}
    )
    more = {name: found[name] for name in MORE if name in found}
    return {name: float(value) for name, value in (good | more).items()}


def wrong(found: dict[str, Any], *expected: int) -> int:
    """How many requests had another end than an answer or an expected status."""
    ends = {int(status): each["count"] for status, each in found["status"].items()}
    return int(found["errors"]) + sum(count for status, count in ends.items() if status not in (200, *expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="within four minutes")
    parser.add_argument("--folder", type=Path, help="a saved tree, else one is fitted")
    parser.add_argument("--full", type=Path, help="a saved tree that a full beam answers, else one is fitted")
    parser.add_argument("--rival", type=Path, help="saved two towers with integer ids, else they are fitted too")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    one_thread()
    times = SHORT if options.short else LONG
    with tempfile.TemporaryDirectory() as root:
        folders = {"model": options.folder, "full": options.full, "rival": options.rival}
        for name in FITS:
            if folders[name] is None:
                folders[name] = Path(root) / name
                in_process(fit, folders[name], name, times)
        run = Run(folders["model"], folders["full"], folders["rival"], times)
        found = run.whole(lambda text: None if options.json else print(f"# {text}", flush=True))
    if options.json:
        print_results(found, as_json=True)
        return
    print_results({name: value for name, value in found.items() if not isinstance(value, dict)}, as_json=False)
    for name, bar in run.bars.items():
        print(bar.line(name))


if __name__ == "__main__":
    main()
