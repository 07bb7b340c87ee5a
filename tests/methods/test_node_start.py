"""Trees and scorers initialised from transitions."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from pydantic import ValidationError

from beamwood import load
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.errors import InputError
from beamwood.fitting import plan
from beamwood.fitting.plan import Facts
from beamwood.fitting.tree import initial_scorer
from beamwood.fitting.tree.dtr import make_objective
from beamwood.fitting.tree.objective import TreeObjective
from beamwood.fitting.tree.task import TreeTask
from beamwood.fitting.vectors import item_start
from beamwood.kernels.terms import TermQuery
from beamwood.losses.levels import LEVEL_LOSSES
from beamwood.methods import load_method
from beamwood.methods.dtr import Config
from beamwood.models.din import LevelNodes
from beamwood.models.terms.neighbours import all_lists
from beamwood.sampling.levels import BeamCandidates, DistinctNegatives, LeafHistories
from beamwood.training.budget import Budget
from beamwood.training.run_folder import RunFolder
from beamwood.tree import random_tree
from beamwood.types import Query
from plans import planned
from prepared import Prepared
from tree_cases import first_tree

SMALL = {
    "tree.branching": 4,
    "model.width": 8,
    "model.attention_hidden": 8,
    "model.mlp": (16, 8),
    "model.windows": (4, 2, 1),
    "tree.beam_width": 8,
}


@pytest.fixture(scope="module")
def split():
    """Histories within one of five groups of 16 items."""
    rng = np.random.default_rng(0)
    rows = [(u, int(i) + 16 * (u % 5), t) for u in range(300) for t, i in enumerate(rng.permutation(16)[:10])]
    return disjoint_users(
        Dataset.from_log(read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row")))
    )


def started(split, start, seed=0, objective=None):
    """A training task with the named start or configuration."""
    config = start
    if isinstance(start, str):
        config = Config(**SMALL, **{"start.scores": start, "model.num_neighbours": None if start == "random" else 32})
    config = planned(config, split.train)
    return Prepared(TreeTask(split, config, lambda tree: objective or make_objective(config, tree, None)), seed=seed)


def lists_of(near):
    """The lists of a neighbour term; the first is over all users."""
    return all_lists({name: array.numpy() for name, array in near.held().items() if not array.requires_grad})


def right(split, task):
    """The share of ten answers in the user's group, before training."""
    group = np.array([int(i) // 16 for i in split.train.items.ids])
    histories = split.test.histories
    answers = task.searcher().search(Query.of(histories), 10).items
    own = group[histories.items[histories.indptr[:-1]]]
    return float((group[answers] == own[:, None]).mean())


def test_it_knows_groups_before_any_training(split):
    assert right(split, started(split, "transitions")) > 0.95
    assert right(split, started(split, "random")) < 0.5


def test_the_tree_puts_groups_in_adjacent_leaves(split):
    tree = started(split, "transitions").tree
    group = np.array([int(i) // 16 for i in split.train.items.ids])
    parents = tree.leaf_of_item // 4
    alike = np.mean([len(set(group[parents == parent])) == 1 for parent in np.unique(parents)])
    assert alike > 0.8


def test_a_parents_vector_has_the_direction_of_its_items(split):
    task = started(split, "transitions")
    shape, weight = task.tree.shape, task.model.scorer.nodes.weight.detach()
    leaves = torch.zeros(shape.capacity, 6)
    live = torch.from_numpy(task.tree.leaf_of_item.astype(np.int64))
    offset = shape.level_offset(shape.depth)
    leaves[live] = weight[offset + live, 2:]
    for level in range(1, shape.depth):
        first, size = shape.level_offset(level), shape.level_size(level)
        sums = leaves.view(size, -1, 6).sum(dim=1)
        expected = torch.nn.functional.normalize(sums, dim=1)
        some = sums.any(dim=1)
        torch.testing.assert_close(weight[first : first + size, 2:][some], expected[some])


def test_the_similarity_moves_with_the_items_to_another_tree(split):
    task = started(split, "transitions")
    vectors, before = task.model.scorer.terms["similarity"].vectors, task.tree
    shape = before.shape
    leaves = vectors[-shape.capacity :].clone()
    after = random_tree(before.num_items, np.random.default_rng(5), branching=shape.branching)
    assert after.shape == shape
    task.model.replace_tree(after)
    assert torch.equal(vectors[-shape.capacity :][after.leaf_of_item], leaves[before.leaf_of_item])
    empty = torch.ones(shape.capacity, dtype=torch.bool)
    empty[after.leaf_of_item] = False
    assert not vectors[-shape.capacity :][empty].any()
    sums = vectors[-shape.capacity :].view(shape.level_size(1), -1, vectors.shape[1]).sum(dim=1)
    torch.testing.assert_close(vectors[: shape.level_size(1)], torch.nn.functional.normalize(sums, dim=1))


def test_neighbours_move_with_the_items_to_another_tree(split):
    task = started(split, "transitions")
    near, before = task.model.scorer.terms["neighbours"], task.tree

    def of_items(tree):
        first = tree.shape.level_offset(tree.shape.depth)
        return [
            {int(tree.item_of_leaf[n]): x for n, x in zip(lists[leaf], chances[leaf], strict=True) if n >= 0}
            for lists, chances in ((own.leaves[first:], own.chances[first:]) for own in lists_of(near))
            for leaf in tree.leaf_of_item
        ]

    expected, group = of_items(before), np.array([int(i) // 16 for i in split.train.items.ids])
    assert all({group[other] for other in lists} == {group[item % 80]} for item, lists in enumerate(expected))
    assert all(len(lists) == 15 and item not in lists for item, lists in enumerate(expected[:80]))
    after = random_tree(before.num_items, np.random.default_rng(5), branching=before.shape.branching)
    task.model.replace_tree(after)
    got = of_items(after)
    for item, lists in enumerate(expected):
        assert got[item] == pytest.approx(lists, rel=1e-5)
    with torch.no_grad():
        near.gain.zero_()
    leaves = torch.from_numpy(after.leaf_of_item[None, :7].astype(np.int64))
    assert not near(TermQuery(after.shape, 1, leaves)).any()


def test_counts_exclude_the_trained_users_fold(split):
    task = started(split, "transitions")
    near, tree, train = task.model.scorer.terms["neighbours"], task.tree, split.train
    assert np.bincount(task.folds).min() > 40
    rows = np.arange(0, len(task.examples), 7)
    assert np.array_equal(task.task.batch_of(rows, task.rng).folds_B, task.folds[task.examples.users[rows]])
    first = tree.shape.level_offset(tree.shape.depth)
    assert np.isclose(near.shares[first:].sum(), 1)
    for fold, own in enumerate(lists_of(near)[1:]):
        others = train.histories.take(np.flatnonzero(task.folds != fold))
        counts = item_start.neighbour_matrix(replace(train, histories=others), power=0).toarray()
        shares = counts / counts.sum(axis=1, keepdims=True)
        for item, leaf in enumerate(tree.leaf_of_item):
            lists, chances = own.leaves[first + leaf], own.chances[first + leaf]
            kept = lists >= 0
            assert kept.sum() == np.count_nonzero(shares[item])
            np.testing.assert_allclose(chances[kept], shares[item, tree.item_of_leaf[lists[kept]]], rtol=1e-4)


def test_sampling_walks_exclude_the_same_folds_as_the_scores(split):
    """log q of a walk uses the scores without the users' own folds, as in training."""
    config = planned(Config(**SMALL, **{"loss.negatives": "tree"}), split.train)
    task = started(
        split, "transitions", objective=make_objective(config, random_tree(80, np.random.default_rng(0)), None)
    )
    scorer, tree, batch = task.model.scorer, task.tree, task.batch(np.arange(12))
    histories, generator = LeafHistories(batch.leaves_BL, batch.folds_B), torch.Generator().manual_seed(1)
    draws = task.objective.sampler(scorer, tree, histories, batch.targets_BT, generator)
    log_q = {}
    for folds_B in (batch.folds_B, None):
        path_Bn = torch.zeros(12, 1)
        for level in range(1, tree.shape.depth + 1):
            scores_Bn = scorer.level_scores(batch.leaves_BL, LevelNodes(level, None), folds_B)
            dead_n = torch.from_numpy(tree.live_counts[level] == 0)
            children_BnF = scores_Bn.masked_fill(dead_n, -torch.inf).view(12, path_Bn.shape[1], -1)
            path_Bn = (path_Bn[:, :, None] + torch.log_softmax(children_BnF, 2).nan_to_num(-torch.inf)).flatten(1)
        log_q[folds_B is None] = torch.gather(path_Bn, 1, draws[-1].nodes)
    torch.testing.assert_close(draws[-1].log_q, log_q[False], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(draws[-1].log_q, log_q[True], atol=1e-2)


def neighbours_of(num_items, mean_history, **config):
    return Config(**config).plan(Facts(1000, num_items, mean_history)).model.num_neighbours


def similarity_columns(num_items, **config):
    return Config(**config).plan(Facts(1000, num_items, 100.0)).model.similarity_width


def test_the_meaning_of_num_neighbours():
    assert neighbours_of(2**17, 8.0) == 128
    assert neighbours_of(200_000, 8.0) == 83
    assert neighbours_of(2_000_000, 8.0) == 8
    assert neighbours_of(200_000, 8.1) == 0
    assert neighbours_of(200_001, 8.1) == 83
    assert neighbours_of(200_000, 8.1, **{"model.num_neighbours": 5}) == 5
    assert neighbours_of(9, 3) == 9
    assert neighbours_of(80, 3, **{"model.num_neighbours": 0}) == 0
    many = plan.MAX_TRANSITION_ITEMS + 1
    assert neighbours_of(many, 3) == 0
    assert neighbours_of(many, 3, **{"model.num_neighbours": 7, "start.scores": "transitions"}) == 7
    with pytest.raises(InputError, match=r"num_neighbours=7 belongs to .* scores of 2,000,001 items"):
        neighbours_of(many, 3, **{"model.num_neighbours": 7})
    assert neighbours_of(80, 3, **{"start.scores": "random"}) == 0
    with pytest.raises(ValidationError, match=r"model.num_neighbours=7 belongs to a start from transitions"):
        Config(**{"model.num_neighbours": 7, "start.scores": "random"})


def test_the_meaning_of_similarity_width():
    assert similarity_columns(50_000) == 256
    assert similarity_columns(50_001) == 128
    assert similarity_columns(200_001) == 64
    assert similarity_columns(80) == 80
    assert similarity_columns(80, **{"model.similarity_width": 7}) == 7
    many = plan.MAX_TRANSITION_ITEMS + 1
    assert similarity_columns(many) == 0
    assert similarity_columns(many, **{"model.similarity_width": 7, "start.scores": "transitions"}) == 7
    with pytest.raises(InputError, match="2,000,001 items start from on request alone"):
        similarity_columns(many, **{"model.similarity_width": 7})
    assert similarity_columns(80, **{"start.scores": "random"}) == 0
    for changes in ({"start.scores": "random"}, {"model.norm": "batch"}):
        with pytest.raises(ValidationError, match=r"model.similarity_width=7 belongs to a start from transitions"):
            Config(**{"model.similarity_width": 7}, **changes)


def test_fixed_terms_give_equal_answers_after_saving(split, tmp_path):
    config = Config(**SMALL, **{"loop.max_steps": 3, "loop.evaluate_every": 1, "model.num_neighbours": 32})
    retriever = load_method("dtr").fitted(split, config, progress=False)
    assert list(retriever.searcher.weights.terms) == ["similarity", "seen", "neighbours"]
    retriever.save(tmp_path / "saved")
    again = load(tmp_path / "saved").searcher.search(Query.of(split.test.histories), 5)
    expected = retriever.searcher.search(Query.of(split.test.histories), 5)
    assert np.array_equal(again.items, expected.items)
    assert np.array_equal(again.scores, expected.scores)


@pytest.mark.parametrize("again", [False, True])
def test_the_weight_of_seen_items_is_learned(split, again):
    """From a log without repeats, and from one in which every user alternates between two items."""
    if again:
        rows = [(u, 16 * (u % 5) + (u // 5 % 8) * 2 + t % 2, t) for u in range(300) for t in range(10)]
        log = pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row")
        split = disjoint_users(Dataset.from_log(read_log(log)))
    config = Config(
        **SMALL,
        **{
            "loop.max_steps": 60,
            "loop.evaluate_every": 60,
            "optimiser.warmup_steps": 1,
            "choose.monitor": "kept/ndcg@20",
        },
    )
    searcher = load_method("dtr").fitted(split, config, progress=False).searcher
    answers = searcher.search(Query.of(split.test.histories), 2).items
    had = [np.isin(row, history).mean() for row, history in zip(answers, split.test.histories, strict=True)]
    assert np.mean(had) > 0.9 if again else np.mean(had) < 0.1


@pytest.mark.parametrize(
    "objective",
    [
        TreeObjective(DistinctNegatives([6, 6, 6]), loss=LEVEL_LOSSES["binary"]),
        TreeObjective(BeamCandidates(4), loss=LEVEL_LOSSES["binary"], labels="pseudo"),
    ],
    ids=["tdm", "otm"],
)
def test_with_a_binary_loss_the_scorer_starts_at_the_log_odds(split, monkeypatch, objective):
    with monkeypatch.context() as patched:
        patched.setattr(initial_scorer, "calibrate_levels", lambda task, rng, budget: None)
        task = started(split, "transitions", objective=objective)
    histories = split.test.histories
    answers = task.searcher().search(Query.of(histories), 10)

    def loss(shift):
        task.rng.manual_seed(1)
        with torch.no_grad():
            task.model.scorer.output.bias.add_(shift)
            value = task.loss(task.batch(np.arange(task.num_examples)))
            task.model.scorer.output.bias.sub_(shift)
        return float(value)

    before = loss(0.0)
    initial_scorer.calibrate_levels(task.task, task.rng, Budget())
    after = loss(0.0)
    assert after < before / 2
    assert after < min(loss(-0.5), loss(0.5))
    # It changes all scores of a level equally, apart from the small effect of the random layers.
    moved = task.searcher().search(Query.of(histories), 10)
    shifts = moved.scores - answers.scores
    np.testing.assert_allclose(shifts, shifts[0, 0], atol=0.25)


@pytest.mark.parametrize(("method", "moved"), [("tdm", True), ("dtr", False)])
def test_fit_starts_at_the_log_odds_only_with_a_binary_loss(split, monkeypatch, method, moved):
    called = []
    monkeypatch.setattr(initial_scorer, "calibrate_levels", lambda task, rng, budget: called.append(task))
    module = load_method(method)
    module.fitted(split, module.Config(**SMALL, **{"loop.max_steps": 1, "tree.updates": 0}), progress=False)
    module.fitted(
        split,
        module.Config(**SMALL, **{"loop.max_steps": 1, "tree.updates": 0, "start.scores": "random"}),
        progress=False,
    )
    assert len(called) == moved


def test_initialisation_is_reproducible(split):
    first, second, other = (started(split, "auto", seed).model.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_resolved_automatic_settings_are_recorded(split, monkeypatch):
    config = Config(**SMALL, **{"loop.max_steps": 2, "loop.evaluate_every": 1})
    small = load_method("dtr").fitted(split, config, progress=False).metadata["training"]
    faster = config.changed({"optimiser.learning_rate": 0.1})
    assert [planned(each, split.train).optimiser.learning_rate for each in (config, faster)] == [1.5e-3, 0.1]
    assert (small["tree_start"], small["node_start"]) == ("transitions", "transitions")
    monkeypatch.setattr(plan, "MAX_TRANSITION_ITEMS", 79)
    large = load_method("dtr").fitted(split, config, progress=False).metadata["training"]
    assert (large["tree_start"], large["node_start"]) == ("pifa", "random")


@pytest.mark.parametrize(
    "changes",
    [{"model.unit_coordinate": False}, {"model.norm": "batch"}, {"model.width": 3}, {"model.attention_hidden": 1}],
)
def test_a_scorer_without_the_parts_starts_at_random(changes):
    config = Config(**SMALL | changes)
    meant = config.plan(Facts(num_users=5, num_items=10))
    assert (meant.start.scores, meant.optimiser.learning_rate) == ("random", 7e-3)
    with pytest.raises(ValidationError, match=r"start.scores=random"):
        Config(**SMALL | changes, **{"start.scores": "transitions"})


def test_items_without_neighbours_do_no_harm(split):
    """A log of single interactions has no transitions; the scorer starts at random except for frequencies."""
    rows = [(u, u % 7, u) for u in range(40)]
    train = Dataset.from_log(read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row")))
    none = split.test.take(np.empty(0, int))
    bare = replace(split, dataset=train, train=train, valid=none, test=none)
    tree = first_tree(bare, planned(Config(**SMALL), train), np.random.default_rng(0))
    assert sorted(tree.item_of_leaf[tree.item_of_leaf >= 0]) == list(range(7))


def test_the_initial_model_is_kept_if_training_does_not_improve_it(split, tmp_path):
    """The start is evaluated too, in both views, and returned if no step is better."""
    config = Config(
        **SMALL,
        **{"loop.max_steps": 8, "loop.evaluate_every": 4, "optimiser.warmup_steps": 1, "optimiser.learning_rate": 5.0},
    )
    run = RunFolder(tmp_path / "run")
    retriever = load_method("dtr").fitted(split, config, progress=False, run=run)
    assert retriever.metadata["training"]["best_step"] == 0
    lines = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    measured = [line for line in lines if "valid/both/f@20" in line]
    assert [line["step"] for line in measured] == [0, 4, 8]
    for line in measured:
        assert line["valid/both/f@20"] == pytest.approx((line["valid/kept/f@20"] + line["valid/removed/f@20"]) / 2)
    assert retriever.metadata["training"]["valid/both/f@20"] == measured[0]["valid/both/f@20"]
    query = Query.of(split.test.histories)
    answers = retriever.searcher.search(query, 10)
    assert np.array_equal(answers.items, started(split, config).searcher().search(query, 10).items)
