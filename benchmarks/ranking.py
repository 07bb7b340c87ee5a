"""Ranking losses and GuidedRec on one model and log: quality over seeds, and what a step costs.

    python -m benchmarks.ranking run --log LOG --out DIR [--variants "a;b"] [--seeds 0,1,2] [--epochs 100]
    python -m benchmarks.ranking table --out DIR [--baseline logistic] [--json]
    python -m benchmarks.ranking selection --log LOG [--variants "a;b"] [--seeds 0] [--epochs 100]
    python -m benchmarks.ranking speed [--json]

Leave-one-out; each label among 99 drawn items and over the whole catalogue; the epoch is chosen on validation items.
`run` trains what DIR does not hold yet, one JSON and one file of per-user metrics a training, and can be started anew.
`selection` says what choosing the epoch on the test items and training on the validation items, as the study's program
does, would have added.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CUTS = (5, 10, 20)
GUIDED: dict[str, dict[str, Any]] = {
    "guided": {},
    "guided, no logloss": {"loss.with_logloss": False},
    "guided, leaky": {"loss.leaky": True},
    "guided, leaky, no logloss": {"loss.leaky": True, "loss.with_logloss": False},
    "guided, mlp": {"loss.surrogate": "mlp"},
    "guided, nfm1": {"loss.surrogate": "nfm1"},
    "guided, nfm2": {"loss.surrogate": "nfm2"},
}
LOSSES = (
    "logistic",
    "pairwise-logistic",
    "bpr",
    "list-mle",
    "softmax",
    "approx-ndcg",
    "gumbel-ndcg",
    "neural-sort",
)
# The GuidedRec study decays weights for its own losses; the rivals' decay is that of its logistic loss.
VARIANTS: dict[str, dict[str, Any]] = {
    "popularity": {},
    **{loss: {"loss.kind": loss} for loss in LOSSES},
    **{name: {"loss.kind": "guided"} | options for name, options in GUIDED.items()},
    "neumf": {"model.kind": "neumf", "loss.kind": "logistic"},
    "neumf, guided": {"model.kind": "neumf", "loss.kind": "guided"},
    "din": {"model.kind": "din", "loss.kind": "logistic"},
    "din, guided": {"model.kind": "din", "loss.kind": "guided"},
}


def judged(searcher: Any, split: Any, lists: Any) -> dict[str, np.ndarray]:
    """Per-user metrics of both protocols on the test items."""
    from beamwood.evaluation.protocol import evaluate
    from beamwood.evaluation.sampled import evaluate_sampled

    values = {f"sampled/{name}": column for name, column in evaluate_sampled(searcher, lists, ks=CUTS).items()}
    whole = evaluate(searcher, split.test, ks=CUTS, remove_seen=True).values
    return values | {f"full/{name}": whole[name] for k in CUTS for name in (f"hit_rate@{k}", f"ndcg@{k}")}


def run(arguments: argparse.Namespace) -> None:
    from beamwood.data import Dataset, leave_one_out, read_log
    from beamwood.evaluation.sampled import Sampled
    from beamwood.methods import load_method
    from benchmarks.measure import one_thread

    one_thread()
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    split = leave_one_out(Dataset.from_log(read_log(arguments.log)))
    settings = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in arguments.set)}
    for seed in [int(part) for part in arguments.seeds.split(",")]:
        # As the study's repeats: a new training and new lists.
        lists = Sampled(split.test, split.train.num_items, num_negatives=99, seed=seed)
        for name in arguments.variants.split(";"):
            target = folder / f"{name.replace(' ', '_')}-{seed}.json"
            if target.exists():
                continue
            began = time.process_time()
            if name == "popularity":
                retriever, config = load_method("popularity").fitted(split), {}
            else:
                options = (
                    {"loop.max_epochs": arguments.epochs, "loop.patience": arguments.patience}
                    | VARIANTS[name]
                    | settings
                )
                ranker = load_method("ranker")
                chosen = ranker.configured(options)
                retriever, config = ranker.fitted(split, chosen, seed=seed, progress=False), chosen.flat()
            seconds = time.process_time() - began
            values = judged(retriever.searcher, split, lists)
            np.savez_compressed(target.with_suffix(".npz"), **values)
            document = {
                "variant": name,
                "seed": seed,
                "processor_seconds": round(seconds, 1),
                "training": retriever.metadata["training"],
                "config": config,
                "test": {key: float(column.mean()) for key, column in values.items()},
            }
            target.write_text(json.dumps(document) + "\n")
            shown = {key: document["test"][key] for key in ("sampled/hit_rate@10", "sampled/ndcg@10")}
            print(json.dumps({"variant": name, "seed": seed, "s": round(seconds), **shown}), flush=True)


class OnTestToo:
    """A validation that looks at the test lists as well, and keeps what it saw."""

    def __init__(self, valid: Any, lists: Any) -> None:
        self.valid, self.lists, self.seen = valid, lists, list[tuple[float, float, float]]()

    def __len__(self) -> int:
        return len(self.valid)

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]:
        from beamwood.evaluation.sampled import evaluate_sampled

        metrics: dict[str, float] = self.valid(searcher, num)
        test = evaluate_sampled(searcher, self.lists, ks=(10,))
        means = (float(test[f"{name}@10"].mean()) for name in ("hit_rate", "ndcg"))
        self.seen.append((metrics["sampled/ndcg@10"], *means))  # type: ignore[arg-type]
        return metrics


def selection(arguments: argparse.Namespace) -> None:
    from beamwood.data import Dataset, leave_one_out, read_log
    from beamwood.evaluation.sampled import Sampled, SampledValidation
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.ranking.lists import GuidedTask, ListTask
    from beamwood.fitting.run import train
    from beamwood.methods.ranker import Config

    dataset = Dataset.from_log(read_log(arguments.log))
    split = leave_one_out(dataset)
    # The study's program holds out one item a user and trains on the one before, too.
    last = dataset.histories.indptr[split.test.users + 1] - 1
    lengths = dataset.histories.lengths.copy()
    lengths[split.test.users] -= 1
    wider = dataset.keeping(np.setdiff1d(np.arange(len(dataset.histories.items)), last), lengths)
    trained_on = {"all but two": split.train, "all but one": wider}
    for seed, data in ((int(part), data) for part in arguments.seeds.split(",") for data in trained_on):
        lists = Sampled(split.test, split.train.num_items, num_negatives=99, seed=seed)
        for name in arguments.variants.split(";"):
            config = Config(**{"loop.max_epochs": arguments.epochs, "loop.patience": 10_000}, **VARIANTS[name])
            config = config.plan(Facts.of(trained_on[data]))
            kind = GuidedTask if config.loss.kind == "guided" else ListTask
            task = kind(trained_on[data], config)
            valid = SampledValidation(
                split.valid,
                split.train.num_items,
                num_users=1000,
                seed=seed,
                monitor=config.choose.monitor,
            )

            watched = OnTestToo(valid, lists)
            train(task, split, config, method="ranker", seed=seed, measure=watched, progress=False)
            values = np.array(watched.seen)
            rows = {"last": values[-1]}
            if data == "all but two":
                rows["chosen on validation"] = values[values[:, 0].argmax()]
            document = {
                "variant": name,
                "seed": seed,
                "trained on": data,
                "measurements": len(values),
                **{row: {"hit_rate@10": found[1], "ndcg@10": found[2]} for row, found in rows.items()},
                "best on test": {"hit_rate@10": values[:, 1].max(), "ndcg@10": values[:, 2].max()},
            }
            print(json.dumps(document), flush=True)


def table(arguments: argparse.Namespace) -> None:
    from scipy import stats

    folder = Path(arguments.out)
    found: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    steps: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text())
        name = document["variant"]
        found.setdefault(name, {})[document["seed"]] = dict(np.load(file.with_suffix(".npz")))
        steps.setdefault(name, []).append(document["training"].get("best_step", 0))
    keys = ["sampled/hit_rate@10", "sampled/ndcg@10", "full/hit_rate@10", "full/ndcg@10"]
    rows = []
    for name in (name for name in VARIANTS if name in found):
        row: dict[str, Any] = {"variant": name, "seeds": len(found[name]), "best_step": float(np.median(steps[name]))}
        for key in keys:
            means = [float(values[key].mean()) for values in found[name].values()]
            spread = float(np.std(means, ddof=1)) if len(means) > 1 else None
            row[key] = [float(np.mean(means)), spread]
            base = found.get(arguments.baseline, {})
            shared = sorted(set(base) & set(found[name]))
            if name != arguments.baseline and shared:
                # Users are the pairs; a user's value is the mean over the seeds that both have.
                ours = np.mean([found[name][seed][key] for seed in shared], axis=0)
                theirs = np.mean([base[seed][key] for seed in shared], axis=0)
                row[f"{key} p"] = float(stats.ttest_rel(ours, theirs).pvalue)
        rows.append(row)
    if arguments.json:
        print(json.dumps({"rows": rows, "baseline": arguments.baseline}))
        return
    print("| | seeds | best step | " + " | ".join(keys) + " |\n| --- | --- | --- |" + " --- |" * len(keys))
    for row in rows:
        cells = []
        for key in keys:
            mean, spread = row[key]
            p = row.get(f"{key} p")
            cells.append(
                f"{mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}") + ("" if p is None else f" (p {p:.2g})")
            )
        print(f"| {row['variant']} | {row['seeds']} | {row['best_step']:,.0f} | " + " | ".join(cells) + " |")


def stepper(name: str) -> Callable[[], None]:
    """Fifty training steps of a variant on a generated log of ML-100K's size."""
    import polars as pl

    from beamwood.data import Dataset, read_log
    from beamwood.fitting.plan import Facts
    from beamwood.fitting.ranking.lists import GuidedTask, ListTask
    from beamwood.methods.ranker import Config
    from beamwood.training.trainable import Stepper

    rng = np.random.default_rng(0)
    log = pl.DataFrame({"user": rng.integers(0, 943, 100_000), "item": rng.integers(0, 1682, 100_000)})
    train = Dataset.from_log(read_log(log))
    config = Config(**VARIANTS[name]).plan(Facts.of(train))
    task = (GuidedTask if config.loss.kind == "guided" else ListTask)(train, config)
    stepper = Stepper(task, learning_rate=config.optimiser.learning_rate)

    def steps() -> None:
        for _ in range(50):
            stepper.step(rng.integers(0, task.num_examples, config.loop.batch_size), number=1)

    return steps


