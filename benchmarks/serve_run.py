"""The parts of `benchmarks.serve`: the load of each server, and its bars."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar
from benchmarks.measure import memory_pace
from benchmarks.serve_load import offered_load, start
from benchmarks.serve_process import (
    Process,
    beamwood_server,
    lag_at,
    memory_slope,
    rival_server,
    seconds_to_load,
)
from benchmarks.serve_service import Service
from benchmarks.serve_turns import Turns, flat, middle, together, wrong

__all__ = ["LONG_PARTS", "PARTS", "Run", "Times"]

LONG_PARTS = ("steady, full beam", "steady, as fitted")
PARTS = ("machine", "one connection", "saturation", "batch", *LONG_PARTS, "overload", "swaps")
PATIENT = ("--timeout", "30s", "--max-wait", "30s")


@dataclass(frozen=True)
class Times:
    """Durations and turns of the parts, training steps, numbers of swaps and market sizes.

    `items`: items of the market of the tree as fitted; `full`: items of that of the tree with a full beam; `users`:
    users of both; `warm`: the longest warm-up, in seconds, until memory is stable.
    """

    items: int
    full: int
    users: int
    steps: int
    part: Turns
    steady: Turns
    warm: float
    swaps: int


class Run:
    """One run over the services: the measurements and the bars."""

    def __init__(self, model: Path, full: Path, rival: Path, times: Times) -> None:
        self.model, self.full, self.rival = Service("model", model), Service("full", full), Service("rival", rival)
        self.times, self.threads = times, len(os.sched_getaffinity(0))
        self.found: dict[str, Any] = {"threads": self.threads, "load_average": os.getloadavg()[0]}
        self.bars: dict[str, Bar] = {}

    def measured(self, say: Callable[[str], None], parts: Sequence[str] = PARTS) -> dict[str, Any]:
        """These parts, in sequence. Errors: a part that is not in `PARTS`."""
        actions: dict[str, Callable[[], None]] = {
            "machine": self.machine,
            "one connection": self.one_by_one,
            "saturation": self.saturation,
            "batch": lambda: self.beside_a_batch(self.full),
            "steady, full beam": lambda: self.steady(self.full),
            "steady, as fitted": lambda: self.steady(self.model),
            "overload": self.overloads,
            "swaps": lambda: self.swaps(self.full),
        }
        for part in parts:
            say(part)
            actions[part]()
        return self.found | {"bars": {name: bar.as_dict() for name, bar in self.bars.items()}}

    def machine(self) -> None:
        """How often the memory of the machine is slow before the run loads it."""
        self.found["machine"] = memory_pace(self.times.part.seconds)

    def bar(self, name: str, value: float, bound: float, *, at_most: bool = True) -> None:
        """Add a bar: `value` must be at most, or at least, `bound`."""
        self.bars[name] = Bar(float(value), bound, at_most)

    def note(self, service: Service, part: str, figures: dict[str, Any]) -> None:
        """Store the measurements of a part."""
        self.found.setdefault(service.name, {})[part] = figures

    def one_by_one(self) -> None:
        """The overhead of HTTP over the package, also for the rival; start-up time and memory."""
        own, theirs = _OneByOne(self.model), _OneByOne(self.rival)
        with beamwood_server(self.model.folder, *PATIENT) as server, rival_server(self.rival.folder) as other:
            self.idle(server)
            self.model.load(server, 1)
            self.rival.load(other, 1)
            for seconds in self.times.part:
                own.turn(server, seconds)
                theirs.turn(other, seconds)
            self.bar("torch_loaded", float(server.has_mapped("libtorch")), 0)
            saturated = [self.rival.capacity(other, seconds, self.threads) for seconds in self.times.part]
            steady = list(self.steadily(self.rival, other))
        self.note(self.rival, "saturated", together(saturated))
        self.note(self.rival, "steady", together(steady))
        for each in (own, theirs):
            self.note(each.service, "package", each.package)
            self.note(each.service, "one_connection", together(each.found))
        self.found["http_cpu_ms"] = {"beamwood": own.added_cpu_ms, "rival": theirs.added_cpu_ms}
        self.bar("http_cpu_ms_above_package", own.added_cpu_ms, 0.4)
        self.bar("http_p50_ms_above_package", own.added("p50_ms", "p50_ms"), 0.6)
        self.bar("http_cpu_over_rival", own.added_cpu_ms / theirs.added_cpu_ms, 1)

    def idle(self, server: Process) -> None:
        """Start-up time and memory of a server before its first request."""
        rss, load = server.mib("VmRSS"), seconds_to_load(self.model.folder)
        self.found["start"] = {
            "anon_mib": server.mib("RssAnon"),
            "rss_mib": rss,
            "weights_mib": self.model.mib,
            "seconds": server.seconds_to_ready,
            "load_seconds": load,
        }
        self.bar("start_over_load", server.seconds_to_ready / load, 2)
        self.bar("idle_rss_mib_above_weights", rss - self.model.mib, 120)

    def saturation(self) -> None:
        """Throughput at saturation, and its scaling with threads."""
        full, counts = self.full, sorted({1, 2, self.threads})
        turns: list[tuple[dict[str, float], dict[int, dict[str, Any]]]] = []
        with contextlib.ExitStack() as running:
            servers = {
                count: running.enter_context(beamwood_server(full.folder, *PATIENT, "--threads", str(count)))
                for count in counts
            }
            other = running.enter_context(beamwood_server(self.model.folder, *PATIENT))
            for service, server in ((self.model, other), *((full, server) for server in servers.values())):
                service.load(server, 1)
            light = []
            for seconds in self.times.part:
                package = full.in_process()
                turns.append((package, {n: full.capacity(server, seconds, n) for n, server in servers.items()}))
                light.append(self.model.capacity(other, seconds, self.threads))
        for count in counts:
            self.note(full, f"saturated_{count}", together([found[count] for _, found in turns]))
        self.note(self.model, f"saturated_{self.threads}", together(light))
        rates = [{count: flat(each)["a_second"] for count, each in found.items()} for _, found in turns]
        ideal = [self.threads / (package["cpu_ms"] / 1e3) for package, _ in turns]
        share = middle([rate[self.threads] / best for rate, best in zip(rates, ideal, strict=True)])
        self.bar("saturation_of_ideal", share, 0.85, at_most=False)
        self.bar("two_threads_over_one", middle([rate[2] / rate[1] for rate in rates]), 1.8, at_most=False)

    def beside_a_batch(self, service: Service) -> None:
        """How much longer a request takes while batches of 256 are answered, in units of one search."""
        quiet, beside, waited = [], [], []
        batches = {"path": "/v1/recommend/batch", "bodies": [{"requests": (service.asked * 2)[:256]}], "connections": 1}
        with beamwood_server(service.folder, *PATIENT) as server:
            service.load(server, 1)
            for seconds in self.times.part:
                search = service.in_process()["p50_ms"]
                quiet.append(service.load(server, seconds))
                batch = start(address=server.address, seconds=seconds + 1, **batches)
                time.sleep(0.5)
                beside.append(service.load(server, seconds))
                batch()
                waited.append((flat(beside[-1])["p50_ms"] - flat(quiet[-1])["p50_ms"]) / search)
        self.note(service, "one_connection", together(quiet))
        self.note(service, "beside_batch", together(beside))
        self.bar("wait_beside_batch_in_searches", middle(waited), 2)

    def steady(self, service: Service) -> None:
        """Steady load: four fifths of the capacity, open loop."""
        found: list[dict[str, Any]] = []
        with beamwood_server(service.folder, *PATIENT) as server:
            service.warm(server, self.times.warm)
            with _watched(server) as samples:
                lags = server.lags()
                for turn in self.steadily(service, server):
                    now = server.lags()
                    found.append(turn | {"loop_lag_p99_ms": 1e3 * lag_at(lags, now, 0.99)})
                    lags = now
        figures, each = together(found), [flat(turn) for turn in found]
        self.note(service, "steady", figures)
        self.bar(f"{service.name}_steady_errors", wrong(found), 0)
        self.bar(f"{service.name}_steady_p99_over_p50", middle([turn["p99_ms"] / turn["p50_ms"] for turn in each]), 5)
        self.bar(f"{service.name}_steady_rss_growth", memory_slope(samples), 0.01)
        self.bar(f"{service.name}_steady_loop_lag_p99_ms", figures["loop_lag_p99_ms"], 5)

    def steadily(self, service: Service, server: Process) -> Iterator[dict[str, Any]]:
        """Turns at four fifths of the capacity, which each turn measures first."""
        for seconds, whole in zip(self.times.part, self.times.steady, strict=True):
            rate = 0.8 * flat(service.capacity(server, seconds, self.threads))["a_second"]
            yield service.load(server, whole, rate=rate, connections=64)

    def overloads(self) -> None:
        """Overload of both trees."""
        self.overload(self.full, beside=True)
        self.overload(self.model)

    def overload(self, service: Service, *, beside: bool = False) -> None:
        """Overload: twice the capacity, then one connection; `beside`: also a server that does not narrow beams."""
        narrowed = _Overloaded(service, self.threads)
        as_wide = _Overloaded(service, self.threads, "--min-beam", str(10**6))
        for seconds in self.times.part:
            narrowed.turn(seconds)
            if beside:
                as_wide.turn(seconds)
        name, figures = service.name, together(narrowed.found)
        self.note(service, "overload_narrowed", figures)
        self.bar(f"{name}_overload_goodput", middle(narrowed.goodput), 0.9, at_most=False)
        self.bar(f"{name}_overload_refused_p99_ms", figures.get("refused", {}).get("p99_ms", 0.0), 20)
        self.bar(f"{name}_overload_other_errors", wrong(narrowed.found, 429), 0)
        self.bar(f"{name}_overload_recovered_p50", middle(narrowed.recovered), 2)
        if beside:
            self.note(service, "overload_as_wide", together(as_wide.found))
            more = [own / wide for own, wide in zip(narrowed.goodput, as_wide.goodput, strict=True)]
            self.bar("narrowed_over_as_wide", middle(more), 1.5, at_most=False)
            self.bar("narrowed_overlap_at_10", service.narrowed_overlap(), 0.9, at_most=False)

    def swaps(self, service: Service) -> None:
        """Model swaps at half the capacity; a damaged model is refused."""
        quiet, under, peak = [], [], 0.0
        each = -(-self.times.swaps // self.times.part.count)
        with (
            _models(service.folder) as root,
            beamwood_server(root / "m0", *PATIENT, "--models-dir", str(root)) as server,
        ):
            service.warm(server, self.times.warm)
            _swap(server, 2)
            base = server.mib("RssAnon")
            for seconds in self.times.part:
                rate = 0.5 * flat(service.capacity(server, seconds, self.threads))["a_second"]
                plan = {"path": "/v1/recommend", "bodies": service.asked, "rate": rate, "connections": 64}
                quiet.append(offered_load(address=server.address, seconds=seconds, **plan))
                answered = start(address=server.address, seconds=2 * seconds, **plan)
                peak = max(peak, _swap(server, each))
                under.append(answered())
            took_broken = _takes(server, "broken")
            after = server.mib("RssAnon")
        memory = {"base_mib": base, "peak_mib": peak, "after_mib": after, "quiet_p99_ms": together(quiet)["p99_ms"]}
        self.note(service, "swaps", together(under) | memory)
        longer = [flat(own)["p99_ms"] / flat(before)["p99_ms"] for own, before in zip(under, quiet, strict=True)]
        self.bar("damaged_models_that_answered", took_broken, 0)
        self.bar("swaps_failed_requests", wrong(under), 0)
        self.bar("swaps_p99_over_quiet", middle(longer), 2)
        if service.mib >= 100:
            # For a small model this would measure the memory of Python.
            self.bar("swaps_anon_peak_of_artefact", max(0.0, peak - base) / service.mib, 0.15)
        self.bar("swaps_anon_after_over_base", after / base - 1, 0.05)


class _OneByOne:
    """One connection to a service, and the package in a separate process, in alternating turns."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.found: list[dict[str, Any]] = []
        self.packages: list[dict[str, float]] = []

    def turn(self, server: Process, seconds: float) -> None:
        """One turn of each."""
        self.packages.append(self.service.in_process())
        self.found.append(self.service.load(server, seconds))

    @property
    def package(self) -> dict[str, float]:
        """The package's figures, medians over the turns."""
        return {name: middle([turn[name] for turn in self.packages]) for name in self.packages[0]}

    @property
    def added_cpu_ms(self) -> float:
        """Processor milliseconds that HTTP adds."""
        return self.added("server_cpu_ms", "cpu_ms")

    def added(self, figure: str, of_package: str) -> float:
        """The median difference between a request and the package alone."""
        return middle(
            [flat(turn)[figure] - own[of_package] for turn, own in zip(self.found, self.packages, strict=True)]
        )


