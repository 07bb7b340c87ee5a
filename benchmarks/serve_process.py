"""Measurements of a server process: processor time, memory, loaded libraries, metrics."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, began: float) -> None:
        self.process, self.address = process, address
        self.seconds_to_ready = time.perf_counter() - began

    @property
    def processor(self) -> float:
        """Processor seconds of all its threads so far."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / _TICKS

    @property
    def held_up(self) -> float:
        """Seconds so far that its threads were ready to run but waited for a processor."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((each / "schedstat").read_text().split()[1]) for each in tasks.iterdir()) / 1e9

    def mib(self, key: str) -> float:
        """Memory in MiB: RssAnon, RssFile or VmRSS."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024

    def has_mapped(self, name: str) -> bool:
        """Whether a library of this name is loaded."""
        return name in Path(f"/proc/{self.process.pid}/maps").read_text()

    def get(self, path: str, body: bytes | None = None) -> bytes:
        """The body of the answer."""
        request = urllib.request.Request(f"http://{self.address}{path}", data=body)
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=120) as answer:
            content: bytes = answer.read()
            return content

    def lags(self) -> dict[float, float]:
        """Cumulative counts of event loop lags, by upper bound in seconds."""
        text = self.get("/metrics").decode()
        found = re.findall(r'^beamwood_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', text, re.MULTILINE)
        return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in found}


def lag_at(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """A quantile of the lags between two readings: the bound in seconds below which this share lies."""
    counts = {bound: after[bound] - before[bound] for bound in after}
    return next(bound for bound, count in sorted(counts.items()) if count >= share * counts[float("inf")])


@contextlib.contextmanager
def beamwood_server(folder: Path, *arguments: str) -> Iterator[Process]:
    """`beamwood serve` on a free port."""
    with _started("beamwood", "serve", str(folder), "--log", "none", "--store", "memory", *arguments) as server:
        yield server


@contextlib.contextmanager
def rival_server(folder: Path) -> Iterator[Process]:
    """`benchmarks.serve_rival` on a free port."""
    with _started("benchmarks.serve_rival", str(folder)) as server:
        yield server


@contextlib.contextmanager
def _started(module: str, *arguments: str) -> Iterator[Process]:
    port = _free_port()
    options = ["--port", str(port)] if module == "beamwood" else [str(port)]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", module, *arguments, *options], stderr=subprocess.DEVNULL)
    address = f"127.0.0.1:{port}"
    try:
        while not _is_ready(address):
            if process.poll() is not None or time.perf_counter() - began > 120:
                raise RuntimeError(f"{module} did not start; run it by hand: {' '.join(arguments)}")
            time.sleep(0.02)
        yield Process(process, address, began)
    finally:
        process.kill()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5):
            return True
    except OSError:
        return False


def seconds_to_load(folder: Path) -> float:
    """Wall time of a process that loads a folder in Python, and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import beamwood; beamwood.load({str(folder)!r})"], check=True)
    return time.perf_counter() - began


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def memory_slope(samples: list[tuple[float, float]]) -> float:
    """The relative growth of memory from the first quarter of the samples to the last, by medians."""
    quarter = max(1, len(samples) // 4)
    first, last = (sorted(mib for _, mib in part)[quarter // 2] for part in (samples[:quarter], samples[-quarter:]))
    return last / first - 1
