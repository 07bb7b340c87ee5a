"""Automatic settings are resolved once, reported by the fit, stored, and checked by a resume."""

import json

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.plan import MAX_TRANSITION_ITEMS, Facts, embeddings_of, start_of
from beamwood.methods import METHODS, load_method
from beamwood.training.loop_config import LAZY_FROM
from beamwood.training.run_folder import RunFolder
from beamwood.tree import Shape
from cli_cases import beamwood as command
from plans import planned
from resumed import assert_same_arrays

EVERY = [(name, preset) for name in METHODS for preset in (None, *load_method(name).presets)]
SMALL = Facts(num_users=100, num_items=80, mean_history=20.0, has_categories=True)
MANY = Facts(num_users=10**6, num_items=MAX_TRANSITION_ITEMS + 1, mean_history=5.0)
SHORT = {"loop.max_steps": 4, "loop.evaluate_every": 2, "loop.batch_size": 8, "choose.validation_users": 5}
# Settings where null has its own meaning, is chosen on validation users, or depends on the machine.
NULLS = {
    "choose.retriever_weight",
    "choose.seen_weight",
    "index.num_buckets",
    "index.num_children",
    "index.num_near",
    "index.num_probed",
    "index.rate",
    "loop.max_epochs",
    "loop.max_steps",
    "loss.estimator",
    "loss.level_negatives",
    "loss.sampled_negatives",
    "model.half_life",
    "model.item_column",
    "optimiser.bf16",
    "optimiser.clip_norm",
    "optimiser.decay_steps",
    "start.attention",
    "start.folder",
    "start.item_column",
    "start.ranker",
    "start.retriever",
    "start.seen",
    "tree.vectors",
}
# Unchanged if unused: for trees that are not learned, and for samplers and losses that ignore them.
UNUSED = {
    "tree.stride": lambda config: not config["tree.updates"] or config["tree.learner"] == "kmeans",
    "loss.num_uniform": lambda config: config["loss.negatives"] != "mns",
    "start.surrogate": lambda config: config["loss.kind"] != "guided",
    "optimiser.embeddings": lambda config: config["loss.sampled_negatives"] is None,
}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=60, num_items=90, min_events=10, max_events=20), seed=1)
    return leave_one_out(Dataset.from_log(read_log(market.log), market.item_frame))


@pytest.mark.parametrize("facts", [SMALL, MANY])
@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_no_automatic_value_remains(name, preset, facts):
    config = load_method(name).configured(None, preset)
    plan = config.plan(facts)
    assert type(plan) is type(config)
    values = plan.flat()
    left = {key for key, value in values.items() if value is None and key not in NULLS}
    left |= {key for key, value in values.items() if value in ("auto", "papers")}
    assert all(UNUSED[key](values) for key in left)
    # A plan is a valid configuration, and planning it again changes nothing.
    assert plan.plan(facts) == plan
    assert type(config)(**values).plan(facts) == plan
    # Other settings are unchanged.
    assert {key: value for key, value in values.items() if key in config.given} == {
        key: value if key not in ("tree.start", "tree.shape") else values[key]
        for key, value in config.flat().items()
        if key in config.given
    }


def test_the_plan_of_a_tree():
    tree = load_method("jtm").Config().plan(SMALL).flat()
    meant = {
        "model.similarity_width": 80,
        "model.num_neighbours": 0,
        "tree.start": "transitions",
        "tree.shape": [5, 2],
        "tree.stride": 1,
        "start.scores": "transitions",
        "optimiser.learning_rate": 1.5e-3,
        "optimiser.embeddings": "adam",
    }
    assert {key: tree[key] for key in meant} == meant
    large = load_method("jtm").Config().plan(MANY).flat()
    meant = {"model.similarity_width": 0, "tree.start": "pifa", "start.scores": "random"}
    meant |= {"optimiser.learning_rate": 7e-3, "optimiser.embeddings": "lazy-adam"}
    assert {key: large[key] for key in meant} == meant
    binary = load_method("jtm").Config(**{"tree.branching": 2}).plan(SMALL)
    assert (binary.tree.stride, binary.tree.shape) == (7, (5, 5))


