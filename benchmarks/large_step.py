"""A training step over a large catalogue: torch's Adam moves every vector, lazy Adam those that the step used.

python -m benchmarks.large_step [--json] [--items 1000000] [--repeats 5] [--cases "dtr;two_tower"]

Milliseconds of processor of one thread, each case in a process of its own. Items and histories are random: what a step
costs does not depend on what there is to learn.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from benchmarks.measure import in_process, one_thread, timed

CASES = ("dtr", "two_tower", "sasrec, sampled", "ranker, din")
OPTIMIZERS = ("adam", "lazy-adam")


def make_task(case: str, optimizer: Any, num_items: int) -> tuple[Any, int]:
    """The trainable of a case, and how many examples its step takes."""
    import polars as pl

    from beamwood.data import Dataset, disjoint_users, read_log
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.ranking.lists import ListTask
    from beamwood.fitting.tree.dtr import make_objective
    from beamwood.fitting.tree.task import TreeTask
    from beamwood.fitting.vectors.sequence import SequenceTask
    from beamwood.fitting.vectors.towers import TwoTowerTask
    from beamwood.methods import dtr, ranker, sasrec, two_tower
    from beamwood.models.encoders import ENCODERS

    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(num_items), rng.integers(0, num_items, num_items)])
    train = Dataset.from_log(read_log(pl.DataFrame({"user": np.arange(len(items)) // 50, "item": items})))
    facts = Facts.of(train)
    if case == "dtr":
        config = dtr.Config(**{"model.width": 24, "tree.start": "random", "optimiser.embeddings": optimizer})
        split = disjoint_users(train)
        config = config.plan(Facts.of(split.train))
        return TreeTask(split, config, lambda tree: make_objective(config, tree, None)), config.loop.batch_size
    if case == "two_tower":
        towers = two_tower.Config(
            **{
                "model.user_tower": "mean",
                "model.width": 32,
                "loss.negatives": "bir",
                "start.items": "random",
                "loop.batch_size": 1024,
                "optimiser.embeddings": optimizer,
            },
        )
        return TwoTowerTask(train, towers.plan(facts)), towers.loop.batch_size
    if case == "sasrec, sampled":
        sequence = sasrec.Config(
            **{"loss.sampled_negatives": 1000, "start.items": "random", "optimiser.embeddings": optimizer}
        )
        return SequenceTask(train, sequence.plan(facts), encoder=ENCODERS["sasrec"]), sequence.loop.batch_size
    pairs = ranker.Config(
        **{
            "model.kind": "din",
            "loss.kind": "logistic",
            "model.attention": (36,),
            "start.items": "random",
            "optimiser.embeddings": optimizer,
        }
    )
    return ListTask(train, pairs.plan(facts)), pairs.loop.batch_size


def step_cost(case: str, optimizer: str, num_items: int, repeats: int) -> dict[str, float]:
    import torch

    from beamwood.training.trainable import Stepper

    torch.set_num_threads(1)
    task, batch_size = make_task(case, optimizer, num_items)
    rng, stepper = np.random.default_rng(1), Stepper(task)

    def step() -> None:
        stepper.step(rng.integers(0, task.num_examples, batch_size), number=1, clip_norm=5.0)

    return timed(step, repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", default=";".join(CASES))
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
