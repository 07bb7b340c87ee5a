"""Time of a DTR tree update on `mind_dtr`'s training set with native scoring; rivals are timed on fewer instances.

python -m benchmarks.tree_update [--json] [--max-instances 100] [--data LOG]

Weights are random, because the time does not depend on them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamwood.data.dataset import Dataset
from beamwood.data.examples import windows
from beamwood.data.log import read_log
from beamwood.data.splits import disjoint_users
from beamwood.kernels import native
from beamwood.models.din import DinScorer
from beamwood.training.budget import Budget
from beamwood.training.tree_update import TreeLearner, capped_instances
from beamwood.tree import Tree, random_tree
from benchmarks.command import exit_code
from benchmarks.logs import data_folder
from benchmarks.measure import one_thread, print_results, status_kib
from benchmarks.train_step import LENGTH, WINDOWS, PaperScorer

ROOT = Path(__file__).parents[1]


def tree_updates(train: Dataset, *, max_instances: int, stride: int, rival_instances: int) -> dict[str, Any]:
    """Seconds of an update with up to `max_instances` per item, and its speed-up over the rivals."""
    rng = np.random.default_rng(0)
    examples = windows(train.histories, length=LENGTH + 1, min_history=15)
    targets = examples.targets(np.arange(len(examples)))
    kept = capped_instances(targets, max_instances, rng) if max_instances else np.arange(len(examples))
    tree = random_tree(len(train.items), rng)

    def update(scorer: type[DinScorer], rows: NDArray[np.int64]) -> tuple[float, Tree]:
        model = scorer(tree.shape, windows=WINDOWS, norm="batch", generator=torch.Generator().manual_seed(0))
        start = time.perf_counter()
        learner = TreeLearner(
            model, tree, targets[rows], lambda at: examples.histories(rows[at]).padded(LENGTH), stride=stride
        )
        new = learner.learn(np.bincount(targets[rows], minlength=tree.num_items), Budget())
        assert new is not None, "there is no limit"
        return time.perf_counter() - start, new

    seconds, new = update(DinScorer, kept)
    results: dict[str, Any] = {
        "items": len(train.items),
        "instances_all": len(examples),
        "instances": len(kept),
        "items_with_instances": len(np.unique(targets[kept])),
        "native_s": seconds,
        "native_ms_an_instance": seconds / len(kept) * 1e3,
        "peak_mib": status_kib("VmHWM") / 1024,
        "leaves_unchanged": float((new.item_of_leaf == tree.item_of_leaf).mean()),
    }
    few = np.sort(rng.choice(kept, min(rival_instances, len(kept)), replace=False))
    mine, same = update(DinScorer, few)
    os.environ["BEAMWOOD_KERNELS"] = "reference"
    eager, other = update(DinScorer, few)
    paper, _ = update(PaperScorer, few[::8])
    results["speedup_over_eager"] = eager / mine
    results["speedup_over_straight"] = paper / len(few[::8]) / (mine / len(few))
    results["same_leaves_as_eager"] = float((same.item_of_leaf == other.item_of_leaf).mean())
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--max-instances", type=int, default=100, help="the largest number of instances per item; 0: no limit"
    )
    parser.add_argument("--stride", type=int, default=7)
    parser.add_argument("--rival-instances", type=int, default=2000)
    log = data_folder(ROOT) / "mind_dtr" / "interactions.parquet"
    parser.add_argument("--data", type=Path, default=log, help="a log; by default mind_dtr in the suite's data folder")
    options = parser.parse_args()
    one_thread()
    return exit_code("benchmarks.tree_update", lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Measure the update, and print its results."""
    if native() is None:
        raise SystemExit("the native core is not built; run `make native`")
    torch.set_num_threads(1)
    train = disjoint_users(Dataset.from_log(read_log(options.data))).train
    caps = {name: getattr(options, name) for name in ("max_instances", "stride", "rival_instances")}
    print_results(tree_updates(train, **caps), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
