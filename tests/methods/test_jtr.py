"""JTR: its loss against loops, all leaves against SASRec's exact search, and items with two kinds of histories."""

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.fitting.vectors.jtr import JtrTask
from beamwood.methods import load_method
from beamwood.recipes.compare import compare_fitted
from beamwood.retrieval.products import best_products
from beamwood.sampling.siblings import siblings_first
from beamwood.training.budget import Budget
from beamwood.types import ItemLists, Query, SearchOptions
from following import NUM_ITEMS, far_from_start, followed, gain_over_popularity, queries, without_gradient
from plans import planned
from prepared import Prepared

METHOD = load_method("jtr")
SMALL = {"model.width": 12, "model.length": 6, "model.num_blocks": 1, "model.dropout": 0.0}
SMALL |= {"index.num_children": 3, "index.leaf_size": 8, "choose.validation_users": 50}
SHORT = SMALL | {"loop.max_steps": 6, "loop.evaluate_every": 3, "loop.batch_size": 16}


@pytest.fixture(scope="module")
def split():
    return followed()


@pytest.fixture(scope="module")
def start(split, tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "sasrec"
    given = {name: value for name, value in SHORT.items() if not name.startswith("index.")}
    beamwood.fit(split, "sasrec", given, progress=False).save(folder)
    return folder


def task_of(split, **changes):
    """A training task far from its initial values."""
    config = planned(METHOD.Config(**(SMALL | changes)), split.train)
    task = Prepared(JtrTask(split, config), seed=0)
    return far_from_start(task)


def indexed(task, num_probed=None):
    searcher = task.indexed(task.searcher(), Budget())
    searcher.index.num_probed = num_probed or searcher.index.num_probed
    return searcher


def homes(buckets, item):
    return [number for number, row in enumerate(buckets.lists) if item in row]


def test_the_loss_equals_its_definition(split):
    """A softmax over all items, and one over the nodes of each level on the path to the target."""
    task, rng = task_of(split), np.random.default_rng(2)
    queries_XD, targets = rng.normal(size=(9, 12)).astype(np.float32), rng.integers(0, NUM_ITEMS, 9)
    with torch.no_grad():
        got = task.task.cross_entropy(torch.from_numpy(queries_XD), torch.from_numpy(targets), task.rng).numpy()
    vectors, nodes = task.model.output_weight.detach().numpy(), task.nodes.detach().numpy()
    leaves, parents = task.tree.leaves, task.tree.parents
    for row, query in enumerate(queries_XD.astype(float)):
        logits = vectors @ query
        expected = np.log(np.exp(logits).sum()) - logits[targets[row]]
        node = leaves[task.leaf_N[targets[row]]]
        while node > 0:
            (level,) = [level for level in task.tree.levels() if level[0] <= node < level[1]]
            logits = nodes[level[0] : level[1]] @ query
            expected += np.log(np.exp(logits).sum()) - logits[node - level[0]]
            node = parents[node]
        assert got[row] == pytest.approx(expected, rel=1e-4)


def test_level_losses_with_sampled_negatives(split):
    """With as many as the level has, it is the full loss; with one, the loss is against one sibling."""
    whole, many = task_of(split), task_of(split, **{"loss.level_negatives": 999})
    few = task_of(split, **{"loss.level_negatives": 1})
    rng = np.random.default_rng(2)
    queries_XD = torch.from_numpy(rng.normal(size=(9, 12)).astype(np.float32))
    level = whole.tree.levels()[-1]
    nodes = torch.from_numpy(rng.integers(*level, 9))
    same = torch.Generator()
    same.set_state(few.rng.get_state())
    losses = [each.task.level_loss(queries_XD, nodes, level, each.rng).detach().numpy() for each in (whole, many, few)]
    np.testing.assert_array_equal(losses[0], losses[1])
    among, parents = few.model.get_buffer("siblings"), few.model.get_buffer("parents")
    siblings = siblings_first(nodes, among, parents, level, 1, same)[:, 0]
    assert (parents[siblings] == parents[nodes]).all()
    assert (siblings != among[nodes][:, 0]).any()
    apart = (queries_XD * (few.nodes[siblings] - few.nodes[nodes])).sum(dim=1).detach().numpy()
    np.testing.assert_allclose(losses[2], np.log1p(np.exp(apart)), rtol=1e-4)


def test_missing_draws_are_not_negatives(split):
    task = task_of(split, **{"loss.level_negatives": 5})
    queries_XD = torch.randn((9, 12), generator=torch.Generator().manual_seed(2))
    level, (one, other) = task.tree.levels()[-1], (torch.Generator().manual_seed(5) for _ in range(2))
    nodes = torch.randint(*level, (9,), generator=torch.Generator().manual_seed(3))
    siblings, parents = task.model.get_buffer("siblings"), task.model.get_buffer("parents")
    others = siblings_first(nodes, siblings, parents, level, 5, one)
    assert (others < 0).any(dim=1).sum() > 3
    logits = (queries_XD @ task.nodes.T).detach().numpy()
    expected = [
        np.log1p(np.exp(row[negatives[negatives >= 0]] - row[node]).sum())
        for row, node, negatives in zip(logits, nodes.numpy(), others.numpy(), strict=True)
    ]
    losses = task.task.level_loss(queries_XD, nodes, level, other).detach().numpy()
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_searching_all_leaves_is_exact(split):
    """Ids, order and scores, with filters; and one leaf costs less."""
    task = task_of(split)
    exact, whole, one, query = task.searcher(), indexed(task, 999), indexed(task, 1), queries(40)
    excluded, allowed = query.histories.distinct(), np.arange(NUM_ITEMS) % 3 > 0
    for options in (SearchOptions(), SearchOptions(excluded), SearchOptions(excluded, allowed)):
        best = exact.search(query, 10, options)
        hits = whole.search(query, 10, options)
        assert np.array_equal(hits.items, best.items)
        np.testing.assert_allclose(hits.scores, best.scores, rtol=1e-5, atol=1e-5)
        assert (one.search(query, 10, options).items >= 0).all()
    assert (one.search(query, 3).scored < NUM_ITEMS).all()


def test_items_are_in_the_leaves_that_their_queries_reach_most_often(split):
    """Every position of the training histories counts: its target once for each of the five best leaves."""
    task = task_of(split, **{"model.length": 12})
    leaves, counts = task.nodes.detach().numpy()[task.tree.leaves], np.zeros((NUM_ITEMS, len(task.tree.leaves)))
    for history in split.train.histories:
        with torch.no_grad():
            queries_LD = task.model(torch.from_numpy(history[None, :-1].astype(np.int64)))[0].numpy()
        for query, target in zip(queries_LD, history[1:], strict=True):
            counts[target, np.argsort(-(leaves @ query))[:5]] += 1
    buckets = indexed(task).index.buckets
    for item in range(NUM_ITEMS):
        own = task.leaf_N[item]
        wanted = [leaf for leaf in np.lexsort((np.arange(len(leaves)), -counts[item])) if counts[item, leaf] > 0][:2]
        assert set(homes(buckets, item)) == set(wanted if len(wanted) == 2 else [*wanted, own])


def test_one_leaf_per_item_is_a_partition(split):
    one, two = (indexed(task_of(split, **{"index.num_homes": most})).index.buckets for most in (1, 2))
    assert not one.overlap
    assert one.sizes.sum() == NUM_ITEMS
    assert two.overlap
    assert two.sizes.sum() <= 2 * NUM_ITEMS


def test_an_item_with_two_kinds_of_histories_is_in_two_leaves():
    """Two groups of twelve that no user mixes, and item 24, which follows both: one leaf finds it for each group."""
    rng, rows = np.random.default_rng(0), []
    for user in range(240):
        group = 12 * (user % 2)
        items = [*(group + rng.permutation(12)[:5]), 24, *(group + rng.permutation(12)[:2])]
        rows += [(user, int(item), time) for time, item in enumerate(items)]
    split = leave_one_out(
        Dataset.from_log(read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row")))
    )
    given = SMALL | {"index.leaf_size": 14, "index.num_children": 2, "loop.max_steps": 120, "loop.evaluate_every": 60}
    fitted = METHOD.fitted(split, given | {"optimiser.warmup_steps": 10, "choose.seen_weight": 0}, progress=False)
    searcher = fitted.searcher.first
    both = fitted.items.encode([24])[0]
    for group in (0, 12):
        own = fitted.items.encode([group + n for n in range(12)])
        searcher.index.num_probed = 1
        query = Query.of(ItemLists.from_lists([own[:5]]))
        assert both in searcher.search(query, 10).items[0]
    assert len(homes(searcher.index.buckets, both)) == 2


def test_every_parameter_learns(split):
    task = task_of(split)
    assert without_gradient(task) == []
    # The root is never chosen against other nodes.
    assert (task.nodes.grad.abs().sum(dim=1) > 0).tolist() == [False] + [True] * (len(task.nodes) - 1)


def test_it_learns_successors(split):
    given = SMALL | {"loop.max_steps": 150, "loop.evaluate_every": 75}
    assert gain_over_popularity(METHOD, split, given) > 0.2


def test_it_starts_from_a_fit(split, start):
    task = task_of(split, **{"start.folder": str(start)})
    plain = Prepared(task.task, seed=0)
    fitted = beamwood.load(start).searcher.first
    assert np.array_equal(plain.model.output_weight.detach().numpy(), fitted.vectors)
    retriever = METHOD.fitted(split, SHORT | {"start.folder": str(start)}, progress=False)
    assert retriever.metadata["plan"]["start"]["folder"] == str(start)
    with pytest.raises(InputError, match=r"was fitted with length=6, not length=7; set model\.length=6"):
        METHOD.fitted(split, SHORT | {"start.folder": str(start), "model.length": 7}, progress=False)


def test_a_saved_model_gives_equal_answers_and_keeps_its_settings(split, tmp_path):
    fitted = METHOD.fitted(split, SHORT | {"index.num_probed": 1}, progress=False)
    fitted.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    assert loaded.searcher.first.index.kind == "clusters"
    asked = {"histories": [[1, 2, 3], [5]], "k": 20, "allowed": list(range(0, NUM_ITEMS, 2))}
    answers = fitted.recommend(**asked)
    assert loaded.recommend(**asked) == answers
    assert [len(row) for row in answers.item_ids] == [20, 20]
    assert beamwood.evaluate(loaded, split)["removed"].means() == beamwood.evaluate(fitted, split)["removed"].means()
    # Its vectors can have another index.
    other = load_method("indexed").fitted(split, {"start.folder": str(tmp_path / "saved"), "index.kind": "exact"})
    vectors, query = fitted.searcher.first, queries(3)
    best = best_products(vectors.encode(query), vectors.vectors, 5)
    assert np.array_equal(other.searcher.first.search(query, 5).items, best.items)


def test_it_keeps_its_time_limit(split):
    fitted = METHOD.fitted(split, SMALL | {"loop.max_steps": 10**6}, time_limit=4, progress=False)
    # A step or an index of a busy machine may take longer than planned.
    assert fitted.metadata["training"]["seconds"] < 8
    assert fitted.searcher.first.index.kind == "clusters"


def test_compare_accepts_it(split):
    fitted = {"jtr": METHOD.fitted(split, SHORT, progress=False), "popularity": load_method("popularity").fitted(split)}
    compared = compare_fitted(split, fitted)
    assert compared.results.keys() == fitted.keys()
    assert 0 < compared.costs["jtr"].scored < compared.costs["popularity"].scored + 3 * NUM_ITEMS
    assert compared.simplest == "popularity"


def test_it_accepts_only_its_own_index(split):
    """Suggestions come from the same group of settings."""
    own = "index.num_probed, index.num_children, index.leaf_size, index.num_homes"
    with pytest.raises(InputError, match=rf"setting 'index\.kind' belongs to sasrec, .* more; here there are {own}$"):
        METHOD.fitted(split, SHORT | {"index.kind": "ivf"}, progress=False)
    with pytest.raises(InputError, match=r"setting 'index\.leafsize' is unknown; did you mean 'index\.leaf_size'\?"):
        METHOD.fitted(split, SHORT | {"index.leafsize": 9}, progress=False)
