"""Time of rectified labels for many instances: the native scan, its numpy twin, and the definition by levels.

python -m benchmarks.labels [--json] [--rows 20000] [--items 7129] [--width 64]
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.kernels import native
from beamwood.kernels.labels import one_step_labels, rectified_levels
from beamwood.tree import Tree, random_tree
from benchmarks.measure import one_thread, print_results, timed

Float32 = NDArray[np.float32]
BLOCK_ROWS = 256


def by_definition(queries: Float32, vectors: Float32, tree: Tree, targets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """For each level, whether the target has the largest score under its ancestor (the data have no ties)."""
    shape = tree.shape
    levels = np.full(len(queries), shape.depth, np.uint8)
    live = tree.item_of_leaf >= 0
    for row, target in enumerate(targets):
        scores = np.full(shape.capacity, -np.inf, np.float32)
        scores[live] = (vectors @ queries[row])[tree.item_of_leaf[live]]
        leaf = int(tree.leaf_of_item[target])
        for level in range(shape.depth - 1, -1, -1):
            below = shape.leaves_below(level)
            start = leaf // below * below
            if scores[start : start + below].max() > scores[leaf]:
                break
            levels[row] = level
    return levels


def levels(queries: Float32, vectors: Float32, tree: Tree, targets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Labels as a training step computes them: products with all items, in blocks of rows."""
    every = slices(len(queries), BLOCK_ROWS)
    parts = [rectified_levels(queries[rows] @ vectors.T, tree, targets[rows, None])[:, 0] for rows in every]
    return np.concatenate(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--items", type=int, default=7129)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    one_thread()
    if native() is None:
        raise SystemExit("the native core is not built; run `make native`")
    print_results(costs(options.rows, options.items, options.width), as_json=options.json)


def costs(rows: int, num_items: int, width: int) -> dict[str, Any]:
    """Microseconds per row of each variant, their ratios, and whether their labels agree."""
    rng = np.random.default_rng(0)
    tree = random_tree(num_items, rng)
    queries = rng.normal(size=(rows, width)).astype(np.float32)
    vectors = rng.normal(size=(num_items, width)).astype(np.float32)
    # Targets have high scores, as under a trained estimator.
    drawn = rng.integers(0, num_items, (rows, 64))
    best = np.stack([vectors[some] @ query for some, query in zip(drawn, queries, strict=True)]).argmax(axis=1)
    targets = drawn[np.arange(rows), best]
    few = rows // 10

    def scores_alone() -> None:
        for part in slices(rows, BLOCK_ROWS):
            queries[part] @ vectors.T

    cases = {
        "scores_alone": (timed(scores_alone, repeats=3), rows),
        "native": (timed(lambda: levels(queries, vectors, tree, targets), repeats=3), rows),
        "one_step": (
            timed(lambda: one_step_labels(queries[:few] @ vectors.T, tree, targets[:few, None]), repeats=2),
            few,
        ),
    }
    mine = levels(queries, vectors, tree, targets)
    os.environ["BEAMWOOD_KERNELS"] = "reference"
    cases["numpy_twin"] = timed(lambda: levels(queries, vectors, tree, targets), repeats=3), rows
    cases["definition"] = timed(lambda: by_definition(queries[:few], vectors, tree, targets[:few]), repeats=2), few
    cost = {name: measured["median_s"] / count * 1e6 for name, (measured, count) in cases.items()}
    expected = by_definition(queries[:few], vectors, tree, targets[:few])
    return {
        "rows": rows,
        "items": num_items,
        "microseconds_a_row": cost,
        "native_peak_mib": cases["native"][0]["peak_mib"],
        "speedup_over_definition": cost["definition"] / cost["native"],
        "speedup_over_twin": cost["numpy_twin"] / cost["native"],
        "agreement_with_definition": float((expected == mine[:few]).mean()),
    }


if __name__ == "__main__":
    main()
