"""Sequence models and preferences for rare items: overall and tail metrics, seeds, paired tests, cost of an epoch.

    python -m benchmarks.tail run --log LOG --out DIR [--variants "a;b"] [--seeds 0,1,2] [--set key=JSON]
    python -m benchmarks.tail table --out DIR [--against transitions] [--json]
    python -m benchmarks.tail cost --log LOG [--set key=JSON]

Leave-one-out, the whole catalogue ranked, the history left in and taken out. `run` trains what DIR does not hold yet:
one JSON a training and its per-user metrics beside it; it can be stopped and started anew. Methods that align or mend
a fitted model start from the same seed's SASRec, or from the variant that `--start` names. `--prepend FILE` puts that
file's extra item before each history, which is the form that the published figures were measured on; the tail is then
by the rule of their program, unless `--tail-of` says otherwise, for the preferences as for the figures. `cost` times
steps and takes peaks of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import in_process, status_kib

CUTS = (5, 10, 20)
METRICS = ("hit_rate", "ndcg")
# One form for all, chosen on the validation data of amazon_beauty; see benchmarks/results/tail.md.
FORM: dict[str, Any] = {
    "start.items": "random",
    "model.width": 64,
    "model.length": 20,
    "model.dropout": 0.2,
    "optimiser.learning_rate": 1e-2,
    "optimiser.weight_decay": 0.3,
    "optimiser.warmup_steps": 100,
    "loop.batch_size": 128,
    "loop.max_steps": 2100,
    "loop.evaluate_every": 350,
}
SASREC: dict[str, Any] = FORM | {"model.num_blocks": 1, "model.num_heads": 2}
# Alignment goes on from the fitted model for so long.
ALIGNED: dict[str, Any] = SASREC | {
    "optimiser.learning_rate": 1e-3,
    "optimiser.warmup_steps": 20,
    "loop.max_steps": 350,
    "loop.evaluate_every": 175,
}
LOOP: dict[str, Any] = {"choose.validation_users": 2000, "choose.monitor": "kept/ndcg@20", "loop.patience": 1000}
ON_TOP: dict[str, Any] = {"loop.max_steps": 600, "loop.evaluate_every": 100}
PAPER = {"loss.pi": "prob", "loss.tau": 0.1}
COUNTED = {"popularity": "popularity", "co-occurrence": "cooccurrence", "transitions": "transitions"}
SCRATCH: dict[str, tuple[str, dict[str, Any]]] = {
    "sasrec": ("sasrec", SASREC),
    "gru4rec": ("gru4rec", FORM),
    # A window for each prefix: as many examples a step as the others' positions.
    "caser": ("caser", FORM | {"model.length": 10, "loop.batch_size": 704}),
    "fmlp": ("fmlp", FORM | {"model.num_blocks": 1, "loop.batch_size": 704}),
    "sasrec, no decay": ("sasrec", SASREC | {"optimiser.weight_decay": 0.0, "model.dropout": 0.5}),
    "r2rec, from scratch": ("lpo4rec", SASREC | {"loss.preference": "none", "loss.reweight_strength": 2}),
    "lpo4rec, from scratch": ("lpo4rec", SASREC),
    "lpo4rec, paper's pi, from scratch": ("lpo4rec", SASREC | PAPER),
    "reweighting alone, from scratch": ("lpo4rec", SASREC | {"loss.preference": "none"}),
    "lpo4rec, no reweighting, from scratch": ("lpo4rec", SASREC | {"loss.reweight": False}),
}
# The same with item vectors that start from transitions and do not decay; half of the steps are enough then.
START: dict[str, Any] = {"start.items": "transitions", "optimiser.item_decay": 0.0, "loop.max_steps": 1050}
SCRATCH |= {
    f"lpo4rec, paper's pi, e^{power} : 1, from scratch": ("lpo4rec", SASREC | PAPER | {"loss.reweight_strength": power})
    for power in (1.5, 2)
}
SCRATCH |= {
    f"{name.removesuffix(', from scratch')}, started": (method, settings | START)
    for name, (method, settings) in SCRATCH.items()
}
# One change each of "lpo4rec, paper's pi, started" (table II of the paper, and what lambda, tau and K do).
CHANGES: dict[str, dict[str, Any]] = {
    "no reweighting": {"loss.reweight": False},
    "top-K": {"loss.negatives": "top"},
    "uniform": {"loss.negatives": "uniform"},
    **{f"lambda {value}": {"loss.strength": value} for value in (0.1, 1.0, 2.0)},
    **{f"tau {value}": {"loss.tau": value} for value in (0.02, 0.5, 2.0)},
    **{f"K {value}": {"loss.num_negatives": value} for value in (1, 3, 30)},
}
SCRATCH |= {
    f"lpo4rec, paper's pi, {name}, started": ("lpo4rec", SASREC | PAPER | START | change)
    for name, change in CHANGES.items()
}
FROM: dict[str, tuple[str, dict[str, Any]]] = {
    "melt": ("melt", ON_TOP),
    "melt, rarest fifth": ("melt", ON_TOP | {"examples.item_quantile": 0.2}),
    "melt, rarest half": ("melt", ON_TOP | {"examples.item_quantile": 0.5}),
    "cities": ("cities", ON_TOP | {"examples.reach": 8}),
    "sasrec, trained on": ("lpo4rec", ALIGNED | {"loss.preference": "none", "loss.reweight": False}),
    "r2rec": ("lpo4rec", ALIGNED | {"loss.preference": "none", "loss.reweight_strength": 2}),
    "reweighting alone": ("lpo4rec", ALIGNED | {"loss.preference": "none"}),
    "dpo": (
        "lpo4rec",
        ALIGNED | {"loss.preference": "dpo", "loss.beta": 0.1, "loss.reweight": False, "loss.num_negatives": 1},
    ),
    "s-dpo": (
        "lpo4rec",
        ALIGNED | {"loss.preference": "s-dpo", "loss.beta": 1, "loss.reweight": False, "loss.num_negatives": 3},
    ),
    "simpo": (
        "lpo4rec",
        ALIGNED | {"loss.preference": "simpo", "loss.beta": 2, "loss.reweight": False, "loss.num_negatives": 1},
    ),
    "orpo": (
        "lpo4rec",
        ALIGNED | {"loss.preference": "orpo", "loss.strength": 0.1, "loss.reweight": False, "loss.num_negatives": 1},
    ),
    "lpo4rec": ("lpo4rec", ALIGNED),
    "lpo4rec, paper's pi": ("lpo4rec", ALIGNED | PAPER),
    "lpo4rec, logprob": ("lpo4rec", ALIGNED | {"loss.pi": "logprob"}),
    "lpo4rec, no reweighting": ("lpo4rec", ALIGNED | {"loss.reweight": False}),
}
# A fitted model brings 200 candidates, transitions' scores are added to its own.
BEHIND = ("sasrec, started", "gru4rec, started", "caser, started", "r2rec, started", "lpo4rec, paper's pi, started")
BOTH = {f"{name} + transitions": name for name in BEHIND}
COSTED = ("sasrec, trained on", "r2rec", "dpo", "s-dpo", "simpo", "orpo", "lpo4rec", "lpo4rec, paper's pi")
MAIN = [*COUNTED, "sasrec", "gru4rec", "caser", "melt", "cities", "sasrec, trained on", "r2rec", "dpo", "s-dpo"]
MAIN += ["simpo", "orpo", "lpo4rec", "lpo4rec, paper's pi", "r2rec, from scratch", "lpo4rec, from scratch"]


def split_of(log: str, prepend: str | None = None) -> Any:
    import polars as pl

    from beamwood.data import Dataset, leave_one_out, read_log

    frame = pl.read_parquet(log).select("user_id", "item_id", "timestamp")
    if prepend is not None:
        extra = pl.read_parquet(prepend).drop_nulls()
        user, item = extra.columns[:2]
        first = extra.select(user_id=user, item_id=item, timestamp=pl.lit(-1, frame.schema["timestamp"]))
        frame = pl.concat([first.cast(dict(frame.schema)), frame])
    return leave_one_out(Dataset.from_log(read_log(frame)))


def measured(retriever: Any, split: Any, rule: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Per-user metrics of both views, and what is shown and left to the tail."""
    from beamwood.evaluation.gap import tail_gap
    from beamwood.evaluation.protocol import evaluate, evaluate_both

    rare = rule.tail(split.train)
    searcher = retriever.searcher
    views = evaluate_both(searcher, split.test, ks=CUTS, tail=rare, batch_size=1024)
    names = [f"{metric}@{cut}" for metric in METRICS for cut in CUTS]
    values = {f"{view}/{name}": result.values[name] for view, result in views.items() for name in names}
    values["is_tail"] = rare.mask[split.test.labels.items]
    rows = np.unique(np.linspace(0, len(split.test) - 1, 2000).astype(np.int64))
    gap = tail_gap(searcher, split.test.take(rows).query(searcher.needs), rare.mask)
    valid = evaluate(searcher, split.valid, ks=CUTS, remove_seen=False, batch_size=1024).values
    of_tail = rare.mask[split.valid.labels.items]
    facts = {
        "tail_rule": rare.rule,
        "tail_items": int(rare.mask.sum()),
        "overall": views["kept"].overall,
        "gap": gap.as_dict(),
        "valid": {name: float(valid[name].mean()) for name in names}
        | {f"tail {name}": float(valid[name][of_tail].mean()) for name in names},
    }
    return values, facts