def speed(arguments: argparse.Namespace) -> None:
    """The variants by turns in one process, as one after another they would meet a machine of another mood."""
    import torch

    from benchmarks.measure import timed_by_turns

    torch.set_num_threads(1)
    works = {name: stepper(name) for name in VARIANTS if name != "popularity"}
    rows = timed_by_turns(works, repeats=arguments.repeats)
    base = rows["logistic"]
    if arguments.json:
        print(json.dumps({name: {"processor_s": row / 50, "ratio": row / base} for name, row in rows.items()}))
        return
    print("| | ms a step | to logistic |\n| --- | --- | --- |")
    for name, row in rows.items():
        print(f"| {name} | {1000 * row / 50:.2f} | {row / base:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--log", required=True)
    runner.add_argument("--out", required=True)
    runner.add_argument("--variants", default=";".join(VARIANTS))
    runner.add_argument("--seeds", default="0,1,2,3,4")
    runner.add_argument("--epochs", type=int, default=200)
    runner.add_argument("--patience", type=int, default=20)
    runner.add_argument("--set", action="append", default=[], help="group.key=JSON for all trained ones")
    runner.set_defaults(work=run)
    tabler = commands.add_parser("table")
    tabler.add_argument("--out", required=True)
    tabler.add_argument("--baseline", default="logistic")
    tabler.add_argument("--json", action="store_true")
    tabler.set_defaults(work=table)
    selector = commands.add_parser("selection")
    selector.add_argument("--log", required=True)
    selector.add_argument("--variants", default="logistic;guided")
    selector.add_argument("--seeds", default="0")
    selector.add_argument("--epochs", type=int, default=100)
    selector.set_defaults(work=selection)
    timer = commands.add_parser("speed")
    timer.add_argument("--repeats", type=int, default=40)
    timer.add_argument("--json", action="store_true")
    timer.set_defaults(work=speed)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
