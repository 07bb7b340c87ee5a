"""The fits, queries and refused commands of `benchmarks.golden`, and its two logs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

__all__ = ["CASES", "REFUSED_CALLS", "REFUSED_FITS", "Case", "Log", "planted_log", "real_log"]

Settings = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One fit. In options and settings, "{sasrec}" is the folder of another case and "{users}" the log's user table."""

    method: str
    settings: Settings = field(default_factory=dict)
    options: str = ""
    asked: str = ""


LOOP: Settings = {
    "loop.max_steps": 40,
    "loop.evaluate_every": 15,
    "loop.batch_size": 16,
    "optimiser.warmup_steps": 5,
    "optimiser.learning_rate": 0.01,
}
WIDE: Settings = {"model.width": 16, "model.length": 12}
SHAPE: Settings = {
    "tree.branching": 4,
    "model.width": 8,
    "model.attention_hidden": 8,
    "model.windows": [8, 4, 2, 1],
    "model.mlp": [16, 8],
}
FASTER: Settings = {"loop.max_steps": 60, "loop.batch_size": 32, "optimiser.learning_rate": 0.005}
TREE: Settings = LOOP | FASTER | SHAPE | {"tree.beam_width": 20, "optimiser.bf16": False}
PAPER: Settings = {
    "tree.branching": 2,
    "model.norm": "batch",
    "model.activation": "prelu",
    "model.unit_coordinate": False,
    "start.attention": None,
    "start.scores": "random",
    "tree.start": "random",
    "examples.num_targets": 1,
    "examples.horizon": 1,
    "examples.of": "positions",
    "optimiser.amsgrad": True,
    "optimiser.schedule": "exponential",
    "optimiser.decay_steps": 20,
    "optimiser.floor": 1e-6,
    "model.similarity_width": 0,
    "loss.num_negatives": 12,
}
RL: Settings = {"loss.labels": "rectified", "examples.num_targets": 1, "examples.horizon": 1}
PLAIN: Settings = {"start.scores": "random", "choose.seen_weight": 0, "model.similarity_width": 0}
OTHER: Settings = {
    "model.dropout": 0.1,
    "model.recompute": True,
    "loss.level_reduction": "sum",
    "optimiser.weight_decay": 0.01,
    "loss.depth_alpha": 0.5,
}
ENCODER: Settings = LOOP | WIDE | {"model.num_heads": 2}
ENCODERS: dict[str, Settings] = {
    "sasrec": ENCODER,
    "gru4rec": LOOP | WIDE | {"model.hidden": 16},
    "caser": LOOP | WIDE | {"model.num_vertical": 2, "model.num_horizontal": 4},
    "fmlp": LOOP | WIDE,
    "youtube_dnn": LOOP | WIDE | {"model.layers": [24, 16]},
}
MIXTURE: Settings = {
    "model.query_components": 3,
    "model.item_components": 2,
    "model.component_width": 8,
    "model.gate_hidden": 8,
    "model.num_candidates": 20,
    "loss.sampled_negatives": 20,
}
CLUSTERS: Settings = {"index.num_children": 4, "index.leaf_size": 12, "loss.level_negatives": 5}
CODES: Settings = {"model.num_codes": 2, "model.num_words": 8, "model.beam_width": 20}
GRAPH: Settings = {
    "model.width": 16,
    "model.num_layers": 2,
    "loop.max_steps": 40,
    "loop.evaluate_every": 15,
    "loop.batch_size": 64,
}
S_DPO: Settings = {"loss.preference": "s-dpo", "loss.negatives": "top", "model.tied": False, "examples.horizon": 3}
SAMPLED: Settings = {"loss.sampled_negatives": 20, "optimiser.embeddings": "lazy-adam"}
BATCHES: Settings = {"loop.batch_size": 64, "start.items": "random"}
TOWERS: Settings = LOOP | WIDE | BATCHES
MF: Settings = LOOP | BATCHES | {"model.width": 16, "model.user_tower": "mf"}
PAIRS: Settings = LOOP | {"model.width": 8}
HISTORIES: Settings = PAIRS | {"model.length": 12, "model.attention": [8], "model.mlp": [16, 8]}
RANKED: Settings = HISTORIES | {"model.num_candidates": 30, "examples.max_examples": 500, "loss.num_negatives": 10}
COLUMNS: Settings = {"model.item_columns": ["category"], "model.user_columns": ["group", "age"]}
ALONE: Settings = {
    "start.items": "random",
    "optimiser.learning_rate": 0.03,
    "choose.retriever_weight": 0,
    "choose.seen_weight": 0,
}
CONTEXT: Settings = {"model.context_columns": ["device"], "examples.horizon": 1, "examples.num_targets": 1}
OUT1, BEHIND = "--split leave-one-out", "--retriever {dtr}"

