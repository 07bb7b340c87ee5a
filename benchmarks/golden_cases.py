"""What `benchmarks.golden` fits, asks and sees refused, and the two logs that it does so on.

Settings have one flat name here; the recorder finds what the code under test calls them.
"""

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
    """One fit. In options and settings "{sasrec}" is the folder of another case, "{users}" that table of the log."""

    method: str
    settings: Settings = field(default_factory=dict)
    options: str = ""
    asked: str = ""


LOOP: Settings = {"max_steps": 40, "evaluate_every": 15, "batch_size": 16, "warmup_steps": 5, "learning_rate": 0.01}
WIDE: Settings = {"width": 16, "length": 12}
SHAPE: Settings = {"branching": 4, "width": 8, "attention_hidden": 8, "windows": [8, 4, 2, 1], "mlp": [16, 8]}
FASTER: Settings = {"max_steps": 60, "batch_size": 32, "learning_rate": 0.005}
TREE: Settings = LOOP | FASTER | SHAPE | {"beam_width": 20, "bf16": False}
PAPER: Settings = {
    **{"branching": 2, "norm": "batch", "activation": "prelu", "unit_coordinate": False, "attention_start": None},
    **{"node_start": "random", "tree": "random", "targets": 1, "horizon": 1, "examples": "positions", "amsgrad": True},
    **{"schedule": "exponential", "decay_steps": 20, "floor": 1e-6, "similarity_width": 0, "num_negatives": 12},
}
RL: Settings = {"labels": "rectified", "targets": 1, "horizon": 1}
PLAIN: Settings = {"node_start": "random", "repeat_weight": 0, "similarity_width": 0}
OTHER: Settings = {
    "dropout": 0.1,
    "recompute": True,
    "level_reduction": "sum",
    "weight_decay": 0.01,
    "depth_alpha": 0.5,
}
ENCODER: Settings = LOOP | WIDE | {"num_heads": 2}
ENCODERS: dict[str, Settings] = {
    "sasrec": ENCODER,
    "gru4rec": LOOP | WIDE | {"hidden": 16},
    "caser": LOOP | WIDE | {"num_vertical": 2, "num_horizontal": 4},
    "fmlp": LOOP | WIDE,
}
S_DPO: Settings = {"preference": "s-dpo", "negatives": "top", "tied": False, "horizon": 3}
SAMPLED: Settings = {"sampled_negatives": 20, "embedding_optimizer": "lazy-adam"}
TOWERS: Settings = LOOP | WIDE | {"batch_size": 64, "hidden": 16, "item_start": "random"}
MF: Settings = TOWERS | {"user_tower": "mf"}
PAIRS: Settings = LOOP | {"width": 8, "length": 12, "attention": [8], "mlp": [16, 8]}
RANKED: Settings = PAIRS | {"num_candidates": 30, "max_examples": 500, "num_negatives": 10}
COLUMNS: Settings = {"item_columns": ["category"], "user_columns": ["group", "age"]}
ALONE: Settings = {"item_start": "random", "learning_rate": 0.03, "retriever_weight": 0, "repeat_weight": 0}
CONTEXT: Settings = {"context_columns": ["device"], "horizon": 1, "num_targets": 1}
OUT1, BEHIND = "--split leave-one-out", "--retriever {dtr}"

