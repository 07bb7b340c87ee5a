"""The contract of trained methods for every tree retriever, and the effects of tree updates."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.errors import InputError
from beamwood.fitting.stages import two_stage
from beamwood.fitting.tree.task import TreeTask
from beamwood.fitting.tree.update import TreeUpdate
from beamwood.methods import load_method
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.training.budget import Budget
from beamwood.training.interrupt import Interrupted
from beamwood.training.run_folder import RunFolder
from beamwood.types import Query
from one_view import evaluate_view
from plans import SMALL_TREE, planned
from prepared import Prepared
from resumed import assert_same_arrays, whole_as_in_parts
from tree_cases import SHORT, configured, first_tree, market_split

VARIANTS = [
    ("dtr", {"loss.negatives": "uniform"}),
    ("dtr", {"optimiser.embeddings": "lazy-adam", "optimiser.amsgrad": True, "model.num_neighbours": 9}),
    ("dtr", {"loss.negatives": "tree", "loss.num_negatives": 20}),
    (
        "dtr",
        {
            "loss.negatives": "tree",
            "loss.num_negatives": 20,
            "loss.labels": "rectified",
            "loss.estimator": "transitions",
        },
    ),
    ("dtr", {"loss.labels": "rectified", "loss.estimator": "popularity", "loss.normalised": True}),
    (
        "dtr",
        {"loss.labels": "one-step", "loss.estimator": "cooccurrence", "examples.num_targets": 1, "examples.horizon": 1},
    ),
    ("tdm", {"loss.num_negatives": 6, "examples.num_targets": 1, "examples.horizon": 1}),
    ("jtm", {}),
    ("otm", {"loss.num_candidates": 64, "model.num_neighbours": 9}),
    ("plt", {}),
    ("din", {"loss.num_negatives": 30}),
]


@pytest.fixture(scope="module")
def split():
    return market_split(300)


@pytest.fixture(scope="module")
def large_split():
    return market_split(2000)


def f20(retriever, queries):
    return evaluate_view(retriever.searcher, queries, ks=(20,), remove_seen=True).means()["f@20"]


@pytest.mark.parametrize(("method", "changes"), VARIANTS)
def test_a_short_training_trains_saves_and_loads(split, tmp_path, method, changes):
    """Answers are equal after loading."""
    updates = {"tree.updates": 2, "tree.max_instances": 2} if method != "din" and method != "plt" else {}
    whole = load_method(method).fitted(split, configured(method, changes, **SHORT, **updates), progress=False)
    assert whole.metadata["method"] == method
    assert whole.metadata["training"].get("tree_updates", 0) == updates.get("tree.updates", 0)
    whole.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    query = Query.of(split.test.histories)
    assert np.array_equal(loaded.searcher.search(query, 9).items, whole.searcher.search(query, 9).items)
    one = loaded.searcher.search(query.take([3]), 9).items
    assert np.array_equal(one[0], loaded.searcher.search(query, 9).items[3])


@pytest.mark.parametrize(("method", "changes"), VARIANTS)
def test_a_resumed_training_equals_an_uninterrupted_one(split, tmp_path, method, changes):
    """Bit for bit. The steps of tree updates depend on the length of the run, so they have a separate test."""
    config = configured(method, changes, **SHORT, **{"tree.updates": 0})
    whole_as_in_parts(load_method(method), split, config, tmp_path)


@pytest.mark.parametrize(("name", "learner"), [("tdm", "kmeans"), ("jtm", "binary")])
def test_tdm_and_jtm_learn_their_trees_by_default(split, tmp_path, name, learner):
    """They differ in how the tree is learned, so it is learned by default."""
    run, config = RunFolder(tmp_path / name), configured(name, {}, **SHORT)
    fitted = load_method(name).fitted(split, config, run=run, progress=False)
    assert (config.tree.learner, fitted.metadata["training"]["tree_updates"]) == (learner, 1)
    assert max(json.loads(line).get("moved_items", 0) for line in run.metrics_path.open()) > 0.1


def test_a_catalogue_without_levels_needs_no_update(split):
    flat = configured("jtm", {"tree.branching": 128}, **SHORT)
    fit = load_method("jtm").fitted
    assert fit(split, flat, progress=False).metadata["training"]["tree_updates"] == 0
    asked = configured("jtm", {"tree.branching": 128, "tree.updates": 1}, **SHORT)
    with pytest.raises(InputError, match="needs a tree of two levels"):
        fit(split, asked, progress=False)


@pytest.mark.parametrize(
    ("method", "changes"),
    [pytest.param(*variant, marks=() if variant[0] in ("plt", "din") else pytest.mark.slow) for variant in VARIANTS],
)
def test_learns_the_market(large_split, method, changes):
    split = large_split
    config = configured(
        method,
        changes,
        **{
            "loop.max_steps": 500,
            "loop.evaluate_every": 100,
            "optimiser.warmup_steps": 20,
            "loop.batch_size": 128,
            "optimiser.learning_rate": 0.01,
        },
        # The groups of the planted market.
        **({} if method == "din" else {"tree.start": "category"}),
    )
    retriever = load_method(method).fitted(split, config, progress=False)
    popular = load_method("popularity").fitted(split)
    # A smoke test; quality is measured in the benchmarks.
    assert f20(retriever, split.test) > f20(popular, split.test) + 0.01


def interrupted_task(split, learner, **changes):
    config = configured("dtr", {"tree.learner": learner, "tree.updates": 3, "tree.max_instances": 3} | changes)
    config = planned(config, split.train)
    from beamwood.fitting.tree.dtr import make_objective

    task = Prepared(TreeTask(split, config, lambda tree: make_objective(config, tree, None)), seed=0)
    task.loss(task.batch(np.arange(8))).backward()
    task.optimisers.each[0].step()
    return task


@pytest.mark.parametrize("learner", ["softmax", "binary", "kmeans"])
def test_a_resumed_run_with_updates_equals_an_uninterrupted_one(split, tmp_path, learner, monkeypatch):
    config = configured(
        "dtr",
        {
            "tree.learner": learner,
            "tree.updates": 2,
            "model.num_neighbours": 9 if learner == "kmeans" else 0,
            "tree.max_instances": 2,
            "loop.max_steps": 9,
            "loop.evaluate_every": 4,
            "optimiser.embeddings": "lazy-adam" if learner == "binary" else "adam",
            "choose.validation_users": 10,
            "loop.batch_size": 16,
            "optimiser.warmup_steps": 2,
        },
    )
    fit = load_method("dtr").fitted
    whole = fit(split, config, run=RunFolder(tmp_path / "whole"), progress=False)
    calls = iter(range(100))
    propose = TreeUpdate.propose

    def stop_at_the_second(self, number, budget):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return propose(self, number, budget)

    monkeypatch.setattr(TreeUpdate, "propose", stop_at_the_second)
    with pytest.raises(Interrupted):
        fit(split, config, run=RunFolder(tmp_path / "parts"), progress=False)
    resumed = fit(split, config, run=RunFolder(tmp_path / "parts"), resume=True, progress=False)
    assert_same_arrays(whole, resumed)
    logs = [
        [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in path.open()]
        for path in (tmp_path / "whole" / "metrics.jsonl", tmp_path / "parts" / "metrics.jsonl")
    ]
    assert logs[0] == logs[1]
    assert sum("metric_before" in line for line in logs[0]) == 2


@pytest.mark.parametrize("learner", ["softmax", "kmeans"])
def test_embeddings_that_move_with_items_keep_every_leaf_score(split, learner):
    task = interrupted_task(split, learner, **{"tree.embeddings": "item"})
    histories = split.test.histories.last(15)
    rows = np.arange(split.train.num_items)[None].repeat(len(histories), 0)

    def leaf_scores():
        tree, shape = task.tree, task.tree.shape
        leaves = torch.from_numpy(tree.leaves_of(histories.padded(15)).astype(np.int64))
        nodes = torch.from_numpy(tree.leaves_of(rows).astype(np.int64))
        return task.model.scorer.evaluate(leaves, LevelNodes(shape.depth, nodes))

    before = leaf_scores()
    facts = task.update.apply(task.update.propose(0, Budget()), task.optimisers.each)
    assert facts["moved_items"] > 0.1
    assert torch.allclose(leaf_scores(), before, atol=1e-5)


def test_an_update_can_be_undone(split):
    task = interrupted_task(split, "softmax", **{"tree.embeddings": "item", "tree.rollback": True})
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    moments = task.optimisers.each[0].state[task.model.scorer.nodes.weight]["exp_avg"].clone()
    tree = task.tree
    task.update.apply(task.update.propose(0, Budget()), task.optimisers.each)
    assert not np.array_equal(task.tree.item_of_leaf, tree.item_of_leaf)
    assert not task.update.keeps_worse
    task.update.undo(task.optimisers.each)
    assert np.array_equal(task.tree.item_of_leaf, tree.item_of_leaf)
    assert all(torch.equal(before[name], value) for name, value in task.model.state_dict().items())
    assert torch.equal(task.optimisers.each[0].state[task.model.scorer.nodes.weight]["exp_avg"], moments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tree.start": "categry"}, "did you mean 'category'"),
        ({"tree.start": "kmeans"}, "needs tree.vectors=FOLDER"),
        ({"loss.labels": "rectified", "loss.estimator": "transition"}, "did you mean 'transitions'"),
        ({"choose.monitor": "xyz"}, "choose.monitor='xyz' is not measured"),
        ({"choose.monitor": ""}, "choose.monitor='' is not measured"),
        (
            {"loss.labels": "one-step", "loss.normalised": True},
            "loss.normalised is for loss.labels=rectified, not one-step",
        ),
        ({"model.mlp": []}, "model.mlp=.*one value or more"),
        (
            {"model.mlp": [8, 0]},
            "mlp has 0: give a list of one value or more, each a whole number from 1 and below 16384",
        ),
        ({"model.windows": []}, "model.windows=.*one value or more"),
        # It could be saved but not loaded.
        ({"tree.beam_width": 2**31}, "tree.beam_width=2147483648: give a whole number from"),
        (
            {"model.windows": [2, 1], "examples.min_history": 4},
            "examples.min_history=4 is above 3, the sum of model.windows",
        ),
    ],
)
def test_wrong_settings_are_refused(split, changes, message):
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, "dtr", SMALL_TREE | changes, progress=False)


@pytest.mark.parametrize(
    ("method", "changes"), [("otm", {}), ("jtm", {"tree.updates": 1}), ("dtr", {"tree.updates": 1})]
)
def test_labels_and_updates_exclude_the_users_own_steps(split, monkeypatch, method, changes):
    """As the trained scores do: counts that include the user's own steps would be overfitted."""
    folds, plain = [], DinScorer.evaluate

    def evaluate(self, leaves_BL, entry, folds_B=None):
        folds.append(None if folds_B is None else len(folds_B) == len(leaves_BL))
        return plain(self, leaves_BL, entry, folds_B)

    monkeypatch.setattr(DinScorer, "evaluate", evaluate)
    beamwood.fit(split, method, SMALL_TREE | SHORT | {"model.num_neighbours": 8} | changes, progress=False)
    assert folds
    assert all(folds)


