"""DTR learns the planted market, resumes exactly, and its options have the documented effect."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.tree import task as tree_task
from beamwood.fitting.tree.dtr import make_objective
from beamwood.fitting.tree.task import TreeTask
from beamwood.losses.softmax import full_softmax
from beamwood.methods import load_method
from beamwood.methods.dtr import METHOD, Config
from beamwood.models.din import LevelNodes
from beamwood.tree import Shape
from one_view import evaluate_view
from plans import SMALL_TREE, planned
from prepared import Prepared
from resumed import whole_as_in_parts

fit = METHOD.fitted
SMALL = SMALL_TREE | {"model.dropout": 0.0}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=400, num_items=90, min_events=20, max_events=60), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


def make_task(split, **changes):
    config = planned(Config(**(SMALL | changes)), split.train)
    return Prepared(TreeTask(split, config, lambda tree: make_objective(config, tree, None)), seed=0)


def f20(retriever, queries):
    return evaluate_view(retriever.searcher, queries, ks=(20,), remove_seen=False).means()["f@20"]


def test_learns_the_market(split):
    config = Config(
        **SMALL,
        **{
            "loop.max_steps": 600,
            "loop.evaluate_every": 200,
            "optimiser.warmup_steps": 20,
            "loop.batch_size": 128,
            "optimiser.learning_rate": 0.01,
            "loss.num_negatives": 30,
        },
    )
    retriever = fit(split, config, progress=False)
    popular = load_method("popularity").fitted(split)
    assert f20(retriever, split.test) > f20(popular, split.test) + 0.03


def test_targets_of_the_paper_are_the_next_items(split):
    task = make_task(split, **{"examples.num_targets": 1, "examples.horizon": 1})
    rows = np.arange(20)
    batch = task.task.batch_of(rows, task.rng)
    assert np.array_equal(batch.targets_BT[:, 0], task.tree.leaf_of_item[task.examples.targets(rows)])
    histories = task.examples.histories(rows).padded(15)
    assert np.array_equal(batch.leaves_BL, task.tree.leaves_of(histories))


def test_users_have_equal_weight_unless_positions_do(split):
    """An epoch has each user once, at a random position; with positions, as in the paper, each position once."""
    lengths = split.train.histories.lengths
    task = make_task(split, **{"examples.num_targets": 1, "examples.horizon": 1, "examples.min_history": 1})
    assert task.num_examples == np.count_nonzero(lengths > 1)
    users = np.flatnonzero(lengths > 1)
    drawn = [task.batch(np.arange(task.num_examples)) for _ in range(200)]
    histories, tree = split.train.histories, task.tree
    for row in (0, 7, task.num_examples - 1):
        items = histories.items[histories.indptr[users[row]] : histories.indptr[users[row] + 1]]
        lengths_seen = [int((batch.leaves_BL[row] >= 0).sum()) for batch in drawn]
        # Within the length of the window, positions cannot be distinguished.
        seen = np.bincount(lengths_seen, minlength=16)[1 : min(len(items), 15)]
        expected = 200 / (len(items) - 1)
        assert (np.abs(seen - expected) < 5 * np.sqrt(expected)).all()
        for batch, length in zip(drawn, lengths_seen, strict=True):
            if length < 15:
                assert batch.targets_BT[row, 0] == tree.leaf_of_item[items[length]]
    every = make_task(
        split,
        **{"examples.num_targets": 1, "examples.horizon": 1, "examples.min_history": 1, "examples.of": "positions"},
    )
    assert every.num_examples == len(every.examples) == np.maximum(lengths - 1, 0).sum()
    rows = np.arange(every.num_examples)
    assert np.array_equal(every.batch(rows).targets_BT[:, 0], every.tree.leaf_of_item[every.examples.targets(rows)])


@pytest.mark.parametrize(("setting", "able", "runs"), [(None, True, True), (None, False, False), (True, False, True)])
def test_bfloat16_is_the_default_only_on_processors_that_have_it(split, monkeypatch, setting, able, runs):
    monkeypatch.setattr(tree_task, "has_bfloat16", lambda: able)
    assert make_task(split, **{"optimiser.bf16": setting}).bf16 is runs


def test_targets_stay_within_the_horizon_and_the_user(split):
    task = make_task(split, **{"examples.num_targets": 6, "examples.horizon": 3})
    rows = np.arange(len(task.examples))[-300:]
    items = task.tree.item_of_leaf[task.task.batch_of(rows, task.rng).targets_BT.numpy()]
    histories = split.train.histories
    for row, drawn in zip(rows, items, strict=True):
        stop = task.examples.stop[row]
        end = min(stop + 3, histories.indptr[task.examples.users[row] + 1])
        assert set(drawn) <= set(histories.items[stop:end])


def test_the_last_window_alone_has_the_users_last_item_as_its_target(split):
    """DTR, section 6.1, on the papers' complete tree."""
    one = {"examples.num_targets": 1, "examples.horizon": 1, "examples.window": "last"}
    config = planned(Config(**SMALL, **one, **{"tree.branching": 2, "tree.shape": "complete"}), split.train)
    task = Prepared(TreeTask(split, config, lambda tree: make_objective(config, tree, None)), seed=0)
    tree = task.tree
    assert tree.shape == Shape(2, 2, 7)
    histories, rows = split.train.histories, np.arange(task.num_examples)
    users = np.flatnonzero(histories.lengths > 2)
    assert np.array_equal(task.examples.users, users)
    last = histories.items[histories.indptr[users + 1] - 1]
    assert np.array_equal(tree.item_of_leaf[task.batch(rows).targets_BT[:, 0].numpy()], last)
    assert task.loss(task.batch(rows[:9])) > 0


