"""The cost of summed labels: training to convergence on a planted market, with summed or with rectified labels.

    python -m benchmarks.suboptimality [--steps 3000] [--seeds 0,1,2] [--k 8] [--json]

Every level is trained on all its nodes, so sampling has no effect. The estimator of the rectified labels is the market
itself, so estimation has none either. The labels are the only difference.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import polars as pl

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import Market, MarketConfig, make_market
from beamwood.methods.dtr import METHOD
from beamwood.theory.planted import missed, missed_in_theory
from beamwood.types import Query, SearchOptions

MARKET = MarketConfig(
    num_users=3000, num_items=64, num_groups=1, categories_per_group=1, num_tastes=3, min_events=10, max_events=30,
    stay=0.98, popularity_exponent=0.5, category_focus=0.0, item_focus=0.3,
)  # fmt: skip
MODEL: dict[str, Any] = {
    "tree.start": "category", "tree.branching": 2, "start.scores": "random",
    "model.width": 16, "model.attention_hidden": 16, "model.windows": (6, 4, 2, 1, 1), "model.mlp": (64, 32),
    "examples.num_targets": 1, "examples.horizon": 1, "examples.min_history": 2, "loss.num_negatives": 64,
    "optimiser.learning_rate": 3e-3, "optimiser.bf16": False,
    "loop.batch_size": 256, "loop.evaluate_every": 500, "loop.patience": 100,
    "choose.monitor": "kept/f@20", "choose.validation_users": 400,
}  # fmt: skip


class NextItem:
    """The market as an estimator: the exact probability of the next item."""

    kind = "market"

    def __init__(self, market: Market) -> None:
        self.market = market

    @property
    def num_items(self) -> int:
        return int(self.market.emission.shape[1])

    def score(self, query: Query, items_BM: Any) -> Any:
        return np.take_along_axis(self.market.next_probabilities(query.histories), np.asarray(items_BM), axis=1)


def hard_categories(market: Market) -> Any:
    """Categories whose tree is hard for summed labels: 8 with one strong and 3 weak items, and 8 with 4 medium ones."""
    rank = np.argsort(np.argsort(-market.emission.mean(axis=0)))
    group = np.where(rank < 8, rank, np.where(rank < 40, 8 + (rank - 8) % 8, (rank - 40) % 8))
    return market.item_frame.with_columns(pl.Series("category", [f"group {number}" for number in group]))


def suboptimality_of(seed: int, steps: int, k: int) -> dict[str, Any]:
    market = make_market(MARKET, seed=seed)
    split = disjoint_users(Dataset.from_log(read_log(market.log), hard_categories(market)), seed=seed)
    histories = split.test.histories.last(14)
    eta = market.next_probabilities(histories)
    result: dict[str, Any] = {"seed": seed}
    for labels in ("summed", "rectified"):
        config = MODEL | {"loop.max_steps": steps, "loss.labels": labels}
        estimator = NextItem(market) if labels == "rectified" else None
        retriever = METHOD.fitted(split, config, seed=seed, progress=False, estimator=estimator)
        searcher: Any = retriever.searcher
        if labels == "summed":
            for name, loss in missed_in_theory(searcher.tree, eta, k).items():
                result[f"theory, {name}"] = [loss.items, loss.probability]
        query = Query.of(histories)
        for name, items in (
            ("beam", searcher.search(query, k, SearchOptions(beam_width=k)).items),
            ("all leaves", searcher.exact(query, k).items),
        ):
            loss = missed(eta, items)
            result[f"{labels}, {name}"] = [loss.items, loss.probability]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [suboptimality_of(int(seed), arguments.steps, arguments.k) for seed in arguments.seeds.split(",")]
    if arguments.json:
        print(json.dumps(rows))
        return
    for name in [key for key in rows[0] if key != "seed"]:
        values = np.array([row[name] for row in rows])
        share, lost = values.mean(axis=0)
        print(f"{name}: misses {share:.3f} of the {arguments.k} best, {lost:.4f} of probability")
        print("   by seed: " + ", ".join(f"{value:.3f}" for value in values[:, 0]))


if __name__ == "__main__":
    main()
