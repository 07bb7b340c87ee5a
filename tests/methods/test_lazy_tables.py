"""With lazy Adam a method has the same gradients, with sparse rows for its tables."""

import numpy as np
import pytest
import torch

from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.fitting.ranking.lists import GuidedTask, ListTask
from beamwood.fitting.ranking.two_stage import StagesTask
from beamwood.fitting.tree.dtr import make_objective
from beamwood.fitting.tree.objective import TreeObjective
from beamwood.fitting.tree.task import TreeTask
from beamwood.fitting.vectors.preference import PreferenceTask
from beamwood.fitting.vectors.sequence import SequenceTask
from beamwood.fitting.vectors.towers import TwoTowerTask
from beamwood.losses.levels import LEVEL_LOSSES
from beamwood.methods import dtr, gru4rec, load_method, lpo4rec, ranker, sasrec, tdm, two_stage, two_tower
from beamwood.sampling.levels import DistinctNegatives
from plans import SMALL_TREE, planned
from prepared import Prepared

NUM_ITEMS = 90
COLUMN = ("category",)
CASES = [
    (dtr, {"loss.num_negatives": 10}),
    (dtr, {"loss.num_negatives": 10, "model.unit_coordinate": False}),
    (dtr, {"loss.num_negatives": 10, "loss.negatives": "tree", "model.recompute": True}),
    (tdm, {"loss.num_negatives": 5}),
    (sasrec, {"loss.sampled_negatives": 20}),
    (gru4rec, {"loss.sampled_negatives": 20, "model.tied": False}),
    (lpo4rec, {"loss.sampled_negatives": 20, "loss.pi": "logit", "loss.num_negatives": 3}),
    (two_tower, {"model.user_tower": "mf", "loss.negatives": "bir"}),
    (two_tower, {"model.user_tower": "mf", "loss.negatives": "full"}),
    (two_tower, {"model.user_tower": "mean", "loss.negatives": "xir", "model.item_columns": COLUMN}),
    (two_tower, {"model.user_tower": "sasrec", "loss.negatives": "ssl-pop"}),
    (ranker, {"loss.kind": "logistic", "model.graph": True, "model.item_columns": COLUMN}),
    (ranker, {"loss.kind": "bpr", "model.kind": "neumf"}),
    (ranker, {"loss.kind": "guided", "model.kind": "din", "model.width": 8}),
    (None, {"model.kind": "din", "model.width": 8}),
]


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=60, num_items=NUM_ITEMS, min_events=10, max_events=20), seed=1)
    return leave_one_out(Dataset.from_log(read_log(market.log), market.item_frame))


def task_of(split, method, options):
    if method is None:
        config = two_stage.Config(**{"examples.max_examples": 50} | options)
        return Prepared(
            StagesTask(split.train, planned(config, split.train), load_method("cooccurrence").fitted(split).searcher),
            seed=0,
        )
    if method in (sasrec, gru4rec, lpo4rec, two_tower):
        config = method.Config(**{"model.width": 8, "model.dropout": 0.0}, **options)
        if method is two_tower:
            return Prepared(TwoTowerTask(split.train, planned(config, split.train)), seed=0)
        if method is lpo4rec:
            return Prepared(PreferenceTask(split, planned(config, split.train)), seed=0)
        return Prepared(SequenceTask(split.train, planned(config, split.train)), seed=0)
    if method is ranker:
        config = planned(ranker.Config(**options), split.train)
        return Prepared((GuidedTask if config.loss.kind == "guided" else ListTask)(split.train, config), seed=0)
    config = method.Config(**SMALL_TREE, **{"tree.branching": 4, "tree.start": "random"}, **options)
    config = planned(config, split.train)

    def objective(tree):
        if method is dtr:
            return make_objective(config, tree, None)
        return TreeObjective(
            DistinctNegatives([config.loss.num_negatives] * tree.shape.depth), loss=LEVEL_LOSSES["binary"]
        )

    return Prepared(TreeTask(split, config, objective), seed=0)


def gradients(task):
    """The gradients of a batch's loss."""
    batch = task.batch(np.arange(12))
    if isinstance(task.task, GuidedTask):
        scores = task.ranker(batch.query, batch.items_BK)
        scores.square().sum().backward()
    else:
        task.loss(batch).mean().backward()
    return {name: parameter.grad for name, parameter in task.model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(("method", "options"), CASES)
def test_the_gradients_are_the_same_and_the_tables_sparse(split, method, options):
    dense = gradients(task_of(split, method, options | {"optimiser.embeddings": "adam"}))
    lazy = gradients(task_of(split, method, options | {"optimiser.embeddings": "lazy-adam"}))
    assert not any(gradient.is_sparse for gradient in dense.values())
    assert any(gradient.is_sparse for gradient in lazy.values())
    assert dense.keys() == lazy.keys()
    for name, gradient in dense.items():
        given = lazy[name].to_dense() if lazy[name].is_sparse else lazy[name]
        torch.testing.assert_close(given, gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("method", "options"), CASES)
def test_a_step_changes_only_used_rows(split, method, options):
    task = task_of(split, method, options | {"optimiser.embeddings": "lazy-adam"})
    used = {
        name: gradient.coalesce().indices()[0]
        for name, gradient in gradients(task_of(split, method, options | {"optimiser.embeddings": "lazy-adam"})).items()
        if gradient.is_sparse
    }
    before = {name: parameter.detach().clone() for name, parameter in task.model.named_parameters()}
    task.step(np.arange(12), number=1)
    for name, parameter in task.model.named_parameters():
        moved = (parameter != before[name]).flatten(1).any(dim=1) if parameter.ndim > 1 else parameter != before[name]
        if name in used:
            assert set(moved.nonzero()[:, 0].tolist()) <= set(used[name].tolist())
            assert moved.any()
