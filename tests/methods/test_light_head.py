"""A light head steers a fitted tree if validation users confirm it; otherwise the scorer searches alone."""

import json
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.plan import Facts
from beamwood.fitting.tree import light_stage
from beamwood.fitting.tree.light import Distillation, LearningCost, epochs_of
from beamwood.fitting.tree.light_stage import LightStage, one_of_each
from beamwood.fitting.tree.scorer import random_scorer
from beamwood.fitting.tree.search_choice import KEPT, SearchChoice, candidate_ways, choose_ways
from beamwood.fitting.tree.terms import terms_of
from beamwood.kernels.light import LightHead, Way
from beamwood.methods import load_method
from beamwood.models.light_head import LightModule
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.ways import Ways, narrower_beams
from beamwood.steps import heard_by
from beamwood.training.budget import Budget
from beamwood.tree import Shape, random_tree
from beamwood.types import SearchOptions
from din_cases import random_light
from one_view import evaluate_view

SETTINGS = {
    "model.width": 12,
    "model.attention_hidden": 8,
    "model.windows": (8, 4, 2, 1),
    "model.mlp": (24, 8),
    "examples.min_history": 2,
    "optimiser.bf16": False,
    "optimiser.warmup_steps": 20,
    "loop.max_steps": 250,
    "loop.evaluate_every": 125,
    "loop.batch_size": 64,
    "tree.branching": 8,
    "tree.beam_width": 60,
}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=3000, num_items=1500, min_events=20, max_events=60), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