def test_a_model_can_start_from_the_tree_of_another(split, tmp_path):
    short = {"loop.max_steps": 2, "loop.evaluate_every": 2, "loop.batch_size": 8, "choose.validation_users": 5}
    first = load_method("jtm").fitted(split, configured("jtm", short), progress=False)
    counted = load_method("popularity").fitted(split)
    counted.save(tmp_path / "counted")
    # The tree of a sum is that of its part.
    two_stage(first, counted).save(tmp_path / "jtm")
    config = configured("otm", short | {"tree.start": str(tmp_path / "jtm"), "loss.num_candidates": 8})
    second = load_method("otm").fitted(split, config, progress=False)
    assert np.array_equal(second.searcher.tree.item_of_leaf, first.searcher.tree.item_of_leaf)
    vectors = {"tree.start": "kmeans", "tree.vectors": str(tmp_path / "counted")}
    with pytest.raises(InputError, match=r"tree\.vectors='.*counted' holds popularity, which has no item vectors"):
        load_method("otm").fitted(split, configured("otm", short | vectors), progress=False)


@pytest.mark.parametrize("start", ["pifa", "category", "random"])
def test_starts_build_trees_of_all_items(split, start):
    config = planned(configured("dtr", {"tree.start": start}), split.train)
    tree = first_tree(split, config, np.random.default_rng(0))
    assert sorted(tree.item_of_leaf[tree.item_of_leaf >= 0]) == list(range(split.train.num_items))