class _Overloaded:
    """Measurements of a service at twice its capacity, in turns."""

    def __init__(self, service: Service, threads: int, *options: str) -> None:
        self.service, self.threads, self.options = service, threads, options
        self.found: list[dict[str, Any]] = []
        self.goodput: list[float] = []
        self.recovered: list[float] = []

    def turn(self, seconds: float) -> None:
        """One connection, then the capacity, then twice the capacity, then one connection again."""
        service = self.service
        with beamwood_server(service.folder, "--timeout", "2s", *self.options) as server:
            service.load(server, 1)
            single = flat(service.load(server, 1))["p50_ms"]
            capacity = flat(service.capacity(server, seconds, self.threads))["a_second"]
            found = service.load(server, 2 * seconds, rate=2 * capacity, connections=64)
            time.sleep(1)
            found["after_p50_ms"] = flat(service.load(server, 1))["p50_ms"]
        self.found.append(found)
        self.goodput.append(flat(found)["a_second"] / capacity)
        self.recovered.append(found["after_p50_ms"] / single)


@contextlib.contextmanager
def _watched(server: Process) -> Iterator[list[tuple[float, float]]]:
    """Samples of a server's memory, (seconds, MiB), until the context ends."""
    samples: list[tuple[float, float]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.25):
            samples.append((time.perf_counter(), server.mib("VmRSS")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield samples
    finally:
        ended.set()
        watcher.join()


@contextlib.contextmanager
def _models(folder: Path) -> Iterator[Path]:
    """A folder with two copies of a model and a damaged one."""
    with tempfile.TemporaryDirectory() as root:
        for name in ("m0", "m1", "broken"):
            shutil.copytree(folder, Path(root) / name)
        weights = Path(root) / "broken" / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4096] + bytes(4096))
        yield Path(root)


def _swap(server: Process, times: int) -> float:
    """Swap models and return the peak of anonymous memory in MiB."""
    peak = 0.0
    for number in range(times):
        _load_model(server, f"m{(number + 1) % 2}")
        peak = max(peak, server.mib("RssAnon"))
    return peak


def _load_model(server: Process, path: str) -> None:
    """Make the server load the model at this path. Errors: `OSError` if it refuses."""
    server.get("/v1/models/load", json.dumps({"path": path}).encode())


def _takes(server: Process, path: str) -> bool:
    """Whether the server loads the model at this path."""
    try:
        _load_model(server, path)
    except OSError:
        return False
    return True