def run(arguments: argparse.Namespace) -> None:
    from beamwood.evaluation.metrics import TailRule
    from beamwood.methods import load_method

    folder, settings = Path(arguments.out), parsed(arguments.set)
    rule = TailRule(of=arguments.tail_of or ("items" if arguments.prepend is None else "prefixes"))
    folder.mkdir(parents=True, exist_ok=True)
    split = split_of(arguments.log, arguments.prepend)
    for seed in [int(part) for part in arguments.seeds.split(",")]:
        for name in arguments.variants.split(";"):
            target = folder / f"{name.replace(' ', '_').replace(':', 'to')}-{seed}.json"
            if target.exists() or (name in COUNTED and seed):
                continue
            if name in COUNTED:
                module = load_method(COUNTED[name])
                config, options = module.Config(), {}
            elif name in BOTH:
                module, options = load_method("two_stage"), {}
                stages = {
                    "start.retriever": str(folder / f"{BOTH[name]}-{seed}"),
                    "start.ranker": str(folder / "transitions-0"),
                }
                own = {
                    "model.num_candidates": 200,
                    "choose.validation_users": 2000,
                    "choose.monitor": LOOP["choose.monitor"],
                }
                config = module.Config(**(own | settings | stages))
            else:
                method, own = (SCRATCH | FROM)[name]
                start = {"start.folder": str(folder / f"{arguments.start}-{seed}")} if name in FROM else {}
                module, options = load_method(method), {"progress": False}
                aligned = {"loss.tail_of": rule.of} if method == "lpo4rec" else {}
                config = module.Config(**(LOOP | own | aligned | settings | start))
            began, processor = time.perf_counter(), time.process_time()
            retriever = module.fitted(split, config, seed=seed, **options)
            seconds, processor = time.perf_counter() - began, time.process_time() - processor
            if name in SCRATCH or name in COUNTED:
                retriever.save(folder / f"{name}-{seed}", overwrite=True)
            values, facts = measured(retriever, split, rule)
            np.savez_compressed(target.with_suffix(".npz"), **values)
            document = {
                "variant": name,
                "seed": seed,
                "seconds": round(seconds, 1),
                "processor_seconds": round(processor, 1),
                "peak_mib": round(status_kib("VmHWM") / 1024),
                "training": retriever.metadata["training"],
                "config": config.flat(),
                **facts,
            }
            target.write_text(json.dumps(document) + "\n")
            shown = {key: document[key] for key in ("variant", "seed", "processor_seconds", "training", "valid")}
            print(json.dumps(shown), flush=True)


