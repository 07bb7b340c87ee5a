"""Training steps per second of each method, on all processor cores and on a GPU of the same machine.

python -m benchmarks.gpu [--seconds 4] [--only "dtr,lightgcn"] [--devices cpu,cuda]

Each case prints one line of JSON. Logs are planted or random: the cost of a step does not depend on what is learned.
A step includes the sampling of its batch, but neither validation nor the set-up before the first step.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import torch

import beamwood
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.data.split import Split
from beamwood.data.splits import disjoint_users, leave_one_out
from beamwood.errors import InputError, NotInstalledError, nearest
from beamwood.fitting import run
from beamwood.fitting.tree.task import TreeTask
from beamwood.kernels import native
from beamwood.methods import load_method
from beamwood.training.batches import BatchOrder
from beamwood.training.device import device_of, on_device
from beamwood.training.loop_config import LoopConfig
from beamwood.training.trainable import Stepper, Trainable
from benchmarks.command import exit_code
from benchmarks.origin import machine, versions

# A log of MovieLens-1M's size, and one of a million items.
SMALL = MarketConfig(num_users=6040, num_items=3700, min_events=20, max_events=310)
LARGE = MarketConfig(num_users=100_000, num_items=1_000_000, min_events=10, max_events=30)
# The size of Gowalla in the version of LightGCN's authors: users, items, edges.
GRAPH = (29_858, 40_981, 810_128)
RANDOM_TREE = {"tree.start": "random"}

# Cases by name: the log, the method, its preset and its settings.
CASES: dict[str, tuple[str, str, str | None, Mapping[str, Any]]] = {
    "dtr": ("small", "dtr", None, RANDOM_TREE),
    "dtr paper-u": ("small", "dtr", "paper-u", RANDOM_TREE),
    "dtr paper-t": ("small", "dtr", "paper-t", RANDOM_TREE),
    "dtr large": ("large", "dtr", None, RANDOM_TREE),
    "dtr large 1024": ("large", "dtr", None, RANDOM_TREE | {"loop.batch_size": 1024}),
    "din": ("small", "din", None, {}),
    "sasrec": ("small", "sasrec", None, {"loss.sampled_negatives": None}),
    "sasrec paper": ("small", "sasrec", "paper", {}),
    "sasrec large": ("large", "sasrec", None, {"start.items": "random"}),
    "gru4rec": ("small", "gru4rec", None, {"loss.sampled_negatives": None}),
    "youtube_dnn": ("small", "youtube_dnn", None, {"loss.sampled_negatives": None}),
    "two_tower": ("small", "two_tower", None, {}),
    "two_tower large": ("large", "two_tower", None, {"start.items": "random"}),
    "tiger": ("small", "tiger", None, {}),
    "lightgcn": ("graph", "lightgcn", "paper", {}),
    "two_tower graph": ("graph", "two_tower", None, {"loss.negatives": "full", "start.items": "random"}),
}


class Timed(Exception):
    """The result of timing that takes the place of a training."""


@cache
def split_of(name: str) -> Split:
    """The log of a case."""
    if name == "graph":
        users, items, edges = GRAPH
        rng = np.random.default_rng(0)
        frame = pl.DataFrame({"user": rng.integers(0, users, edges), "item": rng.integers(0, items, edges)})
        return leave_one_out(beamwood.Dataset.from_log(beamwood.read_log(frame)))
    market = make_market(SMALL if name == "small" else LARGE, seed=0)
    return disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(market.log)))


def rates(task: Trainable[Any], config: LoopConfig, devices: Sequence[str], seconds: float) -> dict[str, float]:
    """Steps per second on each device, without the first steps."""
    stepper = Stepper(task, learning_rate=config.learning_rate)
    order, found = BatchOrder(task.num_examples, config.batch_size, np.random.default_rng(0)), {}
    for name in devices:
        device = device_of(name)
        with on_device(task.model, device):
            stepper.device, steps = device, 0
            stepper.optimisers.restart()
            for number in range(1, 4):
                stepper.step(order.next(), number=number, clip_norm=config.clip_norm)
            began = time.perf_counter()
            while (took := time.perf_counter() - began) < seconds:
                stepper.step(order.next(), number=steps + 4, clip_norm=config.clip_norm)
                steps += 1
            # Reading the loss waits for the GPU, so no work is pending when the clock is read.
            found[name] = steps / took
    return found


def timed(name: str, devices: Sequence[str], seconds: float) -> dict[str, Any]:
    """The rates of a case, measured in a fit in place of its training."""
    log, method, preset, settings = CASES[name]

    def instead(task: Trainable[Any], config: LoopConfig, **_: Any) -> None:
        raise Timed(rates(task, config, devices, seconds), config.batch_size)

    run.run_loop = instead  # type: ignore[assignment]
    if log == "large":
        # The initial tree of a million nodes takes minutes to build and does not change the cost of a step.
        TreeTask._start = lambda *_: None  # type: ignore[method-assign]
    try:
        load_method(method).fitted(split_of(log), settings, preset=preset, progress=False)
    except Timed as error:
        found, batch_size = error.args
    result = {"batch_size": batch_size, **{f"{device}_steps_a_second": rate for device, rate in found.items()}}
    return result | ({"times_as_fast": found["cuda"] / found["cpu"]} if {"cpu", "cuda"} <= found.keys() else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each case and device")
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--devices", default="cpu,cuda")
    options = parser.parse_args()
    return exit_code("benchmarks.gpu", lambda: measured(options))


def measured(options: argparse.Namespace) -> int:
    """Measure each case, and print its line."""
    if native() is None:
        raise NotInstalledError("the native core is not built; run `make native`")
    wanted = options.only.split(",") if options.only else list(CASES)
    for name in wanted:
        if name not in CASES:
            raise InputError(f"--only {name} is not measured{nearest(name, CASES)}")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    print(json.dumps({"machine": machine() | {"gpu": gpu} | versions()}), flush=True)
    for name in wanted:
        print(json.dumps({name: timed(name, options.devices.split(","), options.seconds)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
