"""LightGCN on the published split of Gowalla, compared with its authors' program at the same epoch.

    python -m benchmarks.lightgcn [--data FOLDER] [--epochs 5] [--seed 0] [--json]

All rows that the log marks as train are used for training, and no checkpoint is chosen: the weights are those of the
last step. Metrics rank all items except a user's training items. An epoch takes a few minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from beamwood import Dataset, evaluate, read_log
from beamwood.data import ColumnNames
from beamwood.data.split import Split
from beamwood.data.splits import by_boundary
from beamwood.methods.lightgcn import METHOD
from benchmarks.command import exit_code
from benchmarks.logs import data_folder

ROOT = Path(__file__).parents[1]
# Recall@20 and NDCG@20 by epoch, from the training log in the README of the authors' program.
PUBLISHED = {5: (0.1071, 0.0894), 1000: (0.1824, 0.1547)}


def published_split(folder: Path) -> Split:
    """The log's own split; see `on_published`."""
    log = read_log(folder / "interactions.parquet", columns=ColumnNames(boundary="split"))
    return on_published(by_boundary(Dataset.from_log(log)))


def on_published(split: Split) -> Split:
    """The log's own split, with the validation rows of `by_boundary` moved into training."""
    inside = split.dataset.in_history
    assert inside is not None
    lengths = np.bincount(split.dataset.histories.rows[inside], minlength=len(split.dataset.histories))
    return replace(split, train=split.dataset.keeping(np.flatnonzero(inside), lengths), name="published")


def figures_after(
    split: Split, *, epochs: int, seed: int = 0, progress: bool = True, **settings: Any
) -> dict[str, Any]:
    """The figures after this many epochs of the preset `paper`, and the processor seconds."""
    steps = epochs * -(-len(split.train.histories.items) // 2048)
    given = {"loop.max_epochs": epochs, "loop.evaluate_every": steps, **settings}
    began = time.process_time()
    fitted = METHOD.fitted(split, given, preset="paper", seed=seed, progress=progress)
    seconds = time.process_time() - began
    assert fitted.metadata["training"]["best_step"] == fitted.metadata["training"]["steps"]
    means = evaluate(fitted, split)["removed"].means()
    return {
        "epochs": epochs,
        "seed": seed,
        "recall@20": means["recall@20"],
        "ndcg@20": means["ndcg@20"],
        "published": dict(zip(("recall@20", "ndcg@20"), PUBLISHED.get(epochs, ()), strict=False)),
        "training_seconds": seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="the folder of the log; by default gowalla_lightgcn in the suite's data folder"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    given = parser.parse_args()
    return exit_code("benchmarks.lightgcn", lambda: run(given))


def run(given: argparse.Namespace) -> int:
    """Train, and print the figures."""
    split = published_split(given.data or data_folder(ROOT) / "gowalla_lightgcn")
    result = figures_after(split, epochs=given.epochs, seed=given.seed)
    print(json.dumps(result) if given.json else "\n".join(f"{name}: {value}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