def test_the_plan_of_the_papers_tree():
    """7,129 items in a complete binary tree of 13 levels."""
    paper = load_method("dtr").configured(None, "paper")
    plan = paper.plan(Facts(num_users=3_400, num_items=7_129, mean_history=150.0))
    assert (plan.tree.shape, plan.tree.shape_of(7_129)) == ((2, 13), Shape(2, 2, 13))
    assert (plan.tree.start, plan.tree.stride, plan.model.similarity_width) == ("random", 7, 0)
    assert paper.plan(SMALL).tree.start == "category"
    # In the compact shape the root has seven children.
    compact = paper.changed({"tree.shape": "compact"}).plan(Facts(num_users=3_400, num_items=7_129))
    assert compact.tree.shape == (7, 11)


def test_a_shape_by_two_numbers(split):
    dtr = load_method("dtr")
    small = {"model.width": 8, "model.windows": [4, 2], "model.mlp": [4], "tree.branching": 2, "tree.start": "random"}
    fitted = beamwood.fit(split, "dtr", SHORT | small | {"tree.shape": [3, 6]}, progress=False)
    assert fitted.searcher.tree.shape == Shape(3, 2, 6)
    assert fitted.metadata["plan"]["tree"]["shape"] == [3, 6]
    with pytest.raises(InputError, match="90 items do not fit into 12 leaves; raise depth"):
        beamwood.fit(split, "dtr", SHORT | small | {"tree.shape": [3, 3]}, progress=False)
    for wrong in ("complet", [2], [2.5, 3], [True, 3], "23", None):
        with pytest.raises(InputError, match=r"tree\.shape=.*give compact, complete, or two whole numbers"):
            dtr.configured({"tree.shape": wrong})


def test_which_tables_are_lazy():
    large, small = LAZY_FROM, LAZY_FROM - 1
    assert [embeddings_of("auto", *rows) for rows in ((small,), (large,), (small, large), (large, large))] == [
        "adam",
        "lazy-adam",
        "large",
        "lazy-adam",
    ]
    assert embeddings_of("adam", large) == "adam"
    towers = load_method("two_tower").Config
    few = Facts(num_users=LAZY_FROM, num_items=50)
    assert towers(**{"model.user_tower": "mf"}).plan(few).optimiser.embeddings == "large"
    assert towers(**{"model.user_tower": "mf", "loss.negatives": "full"}).plan(few).optimiser.embeddings == "lazy-adam"
    assert towers().plan(few).optimiser.embeddings == "adam"


def test_where_vectors_start():
    assert [start_of("auto", number) for number in (MAX_TRANSITION_ITEMS, MAX_TRANSITION_ITEMS + 1)] == [
        "transitions",
        "random",
    ]
    assert start_of("auto", 5, possible=False) == "random"
    assert start_of("transitions", MAX_TRANSITION_ITEMS + 1, possible=False) == "transitions"
    sasrec = load_method("sasrec").Config
    assert sasrec(**{"model.item_column": "v"}).plan(SMALL).start.items == "random"
    ranker = load_method("ranker").Config
    kinds = {kind: ranker(**{"model.kind": kind}).plan(SMALL) for kind in ("graphrec", "neumf", "din")}
    assert {kind: (plan.model.width, plan.start.items) for kind, plan in kinds.items()} == {
        "graphrec": (20, "random"),
        "neumf": (8, "random"),
        "din": (64, "transitions"),
    }


def test_the_facts_of_a_data_set(split):
    train = split.train
    lengths = train.histories.lengths
    assert Facts.of(train) == Facts(60, 90, float(lengths[lengths > 0].mean()), has_categories=True)
    bare = Dataset.from_log(read_log(pl.DataFrame({"user": [1, 1, 2], "item": [3, 4, 4]})))
    assert Facts.of(bare) == Facts(2, 2, 1.5, has_categories=False)