CASES: dict[str, Case] = {
    "popularity": Case("popularity"),
    "popularity-boundary": Case("popularity", {}, "--split boundary --boundary-column part"),
    "cooccurrence": Case("cooccurrence"),
    "transitions": Case("transitions"),
    "transitions-time": Case("transitions", {}, "--split time"),
    "ease": Case("ease"),
    **{method: Case(method, TREE) for method in ("dtr", "tdm", "jtm", "otm", "plt", "din")},
    **{method: Case(method, settings) for method, settings in ENCODERS.items()},
    "lpo4rec": Case("lpo4rec", ENCODER, "--from {sasrec}"),
    **{method: Case(method, LOOP, "--from {sasrec}") for method in ("melt", "cities")},
    "dtr-plain": Case("dtr", TREE | PLAIN | OTHER),
    "dtr-walks": Case("dtr", TREE | RL | {"negatives": "tree", "num_negatives": 8, "estimator": "{sasrec}"}),
    "dtr-normalised": Case("dtr", TREE | RL | {"normalised_labels": True, "estimator": "transitions"}),
    "dtr-one-step": Case("dtr", TREE | RL | {"labels": "one-step", "estimator": "{sasrec}"}),
    "dtr-updates": Case("dtr", TREE | {"tree_updates": 2}),
    "dtr-binary": Case("dtr", TREE | {"tree_updates": 1, "learner": "binary", "embeddings": "node", "stride": 1}),
    "dtr-rollback": Case("dtr", TREE | {"tree_updates": 2, "rollback": True, "after_update": "keep"}),
    "dtr-paper": Case("dtr", TREE | PAPER),
    "dtr-paper-updates": Case("dtr", TREE | PAPER | {"tree_updates": 1, "negatives": "tree", "embeddings": "node"}),
    "dtr-neighbours": Case("dtr", TREE | {"num_neighbours": 8, "tree_updates": 1}),
    "dtr-pifa": Case("dtr", TREE | {"tree": "pifa", "embedding_optimizer": "lazy-adam", "repeat_start": 1.0}),
    "dtr-category": Case("dtr", TREE | {"tree": "category"}),
    "dtr-kmeans": Case("dtr", TREE | {"tree": "kmeans", "vectors": "{sasrec}"}),
    "dtr-old-tree": Case("dtr", TREE | {"tree": "{dtr-updates}"}),
    "plt-plain": Case("plt", TREE | PLAIN),
    "dtr+ease": Case("dtr+ease", TREE),
    "sasrec+cooccurrence": Case("sasrec+cooccurrence", ENCODER),
    "sasrec-sampled": Case("sasrec", ENCODER | SAMPLED),
    "sasrec-untied": Case("sasrec", ENCODER | {"tied": False, "item_start": "random", "horizon": 3}),
    "sasrec-column": Case("sasrec", ENCODER | {"item_column": "vector"}),
    "sasrec-out1": Case("sasrec", ENCODER, OUT1),
    "lpo4rec-s-dpo": Case("lpo4rec", ENCODER | S_DPO, "--from {sasrec-untied}"),
    "two_tower": Case("two_tower", TOWERS),
    "two_tower-start": Case("two_tower", TOWERS | {"item_start": "transitions", "item_columns": ["category"]}),
    "two_tower-mf": Case("two_tower", MF, OUT1),
    **{f"two_tower-{n}": Case("two_tower", MF | {"negatives": n}, OUT1) for n in ("full", "bir", "mns", "g-tower")},
    "two_tower-ssl-pop": Case("two_tower", TOWERS | {"negatives": "ssl-pop"}),
    "two_tower-sasrec": Case("two_tower", TOWERS | {"user_tower": "sasrec"}),
    "two_tower-normalise": Case("two_tower", TOWERS | {"normalise": True, "temperature": 0.1, "mask_known": False}),
    "ranker": Case("ranker", PAIRS, OUT1),
    "ranker-graph": Case("ranker", PAIRS | {"graph": True, "loss": "gumbel-ndcg", "surrogate": "mlp"}, OUT1),
    "ranker-neumf": Case("ranker", PAIRS | {"model": "neumf", "loss": "logistic"}, OUT1),
    "ranker-columns": Case("ranker", PAIRS | COLUMNS | {"loss": "bpr"}, f"{OUT1} --user-table {{users}}"),
    "ranker-din": Case("ranker", PAIRS | {"model": "din", "loss": "list-mle", "item_start": "random"}),
    "ranker-din-guided": Case("ranker", PAIRS | {"model": "din"}),
    "two-stage": Case("two-stage", RANKED, BEHIND),
    "two-stage-alone": Case("two-stage", RANKED | ALONE, BEHIND),
    "two-stage-harmonised": Case("two-stage", RANKED | {"training": "harmonised", "negatives": "candidates"}, BEHIND),
    "two-stage-context": Case("two-stage", RANKED | CONTEXT, BEHIND, "--context device=phone"),
    "two-stage-counted": Case("two-stage", {"num_candidates": 30}, f"{BEHIND} --ranker cooccurrence"),
    "two-stage-fitted": Case("two-stage", {"num_candidates": 30}, f"{BEHIND} --ranker {{ranker-din}}"),
    "two-stage-third": Case("two-stage", {"num_candidates": 30}, "--retriever {two-stage} --ranker ease"),
}
REFUSED_FITS: dict[str, Case] = {
    "unknown method": Case("dtrr"),
    "unknown setting": Case("dtr", {}, "--set widht=3"),
    "setting without =": Case("dtr", {}, "--set width"),
    "value too small": Case("dtr", {"width": 0}),
    "value no number": Case("dtr", {"width": "wide"}),
    "value true": Case("dtr", {"width": True}),
    "value unknown": Case("dtr", {"negatives": "trees"}),
    "estimator unused": Case("dtr", {"estimator": "sasrec"}),
    "start impossible": Case("dtr", {"node_start": "transitions", "norm": "batch"}),
    "monitor unknown": Case("sasrec", ENCODER | {"monitor": "f@20"}),
    "column unknown": Case("sasrec", ENCODER | {"item_column": "colour"}),
    "split for mf": Case("two_tower", MF),
    "split unknown": Case("popularity", {}, "--split user"),
    "from missing": Case("melt"),
    "from for dtr": Case("dtr", {}, "--from {sasrec}"),
    "from another method": Case("melt", {}, "--from {dtr}"),
    "from another split": Case("melt", {}, "--from {sasrec-out1}"),
    "retriever missing": Case("two-stage"),
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
    """A folder with log.parquet, items.parquet and users.parquet, and what is asked of models fitted on it."""

    folder: Path
    asks: dict[str, list[str]]

    @classmethod
    def write(cls, folder: Path, log: pl.DataFrame, items: pl.DataFrame) -> Log:
        """Add what the cases look at: the boundary, a context of each row, two columns of users."""
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
    """Users who stay in a category and mostly go on to its next item; some items are taken again."""
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
    """The first users of a log in the common columns, and the items of its table; without one, each a category."""
    rows = pl.read_parquet(log).select("user_id", "item_id", "timestamp")
    rows = rows.filter(pl.col("user_id").is_in(rows["user_id"].unique().sort().head(num_users).implode()))
    if items is None:
        table = rows.select("item_id", category=pl.col("item_id").cast(pl.String))
    else:
        table = pl.read_parquet(items).select("item_id", "category")
    return Log.write(folder, rows, table.unique("item_id").sort("item_id"))
