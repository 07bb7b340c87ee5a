"""A ranker behind a fitted retriever: trained on all pairs (TS), on those that it retrieves (H-TS), and further forms.

    python -m benchmarks.two_stage run --log LOG [--items ITEMS] [--boundary-column C] --retriever DIR --out DIR
                                       [--widths 40,80,120] [--variants "a;b"] [--seeds 0,1,2] [--set key=JSON]
    python -m benchmarks.two_stage table --out DIR [--against VARIANT] [--json]

The split is that of disjoint users with seed 2026, which the retriever was fitted on too. One JSON and one file of
per-user metrics a training; `run` trains what the folder does not hold yet. What is trained on all pairs with drawn
negatives does not depend on the number of candidates: it is trained once and judged at each. Every ranker is judged
twice, by its own score alone as the study has it and with the retriever's added ("+ retriever"), this and the weight of
what was seen chosen on validation users.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

VARIANTS: dict[str, dict[str, Any]] = {
    "TS": {"examples.pairs": "all", "loss.negatives": "uniform"},
    "H-TS": {"examples.pairs": "harmonised", "loss.negatives": "uniform"},
    "TS, unseen": {"examples.pairs": "all", "loss.negatives": "unseen"},
    "H-TS, unseen": {"examples.pairs": "harmonised", "loss.negatives": "unseen"},
    "own candidates": {"examples.pairs": "all", "loss.negatives": "candidates"},
    "H-TS, own candidates": {"examples.pairs": "harmonised", "loss.negatives": "candidates"},
}
FUSED = " + retriever"
KEYS = ("precision@1", "f@20", "ndcg@20")


def judged(searcher: Any, split: Any) -> dict[str, np.ndarray]:
    from beamwood.evaluation.protocol import evaluate_both

    views = evaluate_both(searcher, split.test, ks=(1, 20))
    return {f"{view}/{key}": result.values[key] for view, result in views.items() for key in KEYS}


def run(arguments: argparse.Namespace) -> None:
    from beamwood.data import ColumnNames, Dataset, disjoint_users, read_log
    from beamwood.evaluation.stages import decompose
    from beamwood.fitting.blend import StageWeights, Weights
    from beamwood.fitting.choose import drawn
    from beamwood.fitting.fitted import fitted_alike
    from beamwood.fitting.stages import staged
    from beamwood.methods.two_stage import METHOD
    from benchmarks.measure import one_thread

    one_thread()
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    log = read_log(arguments.log, columns=ColumnNames(boundary=arguments.boundary_column))
    split = disjoint_users(Dataset.from_log(log, arguments.items), seed=2026)
    settings = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in arguments.set)}
    retriever = fitted_alike(arguments.retriever, split)
    widths = [int(part) for part in arguments.widths.split(",")]

    def keep(target: Path, document: dict[str, Any], searcher: Any) -> None:
        values = judged(searcher, split)
        np.savez_compressed(target.with_suffix(".npz"), **values)
        test = {key: float(column.mean()) for key, column in values.items()}
        target.write_text(json.dumps(document | {"test": test}) + "\n")
        print(json.dumps({key: document.get(key) for key in ("variant", "seed", "candidates")} | test), flush=True)

    alone = folder / "retriever-0-0.json"
    if not alone.exists():
        keep(alone, {"variant": "retriever", "seed": 0, "candidates": 0}, retriever.searcher)
    for seed in [int(part) for part in arguments.seeds.split(",")]:
        for name in arguments.variants.split(";"):
            fitted = None
            for width in widths:
                targets = [folder / f"{form.replace(' ', '_')}-{width}-{seed}.json" for form in (name, name + FUSED)]
                if all(target.exists() for target in targets):
                    continue
                began = time.process_time()
                if fitted is None or not name.startswith("TS"):
                    options = (
                        {"model.num_candidates": width, "start.retriever": arguments.retriever}
                        | VARIANTS[name]
                        | settings
                    )
                    config = METHOD.Config(**options)
                    fitted = METHOD.fitted(split, config, seed=seed, progress=False)
                seconds, ranker = time.process_time() - began, fitted.searcher.ranker
                sought = StageWeights(
                    retriever.searcher,
                    drawn(split.valid, config.choose.validation_users, seed=seed),
                    num_candidates=width,
                    monitor=config.choose.monitor,
                    first_weight=config.choose.retriever_weight,
                    seen_weight=config.choose.seen_weight,
                )
                weights, _ = sought.best(ranker)
                for target, given in zip(targets, (Weights(0.0, 0.0), weights), strict=True):
                    searcher = staged(retriever.searcher, ranker, given, num_candidates=width)
                    document = {
                        "variant": name if target == targets[0] else name + FUSED,
                        "seed": seed,
                        "candidates": width,
                        "weights": given.facts(),
                        "processor_seconds": round(seconds, 1),
                        "training": fitted.metadata["training"],
                        "config": fitted.metadata["config"],
                        "stages": decompose(searcher, split.test, ks=(1, 20), one_stage_queries=100).as_dict(),
                    }
                    keep(target, document, searcher)


def table(arguments: argparse.Namespace) -> None:
    from scipy import stats

    found: dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, np.ndarray]]]] = {}
    for file in sorted(Path(arguments.out).glob("*-*-*.json")):
        document = json.loads(file.read_text())
        key = (document["variant"], document["candidates"])
        found.setdefault(key, []).append((document, dict(np.load(file.with_suffix(".npz")))))
    metrics = [f"{view}/{key}" for view in ("kept", "removed") for key in KEYS]
    rows = []
    for (name, width), runs in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        row: dict[str, Any] = {"variant": name, "candidates": width, "seeds": len(runs)}
        base = found.get((arguments.against, 0 if arguments.against == "retriever" else width)) or []
        for metric in metrics:
            means = [float(values[metric].mean()) for _, values in runs]
            row[metric] = float(np.mean(means))
            if base and name not in (arguments.against, "retriever"):
                ours = np.mean([values[metric] for _, values in runs], axis=0)
                theirs = np.mean([values[metric] for _, values in base], axis=0)
                row[f"{metric} p"] = float(stats.ttest_rel(ours, theirs).pvalue)
        staged = [document["stages"] for document, _ in runs if "stages" in document]
        if staged:
            row["miss"] = staged[0]["miss"]
            row["rank_error"] = float(np.mean([stages["cuts"][0]["rank_error"] for stages in staged]))
            row["total_error"] = float(np.mean([stages["cuts"][0]["total_error"] for stages in staged]))
            row["ms"] = [1000 * staged[0]["retrieval_seconds"], 1000 * staged[0]["ranking_seconds"]]
        rows.append(row)
    if arguments.json:
        print(json.dumps({"rows": rows}))
        return
    print("| K | | seeds | " + " | ".join(metrics) + " | miss | rank error @1 | total |")
    print("| --- | --- | --- |" + " --- |" * (len(metrics) + 3))
    for row in rows:
        cells = [
            f"{row[metric]:.4f}" + (f" (p {row[f'{metric} p']:.2g})" if f"{metric} p" in row else "")
            for metric in metrics
        ]
        parts = [f"{row[key]:.4f}" if key in row else "" for key in ("miss", "rank_error", "total_error")]
        print(f"| {row['candidates'] or ''} | {row['variant']} | {row['seeds']} | " + " | ".join(cells + parts) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--log", required=True)
    runner.add_argument("--items")
    runner.add_argument("--boundary-column")
    runner.add_argument("--retriever", required=True)
    runner.add_argument("--out", required=True)
    runner.add_argument("--widths", default="40,80,120")
    runner.add_argument("--variants", default=";".join(VARIANTS))
    runner.add_argument("--seeds", default="0,1,2")
    runner.add_argument("--set", action="append", default=[], help="group.key=JSON for every training")
    runner.set_defaults(work=run)
    tabler = commands.add_parser("table")
    tabler.add_argument("--out", required=True)
    tabler.add_argument("--against", default="retriever", help="paired t tests over users, unadjusted, with this one")
    tabler.add_argument("--json", action="store_true")
    tabler.set_defaults(work=table)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