CASES: dict[str, Case] = {
    "popularity": Case("popularity"),
    "popularity-boundary": Case("popularity", {}, "--split boundary --boundary-column part"),
    "cooccurrence": Case("cooccurrence"),
    "transitions": Case("transitions"),
    "transitions-time": Case("transitions", {}, "--split time"),
    "ease": Case("ease"),
    **{method: Case(method, TREE) for method in ("dtr", "tdm", "jtm", "otm", "plt")},
    "din": Case("din", {name: value for name, value in TREE.items() if not name.startswith("tree.")}),
    **{method: Case(method, settings) for method, settings in ENCODERS.items()},
    "mol": Case("mol", ENCODER | MIXTURE),
    "jtr": Case("jtr", ENCODER | CLUSTERS),
    "jtr-from": Case("jtr", ENCODER | CLUSTERS | {"loss.level_negatives": None}, "--from {sasrec}"),
    "tiger": Case("tiger", ENCODER | CODES),
    "tiger-column": Case("tiger", ENCODER | CODES | {"start.item_column": "vector"}),
    "lightgcn": Case("lightgcn", GRAPH),
    "indexed": Case("indexed", {"index.kind": "ivf"}, "--from {sasrec}"),
    "lpo4rec": Case("lpo4rec", ENCODER, "--from {sasrec}"),
    **{method: Case(method, LOOP, "--from {sasrec}") for method in ("melt", "cities")},
    "dtr-plain": Case("dtr", TREE | PLAIN | OTHER),
    "dtr-walks": Case(
        "dtr", TREE | RL | {"loss.negatives": "tree", "loss.num_negatives": 8, "loss.estimator": "{sasrec}"}
    ),
    "dtr-normalised": Case("dtr", TREE | RL | {"loss.normalised": True, "loss.estimator": "transitions"}),
    "dtr-one-step": Case("dtr", TREE | RL | {"loss.labels": "one-step", "loss.estimator": "{sasrec}"}),
    "dtr-updates": Case("dtr", TREE | {"tree.updates": 2}),
    "dtr-binary": Case(
        "dtr", TREE | {"tree.updates": 1, "tree.learner": "binary", "tree.embeddings": "node", "tree.stride": 1}
    ),
    "dtr-rollback": Case("dtr", TREE | {"tree.updates": 2, "tree.rollback": True, "tree.after_update": "keep"}),
    "dtr-paper": Case("dtr", TREE | PAPER),
    "dtr-paper-updates": Case(
        "dtr", TREE | PAPER | {"tree.updates": 1, "loss.negatives": "tree", "tree.embeddings": "node"}
    ),
    "dtr-neighbours": Case("dtr", TREE | {"model.num_neighbours": 8, "tree.updates": 1}),
    "dtr-pifa": Case("dtr", TREE | {"tree.start": "pifa", "optimiser.embeddings": "lazy-adam", "start.seen": 1.0}),
    "dtr-category": Case("dtr", TREE | {"tree.start": "category"}),
    "dtr-kmeans": Case("dtr", TREE | {"tree.start": "kmeans", "tree.vectors": "{sasrec}"}),
    "dtr-old-tree": Case("dtr", TREE | {"tree.start": "{dtr-updates}"}),
    "plt-plain": Case("plt", TREE | PLAIN),
    "dtr+ease": Case("dtr+ease", TREE),
    "sasrec+cooccurrence": Case("sasrec+cooccurrence", ENCODER),
    "sasrec-sampled": Case("sasrec", ENCODER | SAMPLED),
    "sasrec-untied": Case("sasrec", ENCODER | {"model.tied": False, "start.items": "random", "examples.horizon": 3}),
    "sasrec-column": Case("sasrec", ENCODER | {"model.item_column": "vector"}),
    "sasrec-out1": Case("sasrec", ENCODER, OUT1),
    "lpo4rec-s-dpo": Case("lpo4rec", ENCODER | S_DPO, "--from {sasrec-untied}"),
    "two_tower": Case("two_tower", TOWERS),
    "two_tower-start": Case("two_tower", TOWERS | {"start.items": "transitions", "model.item_columns": ["category"]}),
    "two_tower-mf": Case("two_tower", MF, OUT1),
    **{
        f"two_tower-{n}": Case("two_tower", MF | {"loss.negatives": n}, OUT1) for n in ("full", "bir", "mns", "g-tower")
    },
    "two_tower-ssl-pop": Case("two_tower", TOWERS | {"loss.negatives": "ssl-pop"}),
    "two_tower-sasrec": Case("two_tower", TOWERS | {"model.user_tower": "sasrec"}),
    "two_tower-normalise": Case(
        "two_tower", TOWERS | {"model.normalise": True, "model.temperature": 0.1, "loss.mask_known": False}
    ),
    "ranker": Case("ranker", PAIRS, OUT1),
    "ranker-graph": Case("ranker", PAIRS | {"model.graph": True, "loss.kind": "gumbel-ndcg"}, OUT1),
    "ranker-neumf": Case("ranker", PAIRS | {"model.kind": "neumf", "loss.kind": "logistic"}, OUT1),
    "ranker-columns": Case("ranker", PAIRS | COLUMNS | {"loss.kind": "bpr"}, f"{OUT1} --user-table {{users}}"),
    "ranker-din": Case("ranker", HISTORIES | {"model.kind": "din", "loss.kind": "list-mle", "start.items": "random"}),
    "ranker-din-guided": Case("ranker", HISTORIES | {"model.kind": "din"}),
    "two_stage": Case("two_stage", RANKED, BEHIND),
    "two_stage-alone": Case("two_stage", RANKED | ALONE, BEHIND),
    "two_stage-harmonised": Case(
        "two_stage", RANKED | {"examples.pairs": "harmonised", "loss.negatives": "candidates"}, BEHIND
    ),
    "two_stage-context": Case("two_stage", RANKED | CONTEXT, BEHIND, "--context device=phone"),
    "two_stage-counted": Case("two_stage", {"model.num_candidates": 30}, f"{BEHIND} --ranker cooccurrence"),
    "two_stage-fitted": Case("two_stage", {"model.num_candidates": 30}, f"{BEHIND} --ranker {{ranker-din}}"),
    "two_stage-third": Case("two_stage", {"model.num_candidates": 30}, "--retriever {two_stage} --ranker ease"),
}
REFUSED_FITS: dict[str, Case] = {
    "unknown method": Case("dtrr"),
    "unknown setting": Case("dtr", {}, "--set widht=3"),
    "setting without =": Case("dtr", {}, "--set width"),
    "value too small": Case("dtr", {"model.width": 0}),
    "value no number": Case("dtr", {"model.width": "wide"}),
    "value true": Case("dtr", {"model.width": True}),
    "value unknown": Case("dtr", {"loss.negatives": "trees"}),
    "estimator unused": Case("dtr", {"loss.estimator": "sasrec"}),
    "start impossible": Case("dtr", {"start.scores": "transitions", "model.norm": "batch"}),
    "monitor unknown": Case("sasrec", ENCODER | {"choose.monitor": "f@20"}),
    "column unknown": Case("sasrec", ENCODER | {"model.item_column": "colour"}),
    "split for mf": Case("two_tower", MF),
    "split unknown": Case("popularity", {}, "--split user"),
    "from missing": Case("melt"),
    "from for dtr": Case("dtr", {}, "--from {sasrec}"),
    "from another method": Case("melt", {}, "--from {dtr}"),
    "from another split": Case("melt", {}, "--from {sasrec-out1}"),
    "retriever missing": Case("two_stage"),
    "sum of two trained": Case("dtr+sasrec"),
    "output taken": Case("dtr", {}, "--out {dtr}"),
}
REFUSED_CALLS: dict[str, str] = {
    "k is 0": "recommend {dtr} --history 1 --on-unknown ignore --k 0",
    "k too large": "recommend {dtr} --history 1 --on-unknown ignore --k 1000000",
    "user unknown": "recommend {dtr} --user 1000000",
    "item unknown": "recommend {dtr} --history 1000000",
    "category unknown": "recommend {dtr} --history 1 --on-unknown ignore --category colour",
    "nobody asks": "recommend {dtr}",
    "context unused": "recommend {dtr} --user 1 --on-unknown ignore --context device=phone",
    "history for mf": "recommend {two_tower-mf} --history 1 --on-unknown ignore",
    "cut is 0": "evaluate {dtr} --k 0",
    "no two stages": "evaluate {dtr} --one-stage-queries 3",
    "folder missing": "evaluate fits/none",
    "unknown option": "evaluate {dtr} --cut 3",
}