@pytest.fixture(scope="module", autouse=True)
def few_histories():
    """Enough steps for the head of a small market."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(light_stage, "_HISTORIES", 1600)
        yield


@pytest.fixture(scope="module")
def fitted(split, few_histories):
    return load_method("dtr").fitted(split, load_method("dtr").Config(**SETTINGS), progress=False)


def f20(searcher, split, options=SearchOptions()):
    result = evaluate_view(searcher, split.test, ks=(20,), remove_seen=False, options=options)
    return result.means()["f@20"], result.scored


@pytest.mark.slow
def test_a_fit_is_steered_by_its_light_head(split, fitted, tmp_path):
    searcher, search = fitted.searcher, fitted.metadata["search"]
    assert searcher.weights.light is not None
    assert searcher.ways.default.kind in ("steer", "cascade")
    assert fitted.metadata["training"]["light_head"] >= 1000
    metric, judged = f20(searcher, split)
    full, all_judged = f20(searcher, split, SearchOptions(effort=1.0))
    assert judged <= all_judged / 2
    # With few test users, a small loss is noise; the choice itself allows half a percent on validation users.
    assert metric >= 0.95 * full
    assert search["curve"][search["chosen"]]["lowest"] >= -KEPT
    assert search["curve"][-1] == {"kind": "beam", "beam_width": 60, "judged": 0} | {
        key: search["curve"][-1][key] for key in ("nodes", "metric", "lowest")
    }
    nodes = [point["nodes"] for point in search["curve"]]
    assert nodes == sorted(nodes)
    fitted.save(tmp_path / "fit")
    again = beamwood.load(tmp_path / "fit")
    assert again.searcher.ways == searcher.ways
    assert again.metadata["search"] == json.loads(json.dumps(search))
    query = split.test.query(searcher.needs)
    for options in (
        SearchOptions(),
        SearchOptions(effort=0.0),
        SearchOptions(effort=1.0),
        SearchOptions(beam_width=30),
    ):
        one, other = (each.search(query, 20, options) for each in (searcher, again.searcher))
        assert np.array_equal(one.items, other.items)
        assert np.array_equal(one.scores, other.scores)


@pytest.mark.slow
def test_effort_and_width_override_the_choice(split, fitted):
    searcher, query = fitted.searcher, split.test.query(fitted.searcher.needs)
    full = TreeSearcher(replace(searcher.weights, light=None), searcher.tree, beam_width=60, link=searcher.link)
    expected = full.search(query, 20)
    for options in (SearchOptions(effort=1.0), SearchOptions(beam_width=60)):
        assert np.array_equal(searcher.search(query, 20, options).items, expected.items)
    assert searcher.search(query, 20, SearchOptions(effort=0.0)).scored.mean() < expected.scored.mean() / 4
    narrow = searcher.search(query, 20, SearchOptions(beam_width=25)).items
    assert np.array_equal(narrow, full.search(query, 20, SearchOptions(beam_width=25)).items)
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="effort"):
            searcher.search(query, 20, SearchOptions(effort=bad))


@pytest.mark.slow
def test_every_way_finds_the_allowed_items(split, fitted):
    searcher, query = fitted.searcher, split.test.query(fitted.searcher.needs)
    rng = np.random.default_rng(0)
    for share in (0.01, 0.05, 0.3):
        allowed = rng.random(searcher.num_items) < share
        for effort in (None, 0.0, 0.5, 1.0):
            hits = searcher.search(query, 10, SearchOptions(split.test.seen, allowed, effort=effort))
            for items, seen in zip(hits.items, split.test.seen, strict=True):
                left = np.setdiff1d(np.flatnonzero(allowed), seen)
                found = items[items >= 0]
                assert len(np.unique(found)) == min(10, len(left))
                assert np.isin(found, left).all()


@pytest.mark.slow
def test_the_scorer_searches_alone_if_the_light_head_is_poor(split, fitted):
    """A head with random vectors, and one with the reverse order of the scorer."""
    searcher, light = fitted.searcher, fitted.searcher.weights.light
    rng = np.random.default_rng(0)
    worst = replace(light, node_scales=-light.node_scales, biases=-light.biases)
    random = random_light(rng, len(light.nodes), len(light.places), width=light.width)
    full, _ = f20(searcher, split, SearchOptions(effort=1.0))
    for head in (random, worst):
        weights = replace(searcher.weights, light=head, terms={})
        blind = TreeSearcher(weights, searcher.tree, beam_width=60, link=searcher.link)
        choice = choose_ways(blind, split.valid, "both/f@20")
        assert choice.ways.default.kind == "beam", choice.facts()
        lost = choice.metric[0] / choice.metric[-1]
        assert lost < 0.9, "that head should not have steered"
        chosen = TreeSearcher(weights, searcher.tree, beam_width=60, link=searcher.link, ways=choice.ways)
        without = TreeSearcher(replace(weights, light=None), searcher.tree, beam_width=60, link=searcher.link)
        assert f20(chosen, split)[0] >= 0.97 * f20(without, split)[0]
    assert full > 0


def test_a_choice_needs_enough_queries(split, fitted):
    choice = choose_ways(fitted.searcher, split.valid.take(np.arange(12)), "kept/f@20")
    assert choice.ways.default == Way("beam", 60)
    assert isinstance(choice, SearchChoice)
    assert choice.facts()["chosen"] == len(choice.ways.ladder) - 1


def test_training_a_head_is_a_step_that_is_shown(split, fitted):
    searcher, shown = fitted.searcher, []
    leaves = searcher.tree.leaves_of(split.train.histories.padded(searcher.weights.history_length)[:40])
    listener = SimpleNamespace(quiet=False, began=shown.append, ended=shown.append, told=shown.append)
    with heard_by(listener):
        Distillation(searcher.weights, searcher.tree, width=4, seed=0).learn(leaves)
    began, ended = shown
    assert began is ended
    assert (ended.words, ended.done) == ("training the light head", ended.total)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_head_whose_loss_is_not_finite_is_refused(split, fitted, monkeypatch, value):
    searcher, divergence = fitted.searcher, Distillation.divergence
    leaves = searcher.tree.leaves_of(split.train.histories.padded(searcher.weights.history_length)[:40])
    monkeypatch.setattr(Distillation, "divergence", lambda *given: divergence(*given) * value)
    with pytest.raises(InputError, match=r"the light head: step 1: the loss is (nan|inf) .*model\.light_width=0"):
        Distillation(searcher.weights, searcher.tree, width=4, seed=0).learn(leaves)


@pytest.mark.slow
def test_a_head_learns_the_softmax_of_the_scorer(split, fitted):
    searcher, length = fitted.searcher, fitted.searcher.weights.history_length
    leaves = searcher.tree.leaves_of(split.train.histories.padded(length)[:800])
    held_out = searcher.tree.leaves_of(split.valid.histories.padded(length))
    study = Distillation(searcher.weights, searcher.tree, width=16, seed=0)
    targets = study.targets(held_out)
    before = float(study.divergence(targets).detach())
    head = study.learn(leaves)
    after = float(study.divergence(targets).detach())
    assert after < 0.5 * before
    again = Distillation(searcher.weights, searcher.tree, width=16, seed=0)
    again.targets(held_out)
    same = again.learn(leaves)
    for name, array in head.arrays().items():
        assert np.array_equal(array, same.arrays()[name]), f"{name} differs between two runs of one seed"
    assert isinstance(head, LightHead)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("dtr", {"model.light_width": 0}, "light_width"),
        ("plt", {}, "paths"),
        ("din", {}, "one level"),
    ],
)
def test_a_missing_head_is_reported_with_the_reason(split, method, settings, words):
    own = SETTINGS | {"loop.max_steps": 4, "loop.evaluate_every": 4, "choose.validation_users": 10} | settings
    if method == "din":
        del own["tree.branching"], own["tree.beam_width"]
    fit = load_method(method)
    retriever = fit.fitted(split, fit.Config(**own), progress=False)
    assert words in retriever.metadata["training"]["light_head"]
    assert "search" not in retriever.metadata
    searcher = retriever.searcher
    assert searcher.weights.light is None
    assert searcher.ways == narrower_beams(searcher.beam_width)


def test_presets_of_papers_have_no_light_head():
    for name in ("dtr", "otm", "jtm", "tdm", "plt"):
        for preset in load_method(name).presets.values():
            assert preset["model.light_width"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "words"), [(5000.0, "no light head"), (150.0, "learns from")])
def test_without_time_it_is_left_out_or_learns_less_and_this_is_reported(split, monkeypatch, seconds, words):
    """A quarter of the limit is 100 s, by a clock that advances by a millisecond with each reading."""
    monkeypatch.setattr(
        LightStage, "_cost", lambda stage, sample, budget: lambda num: seconds * num / stage.max_histories
    )
    fit = load_method("dtr")
    settings = SETTINGS | {"loop.max_steps": 4, "loop.evaluate_every": 4, "choose.validation_users": 40}
    budget = Budget(400.0, clock=count(0.0, 1e-3).__next__)
    retriever = fit.fitted(split, fit.Config(**settings), progress=False, time_limit=budget)
    training = retriever.metadata["training"]
    assert sum(words in line for line in training["left_out"]) == 1, training
    lit = words == "learns from"
    assert ("search" in retriever.metadata) == (retriever.searcher.weights.light is not None) == lit
    if lit:
        assert 1000 <= training["light_head"] < 1600
    else:
        assert "no time" in training["light_head"]


def test_each_user_is_used_once_before_any_is_used_twice():
    users, rng = np.repeat([3, 4, 9], [1, 2, 5]), np.random.default_rng(0)
    for num, counts in ((0, [0, 0, 0]), (3, [1, 1, 1]), (5, [1, 2, 2]), (8, [1, 2, 5])):
        rows = one_of_each(users, num, rng)
        assert [(users[rows] == user).sum() for user in (3, 4, 9)] == counts
        assert len({*rows.tolist()}) == num
    drawn = {int(row) for _ in range(100) for row in one_of_each(users, 3, rng)}
    assert drawn == set(range(8))
    assert len(one_of_each(users[:0], 0, rng)) == 0


def test_many_histories_get_fewer_epochs():
    """A head learns from about 45,000 histories in total, within nine epochs."""
    assert epochs_of(100) == epochs_of(6_000) == (4, 5)
    assert epochs_of(18_000) == (1, 2)
    assert epochs_of(0) == (4, 5)
    assert LearningCost(targets=2.0, step=1.0).of(100) == pytest.approx(100 * (2 + 0.6 * 4 + 5))
    assert LearningCost(targets=2.0, step=1.0).of(18_000) == pytest.approx(18_000 * (2 + 0.6 + 2))


def test_ways_are_checked():
    ways = narrower_beams(150)
    assert ways.default == Way("beam", 150)
    assert ways.of(0.0).beam_width < ways.of(0.5).beam_width < ways.of(1.0).beam_width == 150
    assert narrower_beams(1).ladder == (Way("beam", 1),)
    for ladder, chosen in [((), 0), ((Way("steer", 9, 9),), 0), ((Way("beam", 9),), 1), ((Way("beam", 9),), -1)]:
        with pytest.raises(InputError):
            Ways(ladder, chosen)
    assert candidate_ways(150, steered=True)[-1] == candidate_ways(150, steered=False)[-1] == Way("beam", 150)
    assert all(way.kind == "beam" for way in candidate_ways(150, steered=False))
    assert Way("steer", 300, 100).wide_enough(100) == Way("steer", 300, 500)
    assert Way("steer", 300, 100).wide_enough(10) == Way("steer", 300, 100)
    assert Way("beam", 150).wide_enough(200) == Way("beam", 200)


@pytest.mark.parametrize("num_items", [4_000, 100_000, 1_000_000])
def test_its_tables_are_below_a_third_of_the_weights(num_items):
    """By the plan for this many items, with the bytes per node of a small tree of the same widths."""
    facts = Facts(num_users=10_000, num_items=num_items, mean_history=20.0)
    config, shape = load_method("dtr").Config().plan(facts), Shape(8, 16, 3)
    generator = torch.Generator().manual_seed(0)
    weights = random_scorer(shape, config, terms_of(config), generator).export()
    width = config.model.light_width
    head = LightModule(shape, weights.history_length, width, generator=generator).export()
    assert head.nodes.dtype == head.history.dtype == np.int8

    def bytes_of(arrays):
        return sum(array.nbytes for array in arrays if len(array) == shape.num_nodes)

    terms = [array for part in weights.terms.values() for array in part.arrays.values()]
    tables = bytes_of(head.arrays().values())
    assert tables <= shape.num_nodes * (2 * width + 12)
    assert tables < (tables + bytes_of([weights.nodes, *terms])) / 3


@pytest.mark.slow
def test_it_belongs_to_the_tree_after_the_last_update(split):
    dtr = load_method("dtr")
    settings = SETTINGS | {"loop.max_steps": 60, "loop.evaluate_every": 30, "tree.updates": 1, "tree.stride": 2}
    retriever = dtr.fitted(split, dtr.Config(**settings), progress=False)
    assert retriever.metadata["training"]["tree_updates"] == 1
    searcher = retriever.searcher
    assert searcher.ways.default.kind in ("steer", "cascade")
    metric, judged = f20(searcher, split)
    full, all_judged = f20(searcher, split, SearchOptions(effort=1.0))
    assert judged < all_judged / 2
    assert metric >= 0.95 * full
    elsewhere = TreeSearcher(
        searcher.weights, random_tree(1500, np.random.default_rng(0), shape=searcher.tree.shape), beam_width=60
    )
    assert f20(elsewhere, split)[0] < 0.5 * full
