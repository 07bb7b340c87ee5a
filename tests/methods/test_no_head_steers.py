"""A market whose next items no light head can predict: validation users reveal it, and the scorer searches alone.

Items are in numbered groups of three. The next item's group is the sum of the last two items' groups, modulo a prime.
A term of the score has this rule, so the full beam has it too; sums of vectors and a small network do not.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest
from array_api_compat import array_namespace

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.fitting.tree import light_stage
from beamwood.fitting.tree.search_choice import KEPT, KEPT_LEVEL, choose_ways
from beamwood.kernels.light import Way
from beamwood.kernels.terms import Term, rows_of
from beamwood.methods import load_method
from beamwood.retrieval.searchers.tree import TreeSearcher, searcher_with
from beamwood.types import SearchOptions
from one_view import evaluate_view

GROUPS, AHEAD = 397, 7
GROUP_OF_ITEM = np.random.default_rng(3).permutation(np.arange(3 * GROUPS) % GROUPS)
SETTINGS = {
    "model.width": 8,
    "model.attention_hidden": 4,
    "model.windows": (4, 2, 1, 1),
    "model.mlp": (8,),
    "model.similarity_width": 16,
    "examples.min_history": 2,
    "optimiser.bf16": False,
    "loop.max_steps": 2,
    "loop.evaluate_every": 2,
    "tree.branching": 8,
    "tree.beam_width": 60,
    "choose.validation_users": 40,
}


class SumOfTwo(Term):
    """`12 - t` for nodes with an item of the t-th following group, t = 1..7."""

    name, by_node = "sum_of_two", ("holds", "group")

    def arrays(self, shape, history_length):
        return {
            "holds": np.zeros((shape.num_nodes, GROUPS), np.float32),
            "group": np.full((shape.num_nodes, 1), -1, np.int64),
        }

    def start(self, held, counted):
        shape, tree = counted.tree.shape, counted.tree
        held["group"][shape.level_offset(shape.depth) + tree.leaf_of_item, 0] = GROUP_OF_ITEM
        for level in range(1, shape.depth + 1):
            nodes = shape.level_offset(level) + tree.leaf_of_item // shape.leaves_below(level)
            held["holds"][nodes, GROUP_OF_ITEM] = 1

    def score(self, held, query):
        shape, xp = query.shape, array_namespace(query.leaves)
        last_B2 = query.leaves[:, -2:]
        group_B2 = rows_of(held["group"][:, 0], xp.clip(last_B2, 0, None) + shape.level_offset(shape.depth))
        first_B, second_B = group_B2[:, 0], group_B2[:, 1]
        known_B1 = xp.all(last_B2 >= 0, axis=1)[:, None]
        nodes = xp.arange(query.size)[None, :] if query.nodes is None else query.nodes
        row_BM, best_BM, flat = (nodes + query.offset) * GROUPS, 0.0, held["holds"].reshape(-1)
        for ahead in range(1, AHEAD + 1):
            first_B, second_B = second_B, (first_B + second_B) % GROUPS
            held_BM = rows_of(flat, row_BM + xp.clip(second_B, 0, None)[:, None])
            best_BM = xp.maximum((12.0 - ahead) * held_BM, best_BM + 0 * held_BM)
        return xp.where(known_B1, best_BM, 0 * best_BM)


def market(num_users):
    """A log in which every user starts with two items of random groups."""
    rng, rows = np.random.default_rng(4), []
    members = [np.flatnonzero(group == GROUP_OF_ITEM) for group in range(GROUPS)]
    for user in range(num_users):
        items = list(rng.integers(0, len(GROUP_OF_ITEM), 2))
        while len(items) < 20:
            items.append(rng.choice(members[(GROUP_OF_ITEM[items[-1]] + GROUP_OF_ITEM[items[-2]]) % GROUPS]))
        rows += [(user, int(item), step) for step, item in enumerate(items)]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")


@pytest.mark.filterwarnings("ignore:.*numpy")
def test_a_fit_detects_that_no_head_can_steer(monkeypatch, tmp_path):
    monkeypatch.setattr(light_stage, "_HISTORIES", 400)
    split = disjoint_users(Dataset.from_log(read_log(market(600))))
    told, dtr = [], load_method("dtr")
    monkeypatch.setattr(
        light_stage, "choose_ways", lambda *args, **more: told.append(choose_ways(*args, **more)) or told[-1]
    )
    method = replace(
        dtr, fit=partial(dtr.fit, terms=(SumOfTwo(),)), searchers={TreeSearcher.kind: searcher_with(SumOfTwo())}
    )
    retriever = method.fitted(split, dtr.Config(**SETTINGS), progress=False)

    tried, search, searcher = told[0].facts()["curve"], retriever.metadata["search"], retriever.searcher
    full = tried[-1]["metric"]
    assert full > 0.3, "the scorer should have the rule"
    steered = [point["metric"] for point in tried if point["kind"] != "beam"]
    assert len(steered) >= 5
    assert max(steered) < 0.5 * full, "a head should not have learned the rule"
    # The cheapest acceptable way is a beam scored by the scorer on each level; no other kind remains.
    assert {point["kind"] for point in search["curve"]} == {"beam"}
    chosen = search["curve"][search["chosen"]]
    assert chosen["metric"] >= (1 - KEPT) * full
    assert chosen["lowest"] >= -KEPT_LEVEL
    assert searcher.ways.default == Way("beam", search["beam_width"])
    assert searcher.weights.light is None
    assert "left out" in retriever.metadata["training"]["light_head"]
    found, best = (
        evaluate_view(searcher, split.test, ks=(20,), remove_seen=False, options=SearchOptions(effort=effort))
        for effort in (None, 1.0)
    )
    assert found.means()["f@20"] >= 0.99 * best.means()["f@20"]
    assert found.scored <= best.scored

    retriever.save(tmp_path / "fit")
    assert beamwood.load(tmp_path / "fit", method=method).searcher.ways == searcher.ways