def test_the_plan_is_reported_stored_and_checked(split, tmp_path, capsys):
    run = RunFolder(tmp_path / "run")
    given = SHORT | {"model.width": 8, "model.windows": [4, 2], "model.mlp": [4]}
    fitted = beamwood.fit(split, "dtr", given, run=run)
    said = capsys.readouterr().err.splitlines()
    (line,) = (each for each in said if each.startswith("dtr, planned: "))
    assert 'tree.start="transitions", tree.shape=[6, 2]' in line
    assert "model.similarity_width=90, model.num_neighbours=0" in line
    assert "loop" not in line
    config, plan = fitted.metadata["config"], fitted.metadata["plan"]
    assert (config["tree"]["start"], config["optimiser"]["learning_rate"]) == ("auto", None)
    assert (plan["tree"]["start"], plan["optimiser"]["learning_rate"]) == ("transitions", 1.5e-3)
    chosen = load_method("dtr").Config(**given, **{"model.neighbours": plan["model"]["neighbours"]})
    assert load_method("dtr").Config(**plan) == planned(chosen, split.train)
    fitted.save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").metadata["plan"] == plan
    kept = json.loads(run.config_path.read_text())
    assert kept["tree.shape"] == [6, 2]
    # The plan given as settings is the same run; another plan is not.
    beamwood.fit(split, "dtr", plan, run=run, resume=True, progress=False)
    with pytest.raises(InputError, match=r"was trained with tree\.shape=\[6, 2\], now it is \[16, 2\]"):
        beamwood.fit(split, "dtr", given | {"tree.shape": "complete"}, run=run, resume=True, progress=False)
    capsys.readouterr()
    beamwood.fit(split, "dtr", given, progress=False)
    assert "planned" not in capsys.readouterr().err


def test_fitting_the_plan_equals_fitting_the_settings(split):
    given = SHORT | {"model.width": 8, "model.windows": [4, 2], "model.mlp": [4]}
    first = beamwood.fit(split, "dtr", given, progress=False)
    again = beamwood.fit(split, "dtr", first.metadata["plan"], progress=False)
    assert_same_arrays(first, again)


def test_the_command_line_reports_the_plan(tmp_path, capsys):
    rows = np.arange(240)
    log = tmp_path / "log.parquet"
    pl.DataFrame({"user_id": rows % 20, "item_id": (rows * rows // 20) % 12, "timestamp": rows}).write_parquet(log)
    assert command("fit", log, "--method", "sasrec", "--set", "loop.max_steps=1", "--out", tmp_path / "out") == 0
    said = capsys.readouterr()
    meant = 'start.items="transitions", loss.sampled_negatives=null, optimiser.item_decay=0.0'
    assert f"sasrec, planned: {meant}\n" in said.err
    assert command("fit", log, "--method", "ease", "--out", tmp_path / "ease") == 0
    assert "planned" not in capsys.readouterr().err


@pytest.mark.parametrize(("mean_history", "wanted"), [(1.0, 20), (6.0, 48), (100.0, 200)])
def test_two_towers_validate_after_each_epoch_of_a_small_log(mean_history, wanted):
    config = load_method("two_tower").Config()
    facts = Facts(num_users=16_554, num_items=10_506, mean_history=mean_history)
    assert config.plan(facts).loop.evaluate_every == wanted
    given = load_method("two_tower").configured({"loop.evaluate_every": 70})
    assert given.plan(facts).loop.evaluate_every == 70


@pytest.mark.parametrize(
    ("name", "num_users", "mean_history", "given", "wanted"),
    [
        ("sasrec", 1_000_000, 165.0, {}, 32),
        ("sasrec", 25_000, 9.0, {}, 32),
        ("sasrec", 200_000, 9.0, {}, 200),
        ("sasrec", 2_000_000, 9.0, {}, 276),
        ("gru4rec", 100_000, 5.4, {}, 100),
        ("sasrec", 200_000, 9.0, {"loop.batch_size": 32}, 32),
        ("caser", 200_000, 9.0, {}, 256),
    ],
)
def test_large_logs_of_short_histories_have_more_windows_in_a_step(name, num_users, mean_history, given, wanted):
    """An epoch has about 1,000 steps, unless a step would then have more examples than one of full windows."""
    facts = Facts(num_users=num_users, num_items=5_000, mean_history=mean_history)
    assert load_method(name).Config(**given).plan(facts).loop.batch_size == wanted


@pytest.mark.parametrize(
    ("name", "num_users", "num_items", "wanted"),
    [
        ("sasrec", 50, 270, 20),
        ("sasrec", 1_200, 900, 37),
        ("gru4rec", 6_040, 3_706, 188),
        ("sasrec", 60_000, 3_706, 200),
        ("caser", 1_200, 900, 200),
        ("lpo4rec", 1_200, 900, 37),
        ("sasrec", 50, 40, 200),
    ],
)
def test_sequence_methods_validate_after_each_epoch_of_a_small_log(name, num_users, num_items, wanted):
    facts = Facts(num_users=num_users, num_items=num_items, mean_history=48.0)
    method = load_method(name)
    assert method.Config().plan(facts).loop.evaluate_every == wanted
    assert method.configured({"loop.evaluate_every": 70}).plan(facts).loop.evaluate_every == 70
