"""`beamwood serve` under load, against the package in process and FastAPI around two towers in an HNSW graph.

`python -m benchmarks.serve [--short] [--folder FOLDER --rival FOLDER] [--json]`. Without folders both are fitted on a
planted market. Load comes from another process of this machine, whose processor time is reported apart. Every figure of
a bar is a ratio within this run; on a busy machine read processor times. Exit 0 whenever it measured.
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
from benchmarks.measure import in_process, one_thread, report
from benchmarks.serve_load import load, start
from benchmarks.serve_process import Process, beamwood_server, lag_at, memory_slope, rival_server

K = 20
PATIENT = ("--timeout", "30s", "--max-wait", "30s")


@dataclass(frozen=True)
class Times:
    """How long each part runs, in seconds, how many steps the models are trained, and how often they are swapped."""

    items: int
    steps: int
    part: float
    steady: float
    swaps: int


SHORT = Times(items=1000, steps=100, part=4.0, steady=16.0, swaps=6)
LONG = Times(items=10_000, steps=3000, part=30.0, steady=600.0, swaps=20)


def fit(folder: Path, times: Times) -> None:
    """A tree and two towers on one planted market, saved below the folder."""
    from beamwood.data.synthetic import MarketConfig, make_market

    market = make_market(MarketConfig(num_items=times.items), seed=0)
    dataset = beamwood.Dataset.from_log(beamwood.read_log(market.log), market.item_frame)
    split = beamwood.splits.disjoint_users(dataset, seed=0)
    steps = {"loop.max_steps": times.steps}
    tower = steps | {"index.kind": "hnsw"}
    beamwood.fit(split, "two_tower", tower, progress=False).save(folder / "rival")
    beamwood.fit(split, "dtr", steps, progress=False).save(folder / "model")


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


class Run:
    """One run over a folder: what was found, and which bars hold."""

    def __init__(self, folder: Path, rival: Path | None, times: Times) -> None:
        self.folder, self.rival, self.times = folder, rival, times
        self.asked = bodies(folder)
        self.found: dict[str, Any] = {"threads": len(os.sched_getaffinity(0)), "load_average": os.getloadavg()[0]}
        self.bars: dict[str, dict[str, Any]] = {}

    def bar(self, name: str, value: float, bound: float, *, at_most: bool = True) -> None:
        """Keep a bar: `value` must be at most, or at least, `bound`."""
        holds = value <= bound if at_most else value >= bound
        self.bars[name] = {"value": round(float(value), 4), "bound": bound, "holds": bool(holds)}

    def load(self, server: Process, **plan: Any) -> dict[str, Any]:
        """The load, with what it cost the server a request."""
        whole = {"path": "/v1/recommend", "bodies": self.asked, "seconds": self.times.part, "connections": 1} | plan
        before = server.processor
        found = load(address=server.address, **whole)
        count = sum(each["count"] for each in found["status"].values())
        found["server_cpu_ms"] = 1e3 * (server.processor - before) / max(count, 1)
        return found

    def one_by_one(self) -> None:
        """Acceptance 2 and 12: what HTTP adds to the package, the start, the memory."""
        package = in_process(alone, str(self.folder), [body["history"] for body in self.asked])
        with beamwood_server(self.folder, *PATIENT) as server:
            size = (self.folder / "weights.safetensors").stat().st_size / 2**20
            memory = {"anon_mib": server.mib("RssAnon"), "rss_mib": server.mib("VmRSS"), "weights_mib": size}
            self.load(server)
            single = self.load(server)
            torch = server.has_mapped("libtorch")
        self.found |= {"package": package, "one_connection": flat(single), "start": memory}
        self.found["start"]["seconds"] = server.seconds_to_ready
        self.bar("http_cpu_ms_above_package", single["server_cpu_ms"] - package["cpu_ms"], 0.4)
        self.bar("http_p50_ms_above_package", flat(single)["p50_ms"] - package["p50_ms"], 0.6)
        self.bar("torch_loaded", float(torch), 0)
        self.bar("idle_rss_mib_above_weights", memory["rss_mib"] - size, 120)

    def saturation(self) -> float:
        """Acceptance 3: threads add up, and a caller does not wait for a batch. The capacity, in answers a second."""
        rates, threads = {}, self.found["threads"]
        for count in sorted({1, 2, threads}):
            with beamwood_server(self.folder, *PATIENT, "--threads", str(count)) as server:
                full = self.load(server, connections=4 * count)
                rates[count] = flat(full)["a_second"]
                self.found[f"saturated_{count}"] = flat(full)
                if count == threads:
                    self.beside_a_batch(server)
        ideal = threads / (self.found["package"]["cpu_ms"] / 1e3)
        self.bar("saturation_of_ideal", rates[threads] / ideal, 0.85, at_most=False)
        self.bar("two_threads_over_one", rates[2] / rates[1], 1.8, at_most=False)
        return rates[threads]

    def beside_a_batch(self, server: Process) -> None:
        """How much longer a caller waits while batches of 256 are answered, in single searches."""
        quiet = flat(self.load(server))["p50_ms"]
        batch = start(
            address=server.address,
            path="/v1/recommend/batch",
            bodies=[{"requests": (self.asked * 2)[:256]}],
            seconds=self.times.part + 1,
            connections=1,
        )
        time.sleep(0.5)
        beside = flat(self.load(server))["p50_ms"]
        batch()
        self.found["beside_batch"] = {"quiet_p50_ms": quiet, "beside_p50_ms": beside}
        self.bar("wait_beside_batch_in_searches", (beside - quiet) / self.found["package"]["p50_ms"], 2)

    def steady(self, capacity: float) -> None:
        """Acceptance 4: four fifths of the capacity, open loop."""
        with beamwood_server(self.folder, *PATIENT) as server:
            self.load(server)
            samples, lags, watching = [], server.lags(), threading.Event()

            def watch() -> None:
                while not watching.wait(0.25):
                    samples.append((time.perf_counter(), server.mib("VmRSS")))

            watcher = threading.Thread(target=watch)
            watcher.start()
            found = self.load(server, rate=0.8 * capacity, connections=64, seconds=self.times.steady)
            watching.set()
            watcher.join()
            late = lag_at(lags, server.lags(), 0.99)
        self.found["steady"] = flat(found) | {"loop_lag_p99_ms": 1e3 * late}
        self.bar("steady_errors", wrong(found), 0)
        self.bar("steady_p99_over_p50", flat(found)["p99_ms"] / flat(found)["p50_ms"], 5)
        self.bar("steady_rss_growth", memory_slope(samples), 0.01)
        self.bar("steady_loop_lag_p99_ms", 1e3 * late, 5)

    def overload(self, capacity: float) -> None:
        """Acceptance 5: twice the capacity, with the brown-out and without it, and back to normal."""
        rates = {}
        least = str(10**6)
        for name, options in (("narrowed", ()), ("as_wide", ("--min-beam", least))):
            with beamwood_server(self.folder, "--timeout", "2s", *options) as server:
                self.load(server)
                found = self.load(server, rate=2 * capacity, connections=64, seconds=2 * self.times.part)
                refused = found["status"].get("429", {"count": 0, "p99_ms": 0.0})
                rates[name] = flat(found)["a_second"]
                self.found[f"overload_{name}"] = flat(found) | {"refused": refused, "degraded": found["degraded"]}
                if name == "narrowed":
                    time.sleep(1)
                    after = flat(self.load(server))
                    self.bar("overload_goodput_of_capacity", rates[name] / capacity, 0.9, at_most=False)
                    self.bar("overload_refused_p99_ms", refused["p99_ms"], 20)
                    self.bar("overload_other_errors", wrong(found, 429), 0)
                    self.bar("overload_recovered_p50", after["p50_ms"] / self.found["one_connection"]["p50_ms"], 2)
        self.found["narrowed_over_as_wide"] = rates["narrowed"] / rates["as_wide"]

    def swaps(self, capacity: float) -> None:
        """Acceptance 6: models are swapped at half of the capacity; a damaged one is refused."""
        with tempfile.TemporaryDirectory() as root:
            for number in range(2):
                shutil.copytree(self.folder, Path(root) / f"m{number}")
            shutil.copytree(self.folder, broken := Path(root) / "broken")
            content = bytearray((broken / "weights.safetensors").read_bytes())
            content[-4096:] = bytes(4096)
            (broken / "weights.safetensors").write_bytes(content)
            with beamwood_server(Path(root) / "m0", *PATIENT, "--models-dir", root) as server:
                self.load(server, connections=2)
                server.get("/v1/models/load", b'{"path": "m1"}')
                base, plan = server.mib("RssAnon"), {"rate": 0.5 * capacity, "connections": 64}
                quiet = flat(self.load(server, **plan))
                under = start(
                    address=server.address,
                    path="/v1/recommend",
                    bodies=self.asked,
                    seconds=2 * self.times.part,
                    **plan,
                )
                peak = self.swap_often(server)
                found = under()
                after = server.mib("RssAnon")
        size = self.found["start"]["weights_mib"]
        self.found["swaps"] = flat(found) | {"base_mib": base, "peak_mib": peak, "after_mib": after}
        self.bar("swaps_failed_requests", wrong(found), 0)
        self.bar("swaps_p99_over_quiet", flat(found)["p99_ms"] / quiet["p99_ms"], 2)
        if size >= 100:
            # Of a small one it would measure Python.
            self.bar("swaps_anon_peak_of_artefact", max(0.0, peak - base) / size, 0.15)
        self.bar("swaps_anon_after_over_base", after / base - 1, 0.05)

    def swap_often(self, server: Process) -> float:
        """Swap models, try the damaged one, and give the peak of anonymous memory in MiB."""
        peak, refused = 0.0, 0
        for number in range(self.times.swaps):
            body = json.dumps({"path": f"m{(number + 1) % 2}"}).encode()
            server.get("/v1/models/load", body)
            peak = max(peak, server.mib("RssAnon"))
        try:
            server.get("/v1/models/load", b'{"path": "broken"}')
        except OSError:
            refused = 1
        self.bar("damaged_models_that_answered", 1 - refused, 0)
        return peak

    def beside_the_rival(self) -> None:
        """The same requests to FastAPI around two towers, one after the other."""
        if self.rival is None:
            return
        package = in_process(alone, str(self.rival), [body["history"] for body in self.asked])
        with rival_server(self.rival) as server:
            self.load(server)
            single, full = self.load(server), self.load(server, connections=4 * self.found["threads"])
        self.found["rival"] = {"package": package, "one_connection": flat(single), "saturated": flat(full)}
        own = self.found["one_connection"]["server_cpu_ms"] - self.found["package"]["cpu_ms"]
        theirs = single["server_cpu_ms"] - package["cpu_ms"]
        self.found["http_cpu_ms"] = {"beamwood": own, "rival": theirs}
        self.bar("http_cpu_over_rival", own / theirs, 1)

    def whole(self, say: Callable[[str], None]) -> dict[str, Any]:
        """All parts, one after the other."""
        say("one connection")
        self.one_by_one()
        say("saturation")
        capacity = self.saturation()
        say("steady load")
        self.steady(capacity)
        say("overload")
        self.overload(capacity)
        say("swaps")
        self.swaps(capacity)
        say("the rival")
        self.beside_the_rival()
        return self.found | {"bars": self.bars}


def flat(found: dict[str, Any]) -> dict[str, float]:
    """What was answered well, and what it cost."""
    good = found["status"].get(
        "200", {"count": 0, "a_second": 0.0, "p50_ms": np.nan, "p90_ms": np.nan, "p99_ms": np.nan}
    )
    more = {name: found[name] for name in ("server_cpu_ms", "load_cpu_s", "late_p99_ms") if name in found}
    return {name: float(value) for name, value in (good | more).items()}


def wrong(found: dict[str, Any], *expected: int) -> int:
    """How many requests had another end than an answer or an expected status."""
    ends = {int(status): each["count"] for status, each in found["status"].items()}
    return int(found["errors"]) + sum(count for status, count in ends.items() if status not in (200, *expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="within four minutes")
    parser.add_argument("--folder", type=Path, help="a saved tree, else one is fitted")
    parser.add_argument("--rival", type=Path, help="saved two towers with integer ids, else they are fitted too")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    one_thread()
    times = SHORT if options.short else LONG
    with tempfile.TemporaryDirectory() as folder:
        model, rival = options.folder, options.rival
        if model is None:
            model, rival = Path(folder) / "model", Path(folder) / "rival"
            in_process(fit, Path(folder), times)
        run = Run(model, rival, times)
        found = run.whole(lambda text: None if options.json else print(f"# {text}", flush=True))
    if options.json:
        report(found, as_json=True)
        return
    bars = found.pop("bars")
    report({name: value for name, value in found.items() if not isinstance(value, dict)}, as_json=False)
    for name, bar in bars.items():
        print(f"{'holds' if bar['holds'] else 'FAILS':<6} {name:<36} {bar['value']:<10.4g} bound {bar['bound']}")


if __name__ == "__main__":
    main()