@dataclass(frozen=True)
class Log:
    """A folder with log.parquet, items.parquet and users.parquet, and the queries for models fitted on it."""

    folder: Path
    asks: dict[str, list[str]]

    @classmethod
    def write(cls, folder: Path, log: pl.DataFrame, items: pl.DataFrame) -> Log:
        """Add the columns that cases use: the boundary, a context of each row, and two columns of users."""
        users = log["user_id"].unique().sort()
        place = pl.int_range(pl.len()).over("user_id")
        half = pl.when(place < pl.len().over("user_id") // 2).then(pl.lit("history")).otherwise(pl.lit("future"))
        device = pl.when(place % 3 == 0).then(pl.lit("phone")).otherwise(pl.lit("desk"))
        number = pl.int_range(pl.len())
        folder.mkdir(parents=True, exist_ok=True)
        log.sort("user_id", "timestamp", maintain_order=True).with_columns(part=half, device=device).write_parquet(
            folder / "log.parquet"
        )
        vectors = np.random.default_rng(5).normal(size=(len(items), 4)).round(3).tolist()
        items.with_columns(vector=pl.Series(vectors)).write_parquet(folder / "items.parquet")
        table = pl.DataFrame({"user_id": users}).with_columns(group=pl.format("group {}", number % 4), age=number % 50)
        table.write_parquet(folder / "users.parquet")
        known = [part for user in users.gather_every(len(users) // 5)[:5] for part in ("--user", str(user))]
        whose = [*known, "--user", "1000000", "--on-unknown", "ignore"]
        counts = items["category"].drop_nulls().str.split("|").explode().value_counts().sort("count", "category")
        category = str(counts["category"][-1])
        given = json.dumps(log.filter(pl.col("user_id") == users[0])["item_id"].head(6).to_list())
        histories = ["--history", given, "--history", "[]"]
        asks = {"users": whose, "users, seen kept": [*whose, "--include-seen"]}
        return cls(folder, asks | {"histories": histories, "category": [*known, "--category", category]})


def planted_log(folder: Path) -> Log:
    """A log of users who stay in a category and mostly continue with its next item; some items repeat."""
    rng, num_items, num_categories = np.random.default_rng(7), 160, 8
    rows: dict[str, list[Any]] = {"user_id": [], "item_id": [], "timestamp": []}
    for user in range(240):
        liked, item = rng.choice(num_categories, 2, p=np.arange(1, 9) / 36), int(rng.integers(num_items))
        begin = 1_600_000_000 + int(rng.integers(5_000_000))
        for step in range(int(rng.integers(6, 41))):
            chance = rng.random()
            if chance < 0.55:
                item = (item + num_categories) % num_items
            elif chance < 0.85:
                item = int(rng.choice(liked) + num_categories * int(20 * rng.random() ** 2))
            elif chance < 0.95:
                item = int(num_items * rng.random() ** 3)
            values = (f"u{user:03}", f"item {item:03}", begin + 3600 * step)
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
    names = [f"item {item:03}" for item in range(num_items)]
    items = {"item_id": names, "category": [f"category {item % num_categories}" for item in range(num_items)]}
    return Log.write(folder, pl.DataFrame(rows), pl.DataFrame(items))


def real_log(folder: Path, log: str, items: str | None, num_users: int) -> Log:
    """The first users of a log with the standard columns, and its item table; without one, each item is a category."""
    rows = pl.read_parquet(log).select("user_id", "item_id", "timestamp")
    rows = rows.filter(pl.col("user_id").is_in(rows["user_id"].unique().sort().head(num_users).implode()))
    if items is None:
        table = rows.select("item_id", category=pl.col("item_id").cast(pl.String))
    else:
        table = pl.read_parquet(items).select("item_id", "category")
    return Log.write(folder, rows, table.unique("item_id").sort("item_id"))
