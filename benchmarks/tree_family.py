"""All tree retrievers on one log, each with the same minutes of one thread: quality with intervals and paired tests.

    python -m benchmarks.tree_family run --log LOG --items ITEMS --out DIR [--variants "a;b"] [--seeds 0,1,2]
    python -m benchmarks.tree_family table --out DIR [--json]

`run` trains what DIR does not hold yet, one line of JSON a training and its per-user metrics beside it; it can be
stopped and started anew. The split is that of disjoint users with seed 2026, whatever the training's seed is.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

CUTS = (20, 40)
COUNTED: dict[str, tuple[str, dict[str, Any]]] = {
    "popularity": ("popularity", {}),
    "co-occurrence": ("cooccurrence", {}),
    "transitions": ("transitions", {}),
}
TRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "din": ("din", {}),
    "plt": ("plt", {}),
    "tdm": ("tdm", {"tree.updates": 1}),
    "jtm": ("jtm", {"tree.updates": 1, "tree.max_instances": 10}),
    "otm": ("otm", {}),
    "dtr-u": ("dtr", {}),
    "dtr-t": ("dtr", {"loss.negatives": "tree", "loss.num_negatives": 20}),
    "dtr-t-rl": ("dtr", {"loss.negatives": "tree", "loss.num_negatives": 20, "loss.labels": "rectified"}),
    "dtr-u, 1 update": ("dtr", {"tree.updates": 1, "tree.max_instances": 10}),
    "dtr-u, category start": ("dtr", {"tree.start": "category"}),
    "dtr-u, random start": ("dtr", {"tree.start": "random"}),
} | {f"dtr-u, branching {branching}": ("dtr", {"tree.branching": branching}) for branching in (2, 4, 8, 32)}


def processor_clock() -> None:
    """Let training count processor seconds of this one-thread process, so that other work takes nothing away."""
    from types import SimpleNamespace

    from beamwood.fitting.tree import fit as tree_fit
    from beamwood.training import loop

    tree_fit.time = loop.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[attr-defined]


def split_of(arguments: argparse.Namespace) -> Any:
    from beamwood.data import ColumnNames, Dataset, disjoint_users, read_log

    log = read_log(arguments.log, columns=ColumnNames(boundary=arguments.boundary_column))
    return disjoint_users(Dataset.from_log(log, arguments.items), seed=2026)


def run(arguments: argparse.Namespace) -> None:
    from beamwood.evaluation.metrics import TailRule
    from beamwood.evaluation.protocol import evaluate_both
    from beamwood.fitting.tree.start import fit_estimator
    from beamwood.methods import every, load_method
    from beamwood.training.run_folder import RunFolder
    from beamwood.types import SearchOptions

    if arguments.clock == "processor":
        processor_clock()
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    split, estimator = split_of(arguments), None
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    for seed in [int(part) for part in arguments.seeds.split(",")]:
        for name in arguments.variants.split(";"):
            target = folder / f"{name.replace(' ', '_')}-{seed}.json"
            if target.exists() or (name in COUNTED and seed):
                continue
            method, changes = (COUNTED | TRAINED)[name]
            module, options = load_method(method), {}
            config = module.Config()
            if name in TRAINED:
                own = {key: json.loads(value) for key, value in settings.items()}
                config = module.Config(
                    **({"loop.max_steps": arguments.max_steps, "loop.patience": 1000} | changes | own)
                )
                options = {"time_limit": arguments.minutes * 60, "progress": False}
                if changes.get("loss.labels") == "rectified":
                    # Trained once, on the same data, apart from the minutes of the tree; `seconds` says how long.
                    if estimator is None:
                        run_folder = RunFolder(folder)
                        estimator, _ = fit_estimator(
                            arguments.estimator, split, every(), seed=0, run=run_folder, resume=True, progress=False
                        )
                    options["estimator"] = estimator
            began = time.perf_counter()
            retriever = module.fitted(split, config, seed=seed, **options)
            seconds = time.perf_counter() - began
            rare = TailRule().tail(split.train)
            views = evaluate_both(retriever.searcher, split.test, ks=CUTS, tail=rare)
            values = {
                f"{view}/{key}": column for view, result in views.items() for key, column in result.values.items()
            }
            for width in [int(part) for part in arguments.beams.split(",") if part]:
                if name in TRAINED and name != "din":
                    wide = SearchOptions(beam_width=width)
                    found = evaluate_both(retriever.searcher, split.test, ks=CUTS[:1], tail=rare, options=wide)
                    for view, result in found.items():
                        values |= {f"{view}/{key}, beam {width}": column for key, column in result.values.items()}
            np.savez_compressed(target.with_suffix(".npz"), **values)
            document = {
                "variant": name,
                "seed": seed,
                "seconds": round(seconds, 1),
                "training": retriever.metadata["training"],
                "config": config.model_dump(mode="json"),
                "test": {key: float(column.mean()) for key, column in values.items()},
            }
            target.write_text(json.dumps(document) + "\n")
            print(json.dumps({key: document[key] for key in ("variant", "seed", "seconds", "training")}), flush=True)


def table(arguments: argparse.Namespace) -> None:
    from beamwood.evaluation.significance import bootstrap_interval, compare

    folder, rows = Path(arguments.out), []
    per_user: dict[str, list[dict[str, np.ndarray]]] = {}
    for file in sorted(folder.glob("*-*.json")):
        document = json.loads(file.read_text())
        per_user.setdefault(document["variant"], []).append(dict(np.load(file.with_suffix(".npz"))))
    order = [name for name in COUNTED | TRAINED if name in per_user]
    means = {
        name: {key: np.mean([seed[key] for seed in seeds], axis=0) for key in seeds[0]}
        for name, seeds in per_user.items()
    }
    for name in order:
        row: dict[str, Any] = {"variant": name, "seeds": len(per_user[name])}
        for view in ("kept", "removed"):
            for cut in CUTS:
                key = f"{view}/f@{cut}"
                interval = bootstrap_interval(means[name][key], np.random.default_rng(0))
                over_seeds = [float(seed[key].mean()) for seed in per_user[name]]
                row[key] = [
                    interval.mean,
                    (interval.high - interval.low) / 2,
                    float(np.std(over_seeds, ddof=1)) if len(over_seeds) > 1 else 0.0,
                ]
        rows.append(row)
    tests = []
    if arguments.baseline in means:
        for view in ("kept", "removed"):
            columns = {name: means[name][f"{view}/f@20"] for name in order}
            for result in compare(columns, arguments.baseline, np.random.default_rng(0)):
                tests.append({"view": view, **result.as_dict()})
    if arguments.json:
        print(json.dumps({"rows": rows, "tests": tests}))
        return
    print("| | seeds | F@20, left in | F@20, taken out | F@40, left in | F@40, taken out |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        cells = [row[f"{view}/f@{cut}"] for cut in CUTS for view in ("kept", "removed")]
        text = " | ".join(f"{mean:.4f} ± {half:.4f}" for mean, half, _ in cells)
        print(f"| {row['variant']} | {row['seeds']} | {text} |")
    for test in tests:
        difference, adjusted = test["difference"], test["adjusted"]["t"]
        print(f"{test['view']}: {test['baseline']} - {test['rival']}: {difference['mean']:+.4f}, p {adjusted:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--log", required=True)
    runner.add_argument("--items", required=True)
    runner.add_argument("--boundary-column")
    runner.add_argument("--out", required=True)
    runner.add_argument("--variants", default=";".join([*COUNTED, *TRAINED]))
    runner.add_argument("--seeds", default="0,1,2")
    runner.add_argument("--minutes", type=float, default=6.0)
    runner.add_argument("--max-steps", type=int, default=4000)
    runner.add_argument("--clock", choices=("wall", "processor"), default="wall", help="what --minutes are of")
    runner.add_argument("--estimator", default="sasrec")
    runner.add_argument(
        "--beams", default="", help="also the figures at 20 with beams of these widths, e.g. 20,40,1000"
    )
    runner.add_argument("--set", action="append", default=[], help="group.key=JSON for all trained methods")
    runner.set_defaults(work=run)
    tabler = commands.add_parser("table")
    tabler.add_argument("--out", required=True)
    tabler.add_argument("--baseline", default="dtr-u")
    tabler.add_argument("--json", action="store_true")
    tabler.set_defaults(work=table)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