def test_a_start_from_categories_needs_them(split):
    bare = replace(split, train=replace(split.train, item_table=None))
    with pytest.raises(InputError, match=r"use tree\.start=pifa"):
        first_tree(bare, planned(configured("dtr", {"tree.start": "category"}), bare.train), np.random.default_rng(0))


def test_items_of_one_taste_start_in_adjacent_leaves(split):
    """With histories of only even or only odd items, k-means on histories separates them at the root."""
    rng = np.random.default_rng(5)
    rows = [(u, 2 * int(i) + u % 2, t) for u in range(80) for t, i in enumerate(rng.permutation(16)[:10])]
    log = read_log(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    train = Dataset.from_log(log)
    none = split.test.take(np.empty(0, int))
    bare = replace(split, dataset=train, train=train, valid=none, test=none)
    tree = first_tree(bare, planned(configured("dtr", {"tree.branching": 2}), train), rng)
    odd = np.array([int(i) % 2 for i in train.items.ids])
    half = tree.leaf_of_item >= tree.shape.capacity // 2
    assert (half == odd[0]).tolist() in [(odd == 0).tolist(), (odd == 1).tolist()]


def test_models_of_another_split_are_refused(split, tmp_path):
    """A folder fitted on another split may have been trained on this split's test users."""
    other = disjoint_users(split.dataset, seed=1)
    for name, config in (
        ("jtm", configured("jtm", SHORT)),
        ("sasrec", load_method("sasrec").Config(**{"model.width": 8, "loop.max_steps": 2})),
    ):
        load_method(name).fitted(other, config, progress=False).save(tmp_path / name)
    tree, sequence = str(tmp_path / "jtm"), str(tmp_path / "sasrec")
    attempts = [
        ("dtr", configured("dtr", {"tree.start": tree})),
        ("dtr", configured("dtr", {"tree.start": "kmeans", "tree.vectors": sequence})),
        ("dtr", configured("dtr", {"loss.labels": "rectified", "loss.estimator": sequence})),
        ("lpo4rec", load_method("lpo4rec").Config(**{"model.width": 8, "start.folder": sequence})),
        ("melt", load_method("melt").Config(**{"start.folder": sequence})),
        ("cities", load_method("cities").Config(**{"start.folder": sequence})),
    ]
    for method, config in attempts:
        with pytest.raises(InputError, match="fitted on another split"):
            load_method(method).fitted(split, config, progress=False)
