"""In-batch samplers: what a step costs, and what they learn on a log with its own split.

    python -m benchmarks.in_batch speed [--batch-size 2048] [--json]
    python -m benchmarks.in_batch bound [--steps 10000] [--json]
    python -m benchmarks.in_batch quality --log LOG [--items ITEMS] [--boundary-column C] --out DIR [--json]

`speed`: a step of matrix factorisation, width 32, 40,000 items, one thread: all of it from batch to update, medians.
`bound`: theorem 3.2 for one user over 24 items, the batch being the catalogue: measured bias against its bound.
`quality` trains what DIR does not hold yet and can be stopped and started anew.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamwood.data import ColumnNames, Dataset, disjoint_users, read_log
from beamwood.data.split import by_boundary
from beamwood.evaluation.protocol import evaluate
from beamwood.evaluation.significance import bootstrap_interval, compare
from beamwood.fitting.plan import Facts
from beamwood.fitting.vectors.towers import TwoTowerTask
from beamwood.methods.two_tower import METHOD, Config
from beamwood.sampling.in_batch import Bir, Pairs, log_popularity
from beamwood.theory.sampling import resampling_bias_bound
from beamwood.training.trainable import Stepper
from benchmarks.measure import in_process, timed

NEGATIVES = ("ssl", "ssl-pop", "mns", "g-tower", "bir", "xir", "full")
CUTS = (10, 20, 50)


def random_log(num_users: int = 30_000, num_items: int = 40_000, events: int = 30) -> Dataset:
    rng = np.random.default_rng(0)
    popularity = 1 / (np.arange(num_items) + 10.0)
    items = rng.choice(num_items, num_users * events, p=popularity / popularity.sum())
    users = np.repeat(np.arange(num_users), events)
    import polars as pl

    return Dataset.from_log(read_log(pl.DataFrame({"user": users, "item": items})))


def step_cost(negatives: str, draw: str, batch_size: int, repeats: int) -> dict[str, float]:
    torch.set_num_threads(1)
    data = random_log()
    config = Config(
        **{
            "model.user_tower": "mf",
            "model.width": 32,
            "loss.negatives": negatives,
            "loss.draw": draw,
            "loop.batch_size": batch_size,
        }
    )
    stepper = Stepper(TwoTowerTask(data, config.plan(Facts.of(data))), learning_rate=config.optimiser.learning_rate)
    rng = np.random.default_rng(0)

    def step() -> None:
        stepper.step(rng.integers(0, stepper.task.num_examples, batch_size), number=1)

    return timed(step, repeats=repeats, warm=2)


def speed(arguments: argparse.Namespace) -> None:
    rows: dict[str, Any] = {}
    for name in ("ssl-pop", "ssl", "mns", "g-tower", "bir", "xir"):
        rows[name] = in_process(step_cost, name, "systematic", arguments.batch_size, arguments.repeats)
    for name in ("bir", "xir"):
        rows[f"{name}, independent draws"] = in_process(
            step_cost, name, "independent", arguments.batch_size, arguments.repeats
        )
    base = rows["ssl-pop"]["processor_s"]
    for row in rows.values():
        row["ratio"] = row["processor_s"] / base
    if arguments.json:
        print(json.dumps({"batch_size": arguments.batch_size, "rows": rows}))
        return
    print("| | ms a step | to SSL-Pop | MiB |\n| --- | --- | --- | --- |")
    for name, row in rows.items():
        print(f"| {name} | {1000 * row['processor_s']:.0f} | {row['ratio']:.2f} | {row['peak_mib']:.0f} |")


def bias_and_bound(exponent: float, steps: int) -> dict[str, float]:
    """BIR's weighted form where items have popularity 1 / rank^exponent: the coordinate of the largest bias.

    Every step draws 24 times for each of 24 rows, all one user with item 5 as the positive.
    """
    num_items, target = 24, 5
    generator = torch.Generator().manual_seed(1)
    scores = (torch.randn(num_items, generator=generator) * 1.2).double()
    counts = (1000 / (np.arange(num_items) + 1.0) ** exponent).astype(int)
    items = torch.arange(num_items)
    sampler, total, squares = Bir(log_popularity(counts), form="weighted", draw="independent"), 0.0, 0.0
    masked, one_hot = (items == target).expand(num_items, -1), torch.eye(num_items).double()
    for _ in range(steps):
        leaf = scores.repeat(num_items, 1).requires_grad_()
        sampler.losses(Pairs(leaf, one_hot, leaf[:, target], items, masked), generator).sum().backward()
        total, squares = total + leaf.grad.sum(dim=0), squares + leaf.grad.square().sum(dim=0)
    mean, rows = total / (steps * num_items), steps * num_items
    bias = mean - torch.softmax(scores, 0) + (items == target).double()
    error = torch.sqrt((squares / rows - mean**2).clamp(min=0) / rows)
    others = np.delete(np.arange(num_items), target)
    bound = resampling_bias_bound(scores.numpy(), counts / counts.sum(), others, num_items)
    worst = int(bias.argmax())
    return {"bias": bias[worst].item(), "standard_error": error[worst].item(), "bound": float(bound[worst])}


def bound(arguments: argparse.Namespace) -> None:
    rows = {exponent: bias_and_bound(exponent, arguments.steps) for exponent in (0.0, 0.5, 1.0)}
    if arguments.json:
        print(json.dumps({"steps": arguments.steps, "rows": rows}))
        return
    print("| exponent of popularity | largest bias | standard error | bound there |\n| --- | --- | --- | --- |")
    for exponent, row in rows.items():
        print(f"| {exponent:g} | {row['bias']:.5f} | {row['standard_error']:.5f} | {row['bound']:.4f} |")


def quality(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    log = read_log(arguments.log, columns=ColumnNames(boundary=arguments.boundary_column))
    data = Dataset.from_log(log, arguments.items)
    split = by_boundary(data) if arguments.boundary_column else disjoint_users(data, seed=2026)
    tower = "mf" if arguments.boundary_column else "mean"
    values: dict[str, list[dict[str, np.ndarray]]] = {}
    if arguments.als and not arguments.boundary_column:
        raise SystemExit(
            "--als has a vector for each training user; give --boundary-column, whose queries are of those"
        )
    if arguments.als:
        values["als"] = [als(split)]
    for batch_size in [int(part) for part in arguments.batch_sizes.split(",")]:
        for name in arguments.negatives.split(","):
            for seed in [int(part) for part in arguments.seeds.split(",")]:
                file = folder / f"{name}-{batch_size}-{seed}.npz"
                if not file.exists():
                    config = Config(
                        **{
                            "model.user_tower": tower,
                            "loss.negatives": name,
                            "loop.batch_size": batch_size,
                            "loop.max_epochs": arguments.epochs,
                            "optimiser.learning_rate": arguments.learning_rate,
                            "loop.evaluate_every": max(1, arguments.evaluate_every * 2048 // batch_size),
                            "loss.cache_share": arguments.cache_share,
                            "loss.cache_counts": arguments.cache_counts,
                        },
                        # The study's form.
                        **{"model.width": 32, "start.items": "random", "choose.seen_weight": 0},
                    )
                    began = time.perf_counter()
                    retriever = METHOD.fitted(
                        split, config, seed=seed, progress=False, time_limit=arguments.minutes * 60
                    )
                    print(
                        name, batch_size, seed, f"{time.perf_counter() - began:.0f} s", retriever.metadata["training"]
                    )
                    np.savez_compressed(file, **judged(retriever.searcher, split))
                values.setdefault(f"{name}, {batch_size}", []).append(dict(np.load(file)))
    means = {name: {k: np.mean([v[k] for v in rows], axis=0) for k in rows[0]} for name, rows in values.items()}
    document = {}
    for name, columns in means.items():
        row: dict[str, Any] = {"seeds": len(values[name])}
        for key, column in columns.items():
            interval = bootstrap_interval(column, np.random.default_rng(0))
            row[key] = [interval.mean, (interval.high - interval.low) / 2]
        document[name] = row
    tests = {}
    for batch_size in arguments.batch_sizes.split(","):
        base = f"ssl-pop, {batch_size}"
        group = {name: columns["ndcg@20"] for name, columns in means.items() if name.endswith(f", {batch_size}")}
        if base in group and len(group) > 1:
            tests[base] = [result.as_dict() for result in compare(group, base, np.random.default_rng(0))]
    if arguments.json:
        print(json.dumps({"rows": document, "tests": tests}))
        return
    keys = [f"{metric}@{cut}" for metric in ("ndcg", "recall") for cut in CUTS]
    print("| negatives, batch | seeds | " + " | ".join(keys) + " |")
    print("| --- | --- |" + " --- |" * len(keys))
    for name, row in document.items():
        cells = " | ".join(f"{row[key][0]:.4f} ± {row[key][1]:.4f}" for key in keys)
        print(f"| {name} | {row['seeds']} | {cells} |")
    for base, results in tests.items():
        for result in results:
            difference = result["difference"]
            print(f"{base} - {result['rival']}: {difference['mean']:+.4f} ndcg@20, p {result['adjusted']['t']:.2g}")


def judged(searcher: Any, split: Any) -> dict[str, np.ndarray]:
    """NDCG and recall of every test user, training items taken out."""
    result = evaluate(searcher, split.test, ks=CUTS, remove_seen=True)
    return {key: column for key, column in result.values.items() if key.split("@")[0] in ("ndcg", "recall")}


def als(split: Any) -> dict[str, np.ndarray]:
    """Implicit-feedback ALS (the library `implicit`), 64 factors, regularisation 0.05 and alpha 10, 15 rounds."""
    import scipy.sparse as sp
    from implicit.als import AlternatingLeastSquares

    from beamwood.retrieval.queries import UserVectors
    from beamwood.retrieval.vectors import VectorSearcher

    histories = split.train.histories
    shape = (len(histories), split.train.num_items)
    # Summing sorts in place: what is trained on next must keep its order.
    rows = np.full(len(histories.items), 10.0, np.float32), histories.items, histories.indptr
    matrix = sp.csr_matrix(rows, shape, copy=True)
    matrix.sum_duplicates()
    model = AlternatingLeastSquares(factors=64, regularization=0.05, iterations=15, num_threads=1, random_state=0)
    model.fit(matrix, show_progress=False)
    users = np.asarray(model.user_factors, np.float32)
    return judged(VectorSearcher(UserVectors(users), np.asarray(model.item_factors, np.float32)), split)


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("speed")
    first.add_argument("--batch-size", type=int, default=2048)
    first.add_argument("--repeats", type=int, default=7)
    first.add_argument("--json", action="store_true")
    first.set_defaults(work=speed)
    bounds = commands.add_parser("bound")
    bounds.add_argument("--steps", type=int, default=10_000)
    bounds.add_argument("--json", action="store_true")
    bounds.set_defaults(work=bound)
    second = commands.add_parser("quality")
    second.add_argument("--log", required=True)
    second.add_argument("--items")
    second.add_argument("--boundary-column")
    second.add_argument("--out", required=True)
    second.add_argument("--negatives", default=",".join(NEGATIVES))
    second.add_argument("--batch-sizes", default="2048")
    second.add_argument("--seeds", default="0")
    second.add_argument("--epochs", type=int, default=20)
    second.add_argument("--minutes", type=float, default=5.0)
    second.add_argument("--learning-rate", type=float, default=0.01)
    second.add_argument("--evaluate-every", type=int, default=400)
    second.add_argument("--cache-share", type=float, default=0.2)
    second.add_argument("--cache-counts", choices=("step", "all"), default="step")
    second.add_argument("--als", action="store_true", help="also the library implicit's ALS (by-user splits)")
    second.add_argument("--json", action="store_true")
    second.set_defaults(work=quality)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
