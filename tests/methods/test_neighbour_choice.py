"""The choice of neighbour counts for each log: later items if the order is informative, else all nearby items."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.fitting import neighbour_choice, validation
from beamwood.fitting.neighbour_choice import chosen_horizon, chosen_neighbours
from beamwood.fitting.neighbour_counts import neighbour_counts
from beamwood.fitting.neighbour_kinds import KINDS
from beamwood.fitting.plan import MAX_TRANSITION_ITEMS, Facts
from beamwood.fitting.start_cache import caching
from beamwood.fitting.tree.terms import FOLDS, LATEST, terms_of
from beamwood.kernels.terms import Term
from beamwood.methods import load_method
from beamwood.models.terms import Neighbours
from beamwood.training.budget import Budget
from beamwood.training.run_folder import RunFolder
from one_view import evaluate_view
from resumed import assert_same_arrays

SMALL = {
    "model.width": 8,
    "model.windows": (4, 2, 1),
    "model.mlp": (8, 4),
    "model.similarity_width": 16,
    "model.light_width": 0,
    "tree.branching": 4,
    "tree.beam_width": 120,
    "loop.max_steps": 2,
    "loop.evaluate_every": 1,
    "optimiser.learning_rate": 1e-9,
    # Twenty of 120 items include almost all that any kind finds; only their order differs.
    "choose.monitor": "both/ndcg@20",
}
KEY, STEADY = "model.neighbours", 0.7


def data_of(histories):
    rows = [(user, int(item), time) for user, items in enumerate(histories) for time, item in enumerate(items)]
    return Dataset.from_log(read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row")))


@pytest.fixture(scope="module")
def chain():
    """Each of 120 items has one successor with probability .7; otherwise the next item is uniform."""
    rng = np.random.default_rng(0)
    follows, walks = rng.permutation(120), []
    for _ in range(400):
        walk = [int(rng.integers(120))]
        for _ in range(11):
            walk.append(int(follows[walk[-1]] if rng.random() < STEADY else rng.integers(120)))
        walks.append(walk)
    return leave_one_out(data_of(walks))


@pytest.fixture(scope="module")
def baskets():
    """Eight items of one of ten groups of 12, in random order."""
    rng = np.random.default_rng(1)
    return disjoint_users(data_of(12 * (user % 10) + rng.permutation(12)[:8] for user in range(600)))


def config_of(**settings):
    return load_method("dtr").configured(SMALL | settings)


def first_hits(split, **settings):
    fitted = beamwood.fit(split, "dtr", SMALL | settings, progress=False)
    return fitted, evaluate_view(fitted.searcher, split.test, ks=(1,), remove_seen=False).means()["hit_rate@1"]


def test_a_chain_selects_the_next_item_and_finds_it(chain):
    fitted, found = first_hits(chain)
    _, around = first_hits(chain, **{KEY: "around", "model.num_neighbours": 128})
    plan = fitted.metadata["plan"]["model"]
    # Histories are longer than the limit for default lists.
    assert Facts.of(chain.train).mean_history > 8
    assert (plan["neighbours"], plan["num_neighbours"]) == ("next", 120)
    assert fitted.metadata["config"]["model"].get("neighbours") is None
    # The optimum is .7 plus chance.
    assert found > STEADY - 0.1
    assert around < found - 0.1


def test_baskets_select_all_nearby_items(baskets):
    assert chosen_neighbours(baskets, config_of().choose, {"progress": False}) == "around"
    fitted, _ = first_hits(baskets)
    asked, _ = first_hits(baskets, **{KEY: "around"})
    assert_same_arrays(fitted, asked)
    assert fitted.metadata["plan"] == asked.metadata["plan"]


def test_the_choice_is_reported_and_reproducible(chain, capsys):
    config, said = config_of(**{"choose.validation_users": 100}), []
    for seed in (3, 3, 4):
        assert chosen_neighbours(chain, config.choose, {"seed": seed}) == "next"
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] != said[2]
    assert said[0].startswith("neighbours: next, by both/ndcg@20 of 100 validation users (around ")
    assert chosen_neighbours(chain, config.choose, {"progress": False}) == "next"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("noise", "wanted"), [(0.01, "next"), (50.0, "around")])
def test_an_insignificant_gain_is_not_selected(monkeypatch, baskets, noise, wanted):
    better = {"around": 0.0, "after": 0.1, "next": 0.3}
    rng = np.random.default_rng(0)

    def values(split, queries, kind, monitor, *, most):
        return better[kind] + noise * rng.normal(size=len(queries))

    monkeypatch.setattr(neighbour_choice, "_values", values)
    assert chosen_neighbours(baskets, config_of().choose, {"progress": False}) == wanted


@pytest.mark.parametrize("monitor", ["kept/ndcg@20", "removed/mrr@20"])
def test_the_choice_uses_the_monitor_of_the_training(chain, monkeypatch, capsys, monitor):
    asked, judge = [], validation.evaluate_views

    def watched(searcher, queries, views, **options):
        asked.append(views)
        return judge(searcher, queries, views, **options)

    monkeypatch.setattr(validation, "evaluate_views", watched)
    assert chosen_neighbours(chain, config_of(**{"choose.monitor": monitor}).choose, {}) == "next"
    assert asked == [(monitor.partition("/")[0],)] * len(KINDS)
    assert f"by {monitor} of" in capsys.readouterr().err


def refused(*args, **options):
    raise AssertionError("chosen again")


def test_an_explicit_setting_is_kept(chain, monkeypatch):
    monkeypatch.setattr(neighbour_choice, "_measured", refused)
    for kind in KINDS:
        fitted = beamwood.fit(chain, "dtr", SMALL | {KEY: kind}, progress=False)
        plan = fitted.metadata["plan"]["model"]
        assert plan["neighbours"] == kind
        assert plan["num_neighbours"] == (0 if kind == "around" else 120)
        # So does a fit of the resolved plan.
        assert beamwood.fit(chain, "dtr", fitted.metadata["plan"], progress=False).metadata["plan"]["model"] == plan
    with pytest.raises(InputError, match=r"model\.neighbours"):
        config_of(**{KEY: "before"})


def test_a_resumed_run_keeps_its_choice(chain, monkeypatch, tmp_path):
    run = RunFolder(tmp_path / "run")
    beamwood.fit(chain, "dtr", SMALL | {"loop.max_steps": 1}, run=run, progress=False)
    assert json.loads(run.config_path.read_text())[KEY] == "next"
    monkeypatch.setattr(neighbour_choice, "_measured", refused)
    resumed = beamwood.fit(chain, "dtr", SMALL, run=run, resume=True, progress=False)
    assert resumed.metadata["plan"]["model"]["neighbours"] == "next"
    assert resumed.metadata["training"]["steps"] == 2
    with pytest.raises(InputError, match=r"with model\.neighbours='next', now it is 'after'"):
        beamwood.fit(
            chain,
            "dtr",
            SMALL | {KEY: "after", "examples.horizon": 1, "examples.num_targets": 1},
            run=run,
            resume=True,
            progress=False,
        )


def test_a_saved_folder_records_the_choice(chain, tmp_path):
    beamwood.fit(chain, "dtr", SMALL, progress=False).save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").metadata["plan"]["model"]["neighbours"] == "next"


def test_a_search_for_the_best_chooses_once(chain, monkeypatch):
    times, best = [], neighbour_choice._measured
    monkeypatch.setattr(neighbour_choice, "_measured", lambda *args: times.append(args) or best(*args))
    with caching():
        assert [chosen_neighbours(chain, config_of().choose, {"progress": False}) for _ in range(3)] == ["next"] * 3
    assert len(times) == 1


def test_without_time_all_nearby_items_are_used(chain, capsys):
    budget = Budget(1.0, clock=iter(np.arange(0.0, 1e3)).__next__)
    assert chosen_neighbours(chain, config_of().choose, {"time_limit": budget}) == "around"
    assert budget.left_out == ["neighbours are those around an item: there was no time to choose"]
    assert "no time to choose" in capsys.readouterr().err
    # Each reading of the clock takes a second; a tenth of the limit is for this choice.
    budget = Budget(100.0, clock=iter(np.arange(0.0, 1e3)).__next__)
    assert chosen_neighbours(chain, config_of().choose, {"time_limit": budget}) == "next"


def test_a_kind_without_neighbours_is_told(chain, capsys):
    config_of(**{KEY: "around", "model.num_neighbours": 7}).chosen(chain, {})
    config_of(**{KEY: "next"}).chosen(chain, {})
    config_of(**{KEY: "around"}).chosen(chain, {"progress": False})
    assert capsys.readouterr().err == ""
    config_of(**{KEY: "around"}).chosen(chain, {})
    config_of(**{KEY: "next", "model.num_neighbours": 0}).chosen(chain, {})
    line = "model.neighbours={} has no effect without terms of your own; set model.num_neighbours above 0, or leave it"
    said = capsys.readouterr().err
    assert line.format("around") in said
    assert line.format("next") in said
    config_of(**{KEY: "next", "start.scores": "random", "model.similarity_width": 0}).chosen(chain, {})
    assert "terms of your own or a start from transitions; set start.scores=transitions" in capsys.readouterr().err


class Linked(Term):
    """Adds nothing; `links` is the total of the neighbour counts from which it starts."""

    name = "linked"

    def arrays(self, shape, history_length):
        return {"links": np.zeros(1, np.float32)}

    def start(self, held, counted):
        held["links"][:] = next(iter(counted.neighbour_matrices(0))).sum()

    def score(self, held, query):
        return 0 * held["links"]


@pytest.mark.filterwarnings("ignore:no native form is known")
@pytest.mark.parametrize("start", [{}, {"start.scores": "random", "model.similarity_width": 0}])
def test_own_terms_read_the_kind_without_neighbours(chain, start):
    dtr = load_method("dtr")
    own = replace(dtr, fit=partial(dtr.fit, terms=(Linked(),)))
    for kind in KINDS:
        given = config_of(**{KEY: kind, "model.num_neighbours": 0}, **start)
        terms = own.fitted(chain, given, progress=False).searcher.weights.terms
        assert "neighbours" not in terms
        assert terms["linked"].arrays["links"] == pytest.approx(neighbour_counts(chain.train, kind).sum(), rel=1e-5)


@pytest.mark.parametrize("method", ["dtr", "tdm", "jtm", "otm", "plt", "din"])
def test_presets_of_papers_choose_no_neighbours(chain, monkeypatch, method):
    monkeypatch.setattr(neighbour_choice, "chosen_neighbours", refused)
    method = load_method(method)
    for preset in method.presets:
        assert method.configured(None, preset).chosen(chain, {}) == {}
    for without in ({"model.num_neighbours": 0}, {"start.scores": "random"}):
        assert method.configured(without).chosen(chain, {}) == {}


def test_neighbour_lists_depend_on_kind_and_catalogue_size(chain):
    config = load_method("dtr").configured
    many = Facts(100, MAX_TRANSITION_ITEMS + 1, 100.0)
    for kind in ("after", "next"):
        assert config({KEY: kind}).plan(Facts(100, 1000, 100.0)).model.num_neighbours == 128
        assert config({KEY: kind, "model.num_neighbours": 0}).plan(Facts(100, 1000, 100.0)).model.num_neighbours == 0
        assert config({KEY: kind}).plan(many).model.num_neighbours == 0
    assert config({KEY: "around"}).plan(Facts(100, 1000, 100.0)).model.num_neighbours == 0
    for kind, latest in (("around", None), ("after", LATEST), ("next", LATEST)):
        plan = config({KEY: kind, "model.num_neighbours": 7}).plan(Facts(100, 1000, 100.0))
        assert terms_of(plan)[-1] == Neighbours(7, FOLDS, latest)
    # A plan from facts alone does not contain it.
    assert KEY not in config(None).plan(Facts.of(chain.train)).flat()


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_of_counts(kind):
    rng = np.random.default_rng(4)
    lists = [rng.integers(0, 9, length).tolist() for length in (2, 5, 14, 30, 3)]
    data, expected = data_of(lists), np.zeros((9, 9))
    for row in lists:
        for at, one in enumerate(row):
            for gap in range(1, min(11, len(row) - at)):
                if (other := row[at + gap]) != one:
                    counts = (1 / gap**2 if kind == "next" else 1) / np.sqrt(len(row))
                    expected[one, other] += counts
                    expected[other, one] += counts if kind == "around" else 0
    order, got = np.array([int(item) for item in data.items.ids]), np.zeros((9, 9))
    got[np.ix_(order, order)] = neighbour_counts(data, kind).toarray()
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    some = neighbour_counts(data, kind, most=len(data.histories.items) // 2).toarray()
    assert 0 < np.count_nonzero(some) < np.count_nonzero(expected)


@pytest.fixture(scope="module")
def runs():
    """Eight of forty runs in sequence, each of eight items in random order."""
    rng = np.random.default_rng(2)
    starts = rng.integers(40, size=600)
    return data_of(
        [8 * ((start + step) % 40) + item for step in range(8) for item in rng.permutation(8)] for start in starts
    )


def test_validation_users_choose_the_horizon_if_order_is_informative(runs, chain, baskets):
    split = disjoint_users(runs)
    quiet = {"progress": False}
    for name in ("sasrec", "two_tower", "tiger"):
        config = load_method(name).Config()
        assert config.chosen(split, quiet) == {"examples.horizon": 10}
        # There is one label per user, or nearby items are as informative.
        assert config.chosen(leave_one_out(runs), quiet) == {"examples.horizon": 1}
        assert config.chosen(baskets, quiet) == {"examples.horizon": 1}
        assert config.changed({"examples.horizon": 1}).chosen(split, quiet) == {}
    assert load_method("two_tower").configured({"model.user_tower": "mf"}).chosen(split, quiet) == {}
    for name in ("sasrec", "gru4rec", "caser", "fmlp", "youtube_dnn", "tiger", "mol", "lpo4rec"):
        assert "examples.horizon" in load_method(name).configured({}, "paper").given


def test_a_horizon_is_reported(runs, capsys):
    """Also after a tree has reported its choice of neighbours."""
    split, choose = disjoint_users(runs), load_method("sasrec").Config().choose
    with caching():
        assert chosen_neighbours(split, choose, {}) == "after"
        assert capsys.readouterr().err.startswith("neighbours: after, by ")
        assert chosen_horizon(split, choose, {}) == 10
    said = capsys.readouterr().err
    assert said.startswith(f"targets: 10 items ahead, by {choose.monitor} of ")
    assert "validation users (either way 0." in said
    assert "neighbours" not in said
    budget = Budget(1.0, clock=iter(np.arange(0.0, 1e3)).__next__)
    assert chosen_horizon(split, choose, {"time_limit": budget}) == 1
    assert budget.left_out == ["targets are the next item alone: there was no time to choose"]
    assert "targets: the next item, as there was no time to choose" in capsys.readouterr().err


@pytest.mark.parametrize(("gain", "horizon"), [(0.05, 1), (0.2, 10)])
def test_a_longer_horizon_needs_a_larger_gain_than_neighbours(monkeypatch, runs, capsys, gain, horizon):
    worth = {"around": 0.5, "after": 0.5 * (1 + gain), "next": 0.4}
    monkeypatch.setattr(
        neighbour_choice, "_values", lambda split, queries, kind, monitor, *, most: np.full(len(queries), worth[kind])
    )
    split, choose = disjoint_users(runs), load_method("sasrec").Config().choose
    assert chosen_neighbours(split, choose, {}) == "after"
    assert chosen_horizon(split, choose, {}) == horizon
    said = capsys.readouterr().err
    assert ("targets: 10 items ahead" in said) == (horizon == 10)
    assert ("targets: the next item, by" in said) == (horizon == 1)


def test_a_horizon_is_kept_by_a_resumed_run(runs, tmp_path):
    split, run = disjoint_users(runs), RunFolder(tmp_path)
    small = {"loop.max_steps": 2, "loop.evaluate_every": 1, "model.width": 8, "model.num_heads": 1}
    fitted = beamwood.fit(split, "sasrec", small, run=run, progress=False)
    assert fitted.metadata["plan"]["examples"]["horizon"] == 10
    choose = load_method("sasrec").Config().choose
    assert chosen_horizon(leave_one_out(runs), choose, {"run": RunFolder(tmp_path), "resume": True}) == 10


def test_a_tree_learns_only_the_next_item_if_it_is_the_label_and_most_informative(chain, runs):
    quiet = {"progress": False}
    alone = {KEY: "next", "examples.horizon": 1, "examples.num_targets": 1}
    assert config_of().chosen(chain, quiet) == alone
    assert config_of(**{"examples.horizon": 4, "examples.num_targets": 2}).chosen(chain, quiet) == {KEY: "next"}
    assert config_of().chosen(disjoint_users(runs), quiet) == {KEY: "after"}
