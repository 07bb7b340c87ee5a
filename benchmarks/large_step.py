"""A training step over a large catalogue: torch's Adam updates every vector, lazy Adam those that the step used.

python -m benchmarks.large_step [--json] [--items 1000000] [--repeats 5] [--cases "dtr;two_tower"]

Times are processor milliseconds of one thread; each case has its own process. Items and histories are random: the cost
of a step does not depend on what is learned.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from benchmarks.measure import in_process, one_thread, timed

OPTIMIZERS = ("adam", "lazy-adam")


def random_histories(num_items: int) -> Any:
    """A data set with two interactions per item and 50 per user."""
    import polars as pl

    from beamwood.data import Dataset, read_log

    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(num_items), rng.integers(0, num_items, num_items)])
    return Dataset.from_log(read_log(pl.DataFrame({"user": np.arange(len(items)) // 50, "item": items})))


def dtr_task(train: Any, optimizer: Any) -> tuple[Any, int]:
    """The training task of a tree, and the number of examples per step."""
    from beamwood.data import disjoint_users
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.tree.dtr import make_objective
    from beamwood.fitting.tree.task import TreeTask
    from beamwood.methods import dtr

    split = disjoint_users(train)
    settings = {"model.width": 24, "tree.start": "random", "optimiser.embeddings": optimizer}
    config = dtr.Config(**settings).plan(Facts.of(split.train))
    return TreeTask(split, config, lambda tree: make_objective(config, tree, None)), config.loop.batch_size


def two_tower_task(train: Any, optimizer: Any) -> tuple[Any, int]:
    """The task of two towers."""
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.vectors.towers import TwoTowerTask
    from beamwood.methods import two_tower

    settings = {"model.user_tower": "mean", "model.width": 32, "loss.negatives": "bir", "start.items": "random"}
    config = two_tower.Config(**settings, **{"loop.batch_size": 1024, "optimiser.embeddings": optimizer})
    return TwoTowerTask(train, config.plan(Facts.of(train))), config.loop.batch_size


def sasrec_task(train: Any, optimizer: Any) -> tuple[Any, int]:
    """The task of a sequence encoder."""
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.vectors.sequence import SequenceTask
    from beamwood.methods import sasrec

    settings = {"loss.sampled_negatives": 1000, "start.items": "random", "optimiser.embeddings": optimizer}
    config = sasrec.Config(**settings)
    return SequenceTask(train, config.plan(Facts.of(train))), config.loop.batch_size


def ranker_task(train: Any, optimizer: Any) -> tuple[Any, int]:
    """The task of a ranker of pairs."""
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.ranking.lists import ListTask
    from beamwood.methods import ranker

    settings = {"model.kind": "din", "loss.kind": "logistic", "model.attention": (36,), "start.items": "random"}
    config = ranker.Config(**settings, **{"optimiser.embeddings": optimizer})
    return ListTask(train, config.plan(Facts.of(train))), config.loop.batch_size


TASKS = {"dtr": dtr_task, "two_tower": two_tower_task, "sasrec, sampled": sasrec_task, "ranker, din": ranker_task}


def step_cost(case: str, optimizer: str, num_items: int, repeats: int) -> dict[str, float]:
    import torch

    from beamwood.training.trainable import Stepper

    torch.set_num_threads(1)
    task, batch_size = TASKS[case](random_histories(num_items), optimizer)
    rng, stepper = np.random.default_rng(1), Stepper(task)

    def step() -> None:
        stepper.step(rng.integers(0, task.num_examples, batch_size), number=1, clip_norm=5.0)

    return timed(step, repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", default=";".join(TASKS))
    options = parser.parse_args()
    one_thread()
    rows: dict[str, dict[str, Any]] = {}
    for case in options.cases.split(";"):
        rows[case] = {kind: in_process(step_cost, case, kind, options.items, options.repeats) for kind in OPTIMIZERS}
        rows[case]["speedup"] = rows[case]["adam"]["processor_s"] / rows[case]["lazy-adam"]["processor_s"]
    if options.json:
        print(json.dumps({"items": options.items, "rows": rows}))
        return
    print("| | Adam: ms a step | lazy Adam: ms a step | times | peak MiB, Adam | lazy |\n" + "| --- " * 6 + "|")
    for case, row in rows.items():
        adam, lazy = row["adam"], row["lazy-adam"]
        print(
            f"| {case} | {1000 * adam['processor_s']:.0f} | {1000 * lazy['processor_s']:.0f} | {row['speedup']:.1f} | "
            f"{adam['peak_mib']:,.0f} | {lazy['peak_mib']:,.0f} |"
        )


if __name__ == "__main__":
    main()
