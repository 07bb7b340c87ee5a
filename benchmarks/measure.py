"""Timing and peak memory for the benchmarks: one process per case, one thread, medians."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""An environment in which every library has one thread."""


def status_kib(key: str) -> int:
    """A field of /proc/self/status in KiB: VmRSS (current) or VmHWM (peak)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(f"{key}:"))


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall time of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def processor_seconds_of(work: Callable[[], Any]) -> float:
    """Processor time of `work`: with one thread about its wall time on an idle machine, even if the machine is busy."""
    start = time.process_time()
    work()
    return time.process_time() - start


def timed(work: Callable[[], Any], *, repeats: int, warm: int = 1) -> dict[str, float]:
    """Median and best wall seconds of `work`, its median processor seconds, and the increase of peak memory in MiB.

    On a shared machine, processor seconds of one thread compare better than wall seconds.
    """
    gc.collect()
    before = status_kib("VmRSS")
    for _ in range(warm):
        work()
    seconds, processor = [], []
    for _ in range(repeats):
        before_work = time.process_time()
        seconds.append(seconds_of(work))
        processor.append(time.process_time() - before_work)
    return {
        "median_s": statistics.median(seconds),
        "best_s": min(seconds),
        "processor_s": statistics.median(processor),
        "peak_mib": (status_kib("VmHWM") - before) / 1024,
    }


def in_process(function: Callable[..., Any], *args: Any, environment: dict[str, str] | None = None) -> Any:
    """`function(*args)` in a fresh process with `environment` added, so that memory peaks are separate."""
    before = dict(os.environ)
    os.environ.update(environment or {})
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(function, args)
    finally:
        os.environ.clear()
        os.environ.update(before)


def multiply_adds_a_ms() -> float:
    """The peak number of multiply-adds of one core per millisecond, from a product of 768 x 768 matrices."""
    import numpy as np

    a = np.random.default_rng(0).random((768, 768), dtype=np.float32)
    best = min(processor_seconds_of(lambda: a @ a) for _ in range(4))
    return 768**3 / best / 1000


def gemm_gflops() -> float:
    """`multiply_adds_a_ms` in units of 1e9 floating point operations a second."""
    return 2 * multiply_adds_a_ms() / 1e6


def memory_pace(seconds: float) -> dict[str, float]:
    """The variation of the machine's memory latency, by repeated writes to 48 MiB of pages for this many seconds.

    `slow_share`: the share of writes above five times the median; `slow_times`: their median as a multiple of it.
    """
    import numpy as np

    pages = np.zeros(48 << 20, np.uint8)[::4096]
    pages += 1
    took, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        took.append(seconds_of(lambda: np.add(pages, 1, out=pages)))
        time.sleep(0.002)
    times = np.array(took) / np.median(took)
    slow = times[times > 5]
    return {"slow_share": len(slow) / len(times), "slow_times": float(np.median(slow)) if len(slow) else 1.0}


def one_thread() -> None:
    """Restart this process with one thread for every library, unless it was started that way."""
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.environ.update(ONE_THREAD)
        os.execv(sys.executable, sys.orig_argv)


def print_results(results: dict[str, Any], *, as_json: bool) -> None:
    """Print one JSON document, or readable lines."""
    if as_json:
        print(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        if isinstance(value, dict):
            value = "  ".join(f"{key} {number:.4g}" for key, number in value.items())
        print(f"{name:<28} {value:.4g}" if isinstance(value, float) else f"{name:<28} {value}")