def test_sampled_loss_estimates_the_full_one(split):
    """With very many negatives a level's sampled loss is the softmax over all its live nodes."""
    # Scores initialised from counts vary too much for this number of negatives.
    drawn = {"start.scores": "random", "loss.num_negatives": 60}
    task = make_task(split, **drawn, **{"tree.branching": 2, "examples.num_targets": 2})
    task.model.eval()
    batch = task.batch(np.arange(8))
    with torch.no_grad():
        shape = task.tree.shape
        everything = task.model.scorer(
            batch.leaves_BL, [LevelNodes(level, None) for level in range(1, shape.depth + 1)], batch.folds_B
        )
        expected = []
        for level, scores in enumerate(everything, start=1):
            live = torch.from_numpy(task.tree.live_counts[level] > 0)
            targets = batch.targets_BT // shape.leaves_below(level)
            expected.append(full_softmax(scores.masked_fill(~live, -torch.inf), targets).mean())
        exact = torch.stack(expected).mean().item()
        draws = [task.loss(task.task.draw(batch, task.rng)).item() for _ in range(200)]
    assert abs(np.mean(draws) - exact) < 4 * np.std(draws) / np.sqrt(200) + 0.01


def test_loss_reduction_and_depth_alpha(split):
    mean, total = make_task(split), make_task(split, **{"loss.level_reduction": "sum"})
    batch = mean.batch(np.arange(5))
    total.batch(np.arange(5))
    with torch.no_grad():
        assert torch.allclose(total.loss(batch), mean.loss(batch) * mean.tree.shape.depth)
    deeper = make_task(split, **{"loss.depth_alpha": 1.0, "tree.branching": 2})
    counts = list(deeper.objective.sampler.counts)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_resume_equals_uninterrupted(split, tmp_path):
    config = Config(
        **(SMALL | {"model.dropout": 0.2}),
        **{
            "loop.max_steps": 8,
            "optimiser.decay_steps": 8,
            "optimiser.warmup_steps": 2,
            "loop.evaluate_every": 4,
            "loop.batch_size": 16,
            "choose.validation_users": 10,
        },
    )
    whole_as_in_parts(METHOD, split, config, tmp_path, steps=4)


def test_time_limit_keeps_the_best_so_far(split):
    config = Config(**SMALL, **{"loop.max_steps": 10**6, "loop.evaluate_every": 50, "choose.validation_users": 10})
    retriever = fit(split, config, time_limit=2.0, progress=False)
    assert retriever.metadata["training"]["stopped"] == "time_limit"
    assert len(retriever.recommend(users=[0], k=5).item_ids[0]) == 5


def test_wrong_configuration(split):
    with pytest.raises(InputError, match=r"examples.min_history=400"):
        make_task(split, **{"examples.min_history": 400, "model.windows": (500,)})
    short = replace(split, train=replace(split.train, histories=split.train.histories.last(1)))
    with pytest.raises(InputError, match="no user has two interactions"):
        make_task(short, **{"examples.min_history": 1})
    with pytest.raises(ValueError, match=r"'lerning_rate' is unknown; did you mean 'optimiser.learning_rate'"):
        Config(lerning_rate=1)
