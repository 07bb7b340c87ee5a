"""With lazy Adam a method learns from the same gradients, those of its tables given by row."""

import numpy as np
import pytest
import torch

from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.synthetic import MarketConfig, make_market
from beamwood.fitting.ranking import lists as ranker
from beamwood.fitting.ranking.two_stage import Config as TwoStageConfig
from beamwood.fitting.ranking.two_stage import RetrievedTask
from beamwood.fitting.tree.task import Parts, TreeTask
from beamwood.fitting.vectors import sequence as sasrec
from beamwood.fitting.vectors import towers as two_tower
from beamwood.methods import dtr, tdm
from beamwood.methods.cooccurrence import fit as fit_cooccurrence
from beamwood.sampling.levels import DistinctNegatives
from beamwood.training.step import train_step
from beamwood.tree import random_tree

NUM_ITEMS = 90
TREE = {"width": 8, "attention_hidden": 8, "windows": (8, 4, 2, 1), "mlp": (16, 8), "min_history": 2, "bf16": False}
COLUMN = ("category",)
CASES = [
    (dtr, {"num_negatives": 10}),
    (dtr, {"num_negatives": 10, "unit_coordinate": False}),
    (dtr, {"num_negatives": 10, "negatives": "tree", "recompute": True}),
    (tdm, {"num_negatives": 5}),
    (sasrec, {"sampled_negatives": 20}),
    (sasrec, {"sampled_negatives": 20, "tied": False, "prior_power": 0.5, "encoder": "gru4rec"}),
    (two_tower, {"user_tower": "mf", "negatives": "bir"}),
    (two_tower, {"user_tower": "mf", "negatives": "full"}),
    (two_tower, {"user_tower": "mean", "negatives": "xir", "item_columns": COLUMN}),
    (two_tower, {"user_tower": "sasrec", "negatives": "ssl-pop"}),
    (ranker, {"loss": "logistic", "graph": True, "item_columns": COLUMN}),
    (ranker, {"loss": "bpr", "model": "neumf"}),
    (ranker, {"loss": "guided", "model": "din", "width": 8}),
    (None, {"model": "din", "width": 8}),
]


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=60, num_items=NUM_ITEMS, min_events=10, max_events=20), seed=1)
    return leave_one_out(Dataset.from_log(read_log(market.log), market.item_frame))


def task_of(split, method, options):
    if method is None:
        config = TwoStageConfig(**{"max_examples": 50} | options)
        return RetrievedTask(split.train, config, fit_cooccurrence(split).searcher, seed=0)
    if method is sasrec:
        return sasrec.SequenceTask(split.train, sasrec.Config(width=8, dropout=0.0, **options), seed=0)
    if method is two_tower:
        return two_tower.TwoTowerTask(split.train, two_tower.Config(width=8, dropout=0.0, **options), seed=0)
    if method is ranker:
        config = ranker.Config(**options)
        return (ranker.GuidedTask if config.loss == "guided" else ranker.ListTask)(split.train, config, seed=0)
    config = method.Config(**TREE, **options)
    tree = random_tree(NUM_ITEMS, np.random.default_rng(0), branching=4)
    if method is dtr:
        parts = dtr.make_parts(config, tree, None)
    else:
        parts = Parts(DistinctNegatives([config.num_negatives] * tree.shape.depth), loss="binary")
    return TreeTask(split.train, tree, config, parts, seed=0)


def gradients(task):
    """Those of the model that a batch's loss moves."""
    batch = task.batch(np.arange(12))
    if isinstance(task, ranker.GuidedTask):
        scores = task.ranker(batch.asked, batch.items_BK)
        scores.square().sum().backward()
    else:
        task.loss(batch).mean().backward()
    return {name: parameter.grad for name, parameter in task.model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(("method", "options"), CASES)
def test_the_gradients_are_the_same_and_the_tables_sparse(split, method, options):
    dense = gradients(task_of(split, method, options | {"embedding_optimizer": "adam"}))
    lazy = gradients(task_of(split, method, options | {"embedding_optimizer": "lazy-adam"}))
    assert not any(gradient.is_sparse for gradient in dense.values())
    assert any(gradient.is_sparse for gradient in lazy.values())
    assert dense.keys() == lazy.keys()
    for name, gradient in dense.items():
        given = lazy[name].to_dense() if lazy[name].is_sparse else lazy[name]
        torch.testing.assert_close(given, gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("method", "options"), CASES)
def test_a_step_moves_only_what_it_used(split, method, options):
    task = task_of(split, method, options | {"embedding_optimizer": "lazy-adam"})
    used = {
        name: gradient.coalesce().indices()[0]
        for name, gradient in gradients(task_of(split, method, options | {"embedding_optimizer": "lazy-adam"})).items()
        if gradient.is_sparse
    }
    before = {name: parameter.detach().clone() for name, parameter in task.model.named_parameters()}
    if isinstance(task, ranker.GuidedTask):
        task.update(task.batch(np.arange(12)), step=1, clip_norm=None)
    else:
        train_step(task.loss, [task.batch(np.arange(12))], task.model, task.optimizers, step=1)
    for name, parameter in task.model.named_parameters():
        moved = (parameter != before[name]).flatten(1).any(dim=1) if parameter.ndim > 1 else parameter != before[name]
        if name in used:
            assert set(moved.nonzero()[:, 0].tolist()) <= set(used[name].tolist())
            assert moved.any()