def parsed(pairs: list[str]) -> dict[str, Any]:
    """`key=JSON` pairs."""
    return {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in pairs)}


def cost(arguments: argparse.Namespace) -> None:
    """Processor seconds of an epoch and the rise of the peak of memory, each method in a process of its own."""
    from beamwood.methods import load_method

    split = split_of(arguments.log, arguments.prepend)
    folder = Path(arguments.out)
    start = folder / "cost-start"
    if not start.exists():
        module = load_method("sasrec")
        config = module.Config(
            **(LOOP | SASREC | parsed(arguments.set) | {"loop.max_steps": 2, "loop.evaluate_every": 2})
        )
        module.fitted(split, config, progress=False).save(start)
    results = {}
    for name in COSTED:
        own = FROM[name][1] | parsed(arguments.set) | {"start.folder": str(start)}
        results[name] = in_process(step_cost, arguments.log, arguments.prepend, own, arguments.steps)
        print(name, json.dumps(results[name]), flush=True)


def step_cost(log: str, prepend: str | None, settings: dict[str, Any], steps: int) -> dict[str, float]:
    """Processor seconds of a step (median, and the best) times the steps of an epoch; the memory that steps add."""
    import torch

    from beamwood.fitting.plan import Facts
    from beamwood.fitting.vectors.preference import PreferenceTask
    from beamwood.methods.lpo4rec import Config
    from beamwood.training.trainable import Stepper

    torch.set_num_threads(1)
    split = split_of(log, prepend)
    config = Config(**(LOOP | settings))
    before = status_kib("VmRSS")
    task = PreferenceTask(split, config.plan(Facts.of(split.train)))
    stepper = Stepper(task, learning_rate=config.optimiser.learning_rate)
    order, seconds = np.random.default_rng(0).permutation(task.num_examples), []
    for step in range(steps):
        began = time.process_time()
        rows = order[step * config.loop.batch_size : (step + 1) * config.loop.batch_size]
        stepper.step(rows, number=step, clip_norm=config.optimiser.clip_norm)
        seconds.append(time.process_time() - began)
    per_epoch = -(-task.num_examples // config.loop.batch_size)
    return {
        "epoch_s": round(float(np.median(seconds)) * per_epoch, 1),
        "best_epoch_s": round(min(seconds[2:]) * per_epoch, 1),
        "peak_mib": round((status_kib("VmHWM") - before) / 1024, 1),
    }


def table(arguments: argparse.Namespace) -> None:
    from beamwood.evaluation.metrics import TailRule
    from beamwood.evaluation.significance import bootstrap_interval, compare

    runs: dict[str, list[tuple[dict[str, Any], dict[str, np.ndarray]]]] = {}
    for file in sorted(Path(arguments.out).glob("*-*.json")):
        document = json.loads(file.read_text())
        runs.setdefault(document["variant"], []).append((document, dict(np.load(file.with_suffix(".npz")))))
    order = [name for name in [*COUNTED, *SCRATCH, *FROM, *BOTH] if name in runs]
    # Rows of before the rule was a choice.
    rules = {document.get("tail_rule", TailRule().describe()) for seeds in runs.values() for document, _ in seeds}
    if len(rules) > 1:
        raise SystemExit(f"{arguments.out} holds rows of {len(rules)} tail rules; give each a folder: {sorted(rules)}")
    rule, tail = rules.pop(), next(iter(runs.values()))[0][1]["is_tail"]
    means = {
        name: {key: np.mean([values[key] for _, values in seeds], axis=0) for key in seeds[0][1] if key != "is_tail"}
        for name, seeds in runs.items()
    }
    rows, tests = [], []
    for name in order:
        row: dict[str, Any] = {"variant": name, "seeds": len(runs[name]), "tail_rule": rule}
        for who, users in (("overall", slice(None)), ("tail", tail)):
            for key, column in means[name].items():
                interval = bootstrap_interval(column[users], np.random.default_rng(0))
                over_seeds = [values[key][users].mean() for _, values in runs[name]]
                spread = float(np.std(over_seeds, ddof=1)) if len(over_seeds) > 1 else 0.0
                row[f"{who} {key}"] = [interval.mean, (interval.high - interval.low) / 2, spread]
        documents = [document for document, _ in runs[name]]
        row["valid"] = {key: float(np.mean([d["valid"][key] for d in documents])) for key in documents[0]["valid"]}
        row["gap"] = float(np.mean([d["gap"]["mean"] for d in documents]))
        row["tail_share@10"] = float(np.mean([d["overall"]["tail_share@10"] for d in documents]))
        row["coverage@10"] = float(np.mean([d["overall"]["coverage@10"] for d in documents]))
        row["processor_s"] = float(np.mean([d["processor_seconds"] for d in documents]))
        rows.append(row)
    for baseline in arguments.against.split(";"):
        for who, users in (("overall", slice(None)), ("tail", tail)):
            for view in ("kept", "removed"):
                columns = {name: means[name][f"{view}/hit_rate@10"][users] for name in order}
                for result in compare(columns, baseline, np.random.default_rng(0)):
                    tests.append({"who": who, "view": view, **result.as_dict()})
    if arguments.json:
        print(json.dumps({"rows": rows, "tests": tests, "tail_users": int(tail.sum()), "users": len(tail)}))
        return
    print(f"{len(tail)} test users, {int(tail.sum())} with a tail label; {rule}")
    show(rows)
    for test in tests:
        difference, adjusted = test["difference"], test["adjusted"]["t"]
        print(
            f"{test['who']}, {test['view']}, HR@10: {test['baseline']} - {test['rival']}: {difference['mean']:+.4f} "
            f"({difference['low']:+.4f} to {difference['high']:+.4f}), p {adjusted:.2g}"
        )


def show(rows: list[dict[str, Any]]) -> None:
    """Tables in Markdown: both views of all users and of tail users, then what is shown and what validation said."""
    for view, words in (("kept", "seen kept"), ("removed", "seen removed")):
        for who in ("overall", "tail"):
            names = [f"{metric}@{cut}" for metric in METRICS for cut in CUTS]
            heads = [name.replace("hit_rate", "HR").replace("ndcg", "NDCG") for name in names]
            print(f"\n{who}, {words}\n\n| | seeds | {' | '.join(heads)} |\n|{' --- |' * (len(names) + 2)}")
            for row in rows:
                cells = []
                for name in names:
                    mean, half, spread = row[f"{who} {view}/{name}"]
                    extra = f" ± {half:.4f}" if name == "hit_rate@10" else ""
                    extra += f" (seeds {spread:.4f})" if name == "hit_rate@10" and row["seeds"] > 1 else ""
                    cells.append(f"{mean:.4f}{extra}")
                print(f"| {row['variant']} | {row['seeds']} | {' | '.join(cells)} |")
    print(
        "\n| | tail's share of shown @10 | coverage @10 | mean gap, in 1/N | valid HR@10 | valid tail HR@10 | CPU s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        valid = row["valid"]
        print(
            f"| {row['variant']} | {row['tail_share@10']:.4f} | {row['coverage@10']:.3f} | {row['gap']:+.3f} | "
            f"{valid['hit_rate@10']:.4f} | {valid['tail hit_rate@10']:.4f} | {row['processor_s']:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, work in (("run", run), ("cost", cost)):
        command = commands.add_parser(name)
        command.add_argument("--log", required=True)
        command.add_argument("--prepend")
        command.add_argument("--out", required=True)
        command.add_argument("--set", action="append", default=[], help="group.key=JSON for all trained methods")
        command.set_defaults(work=work)
        if name == "run":
            command.add_argument("--variants", default=";".join(MAIN))
            command.add_argument("--seeds", default="0,1,2")
            command.add_argument("--start", default="sasrec", help="the variant that aligning and mending start from")
            command.add_argument("--tail-of", choices=("items", "interactions", "prefixes"))
        else:
            command.add_argument("--steps", type=int, default=20)
    tabler = commands.add_parser("table")
    tabler.add_argument("--out", required=True)
    tabler.add_argument("--against", default="transitions")
    tabler.add_argument("--json", action="store_true")
    tabler.set_defaults(work=table)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
