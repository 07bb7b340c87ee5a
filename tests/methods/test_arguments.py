"""Arguments of `beamwood.fit`, and its errors."""

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.evaluation.protocol import evaluate_both
from beamwood.fitting.tree.settings import TreeSettings
from beamwood.fitting.vectors import item_start
from beamwood.methods import METHODS, load_method
from beamwood.training.budget import Budget
from beamwood.training.pace import Pace
from beamwood.training.run_folder import RunFolder
from plans import planned

SMALL = {
    "model.width": 4,
    "model.length": 4,
    "model.num_blocks": 1,
    "loop.max_steps": 2,
    "loop.evaluate_every": 1,
    "choose.validation_users": 5,
}


@pytest.fixture(scope="module")
def split():
    rows = np.arange(240)
    frame = pl.DataFrame({"user_id": rows % 20, "item_id": (rows + rows // 20) % 12, "timestamp": rows})
    return disjoint_users(Dataset.from_log(read_log(frame)), seed=1)


def test_a_mapping_is_accepted_as_configuration(split):
    ours = beamwood.fit(split, "sasrec", SMALL, progress=False)
    theirs = beamwood.fit(split, "sasrec", load_method("sasrec").Config(**SMALL), progress=False)
    assert ours.metadata["config"] == theirs.metadata["config"]
    assert ours.metadata["training"]["steps"] == 2


@pytest.mark.parametrize("method", ["dtr", "sasrec", "two_tower"])
def test_the_largest_seed_is_accepted(split, method):
    settings = {"loop.max_steps": 1, "loop.evaluate_every": 1, "choose.validation_users": 5}
    settings |= {"examples.min_history": 2, "model.windows": [4, 2]} if method == "dtr" else {}
    fitted = beamwood.fit(split, method, settings, seed=np.int64(2**63 - 1), progress=False)
    assert fitted.metadata["seed"] == 2**63 - 1


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"max_step": 2}, {}, "'max_step' is unknown; did you mean 'loop.max_steps'"),
        ({"max_steps": 2}, {}, "configuration: max_steps belongs to a group: write loop.max_steps"),
        ({"loop": {"max_step": 2}}, {}, "'loop.max_step' is unknown; did you mean 'loop.max_steps'"),
        ({"loop.learning_rate": 2}, {}, "'loop.learning_rate' is unknown; did you mean 'optimiser.learning_rate'"),
        ({1: 2}, {}, "configuration: the name 1 is not text; write names as 'loop.max_steps'"),
        ({"loop": 3}, {}, r"loop=3: is not a group of settings; write loop=\{\.\.\.\} with the keys of the group"),
        ({"loop.max_steps": None}, {}, "loop.max_steps and loop.max_epochs are both null; give one of them"),
        ({"optimiser.schedule": "exponential"}, {}, "schedule=exponential needs optimiser.decay_steps; give a number"),
        ({"optimiser.learning_rate": None}, {}, "optimiser.learning_rate=null: give a number; the default is 0.003"),
        ({"loop.max_steps": 0}, {}, "loop.max_steps=0: give a whole number from 1, or null"),
        ({"loop.max_steps": True}, {}, "loop.max_steps=True: give a whole number from 1, or null"),
        ({"optimiser.learning_rate": False}, {}, "optimiser.learning_rate=False: give a number"),
        (load_method("popularity").Config(), {}, "give beamwood.methods.sasrec.Config, or a mapping"),
        ("loop.max_steps=2", {}, "config is a builtins.str; give beamwood.methods.sasrec.Config"),
        (SMALL, {"time_limit": 0}, "time_limit=0 is not a number of seconds above 0; leave it out"),
        (SMALL, {"time_limit": -1}, "time_limit=-1"),
        (SMALL, {"time_limit": True}, "time_limit=True is not a number of seconds"),
        (SMALL, {"time_limit": float("nan")}, "time_limit=nan"),
        (SMALL, {"time_limit": "30m"}, "time_limit='30m'"),
        (SMALL, {"seed": 2**63}, "seed=9223372036854775808 is not a whole number in 0..9223372036854775807"),
        (SMALL, {"run": "mine.run"}, r"run='mine\.run' is not a run folder; give .*RunFolder\('mine\.run'\)"),
        (SMALL, {"resume": True}, r"resume needs the folder of the run; give run=RunFolder\(path\)"),
        (SMALL, {"seed": -1}, "seed=-1 is not a whole number"),
        (SMALL, {"seed": 1.5}, "seed=1.5 is not a whole number"),
    ],
)
def test_wrong_arguments(split, config, options, message):
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, "sasrec", config, progress=False, **options)


@pytest.mark.parametrize("method", ["popularity", "ease", "cooccurrence+ease"])
def test_a_counting_method_refuses_a_run(split, method, tmp_path):
    """It has no steps to write down or to go on with."""
    first = method.split("+")[0]
    for option, value in {"run": RunFolder(tmp_path / "run"), "resume": True}.items():
        with pytest.raises(InputError, match=f"{option} is for a fit that trains by steps, .* {first} does not; leave"):
            beamwood.fit(split, method, **{option: value})
    assert not any(tmp_path.iterdir())
    beamwood.fit(split, method, run=None, resume=False)


@pytest.mark.parametrize("method", [["dtr"], 3])
def test_a_method_must_be_a_name(split, method):
    with pytest.raises(
        InputError, match=f"method must be a name, .* not {type(method).__name__}; known: .*cooccurrence"
    ):
        beamwood.fit(split, method)


def test_an_unmeasured_monitor_is_refused_before_training(split, monkeypatch):
    monkeypatch.setattr("beamwood.fitting.run.run_loop", lambda *_, **__: pytest.fail("it trains"))
    with pytest.raises(InputError, match=r"choose.monitor='removed/f@10' is not measured; did you mean 'removed/f@20'"):
        beamwood.fit(split, "sasrec", SMALL | {"choose.monitor": "removed/f@10"}, progress=False)


def test_a_method_refuses_a_time_limit_of_zero(split):
    sasrec = load_method("sasrec")
    with pytest.raises(InputError, match="time_limit=0 is not above 0"):
        sasrec.fit(split, planned(sasrec.Config(**SMALL), split.train), time_limit=0, progress=False)


@pytest.mark.parametrize(("limit", "left"), [(100, 30), (70.5, 0.5), (None, np.inf)])
@pytest.mark.parametrize("method", ["dtr", "sasrec"])
def test_initialisation_counts_against_the_time_limit(split, monkeypatch, method, limit, left):
    """Counting transitions takes seventy seconds here."""
    seen, now, counted = {}, [1000.0], item_start.neighbour_matrix

    def slowly(*arguments, **options):
        now[0] += 70
        return counted(*arguments, **options)

    def trained(pace):
        seen["left"] = pace.budget.left
        raise KeyboardInterrupt

    monkeypatch.setattr(item_start, "neighbour_matrix", slowly)
    monkeypatch.setattr(Pace, "check_limit", trained)
    with pytest.raises(KeyboardInterrupt):
        beamwood.fit(split, method, progress=False, time_limit=Budget(limit, clock=lambda: now[0]))
    assert seen["left"] == left


def test_a_data_set_is_not_accepted_as_a_split(split):
    with pytest.raises(InputError, match=r"split is a Dataset, not a Split; make one, as .*disjoint_users"):
        beamwood.fit(split.dataset, "sasrec")


def test_a_custom_split_is_checked_by_its_content(split):
    """Test users without training data are unknown, whatever the split's name; validation users are required."""
    own = replace(split, name="mine")
    with pytest.raises(InputError, match=r"model\.kind=graphrec recommends to .* but --split mine tests on others"):
        beamwood.fit(own, "ranker", progress=False)
    assert not leave_one_out(split.dataset).tests_unknown_users
    nobody = replace(own, valid=own.valid.take(np.zeros(0, int)))
    with pytest.raises(
        InputError, match=r"no validation users, on whom a fit makes its choices; give split\.valid at least one"
    ):
        beamwood.fit(nobody, "ease")


def test_evaluate_accepts_the_split_of_the_fit(split, tmp_path):
    fitted = beamwood.fit(split, "popularity")
    fitted.save(tmp_path / "popular")
    views = beamwood.evaluate(beamwood.load(tmp_path / "popular"), split, ks=(5, 10))
    direct = evaluate_both(fitted.searcher, split.test, ks=(5, 10))
    assert list(views) == ["kept", "removed"]
    for view, result in views.items():
        assert result.means()["f@10"] == direct[view].means()["f@10"]
        np.testing.assert_array_equal(result.values["ndcg@5"], direct[view].values["ndcg@5"])
    assert views["kept"].means()["hit_rate@10"] > 0


def test_evaluate_refuses_another_split(split):
    fitted = beamwood.fit(split, "popularity")
    with pytest.raises(InputError, match=r"the retriever was fitted on another split .* fit it with the same --split"):
        beamwood.evaluate(fitted, disjoint_users(split.dataset, seed=2))
    with pytest.raises(InputError, match="retriever is a str; give the result of beamwood"):
        beamwood.evaluate("runs/mine", split)
    with pytest.raises(InputError, match="split is a Queries, not a Split"):
        beamwood.evaluate(fitted, split.test)
    for ks in (20, ("20",), (1.5,)):
        with pytest.raises(InputError, match=r"is not a list of whole numbers; give cuts, as ks="):
            beamwood.evaluate(fitted, split, ks=ks)


def test_an_estimator_may_be_a_retriever(split):
    few = {
        "loop.max_steps": 2,
        "model.width": 4,
        "model.attention_hidden": 4,
        "model.windows": [4, 2],
        "model.mlp": [4],
        "examples.min_history": 2,
    }
    chosen = few | {"loss.labels": "rectified", "loss.num_negatives": 3}
    counted = beamwood.fit(split, "cooccurrence")
    whole = beamwood.fit(split, "dtr", chosen, progress=False, estimator=counted)
    bare = beamwood.fit(split, "dtr", chosen, progress=False, estimator=counted.searcher)
    assert whole.recommend(users=[3], k=5) == bare.recommend(users=[3], k=5)
    with pytest.raises(InputError, match=r"estimator='sasrec' does not score items; .* is a setting"):
        beamwood.fit(split, "dtr", chosen, progress=False, estimator="sasrec")
    other = beamwood.fit(disjoint_users(split.dataset, seed=2), "cooccurrence")
    with pytest.raises(InputError, match="the estimator was fitted on another split"):
        beamwood.fit(split, "dtr", chosen, progress=False, estimator=other)


@pytest.mark.parametrize(
    ("method", "config", "message"),
    [
        ("two_stage", {"model.length": 2**16 + 1}, "model.length=65537: give a whole number from 1 to 65536"),
        ("two_stage", {"model.width": 70_000}, "model.width=70000: give a whole number from 1 and below 16384"),
        (
            "two_stage",
            {"model.attention": [70_000]},
            "attention has 70000: give a list of one value or more, each a whole number from 1 and below 16384",
        ),
        (
            "two_stage",
            {"examples.horizon": 2**63},
            "examples.horizon=9223372036854775808: numbers must be between -2147483647 and",
        ),
        (
            "ranker",
            {"loss.num_negatives": 2**16},
            "examples.num_positives=5 and loss.num_negatives=65536 make a list of more than 65536",
        ),
        ("dtr", {"model.width": 2**14}, "model.width=16384: give a whole number from 1 and below 16384"),
        ("dtr", {"model.mlp": [8, 70_000]}, "mlp has 70000: give a list of"),
        ("dtr", {"model.attention_hidden": 70_000}, "model.attention_hidden=70000: give a whole number from"),
        (
            "dtr",
            {"model.windows": [2**15, 2**15, 1]},
            "cover 65537 items of a history, above 65536; give shorter windows",
        ),
        ("dtr", {"examples.horizon": 2**31}, "examples.horizon=2147483648: numbers must be between"),
        (
            "melt",
            {"optimiser.learning_rate": 1e38},
            r"learning_rate=1e\+38: numbers must be between -2147483647 and 2147483647",
        ),
        ("caser", {"model.length": 2**16 + 1}, "model.length=65537: give a whole number from 1 to 65536"),
        ("two_tower", {"model.length": 2**16 + 1}, "model.length=65537: give a whole number from 1 to 65536"),
        ("ease", {"model.num_neighbours": 2**63}, "model.num_neighbours=9223372036854775808: numbers must be between"),
    ],
)
def test_settings_that_are_too_large_are_refused(split, method, config, message):
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, method, config, progress=False)


def number_in(annotation):
    """int or float if the annotation contains one, else None."""
    if annotation in (int, float):
        return annotation
    return next((kind for kind in map(number_in, get_args(annotation)) if kind), None)


@pytest.mark.parametrize("method", METHODS)
def test_every_number_of_every_method_has_a_bound(method):
    module, numbers = load_method(method), 0
    for name in module.Config.names():
        group, _, key = name.partition(".")
        kind = number_in(module.Config.group(group).model_fields[key].annotation)
        if kind is None:
            continue
        numbers += 1
        with pytest.raises(InputError, match=f"configuration: {name}"):
            module.configured({name: 2**63 if kind is int else 1e38})
    assert numbers > 2 or method == "popularity"


# Settings whose words, or null, a family of methods defines.
OWN = {"model.width", "model.num_neighbours", "loss.negatives", "loss.num_negatives"}
OWN |= {"model.num_candidates", "loss.sampled_negatives", "loop.device"}


def test_each_setting_is_defined_once_and_described_in_twenty_words():
    known = {}
    for method in METHODS:
        kind = load_method(method).Config
        for name in kind.names():
            group, _, key = name.partition(".")
            schema = kind.group(group).model_json_schema()["properties"][key]
            assert 0 < len(schema["description"].split()) <= 20, name
            assert schema["description"][-1] != ".", name
            known.setdefault(name, []).append({k: v for k, v in schema.items() if k not in ("default", "title")})
    differ = {name for name, schemas in known.items() if any(schema != schemas[0] for schema in schemas)}
    assert differ == OWN
    assert len(known) > 100


def test_given_settings_override_the_methods_defaults():
    dtr = load_method("jtm")
    default = dtr.Config()
    assert (default.tree.updates, default.tree.learner, default.given) == (1, "binary", frozenset())
    for given in ({"tree": {"stride": 3}}, {"tree.stride": 3}, {"tree": TreeSettings(stride=3)}):
        config = dtr.Config(**given)
        assert (config.tree.updates, config.tree.learner, config.tree.stride) == (1, "binary", 3)
        assert config.given == {"tree.stride"}
        assert config == default.changed(given)
    again = config.changed({"tree.updates": 1, "loop": {"max_steps": 3}})
    assert again.given == {"tree.stride", "tree.updates", "loop.max_steps"}
    assert again.loop.evaluate_every == default.loop.evaluate_every
    assert dtr.Config(**again.flat()) == again
    for wrong in ({"tree": {"stride": 0}}, {"tree": TreeSettings.model_construct({"stride"}, stride=0)}):
        with pytest.raises(ValueError, match=r"greater than or equal to 1"):
            dtr.Config(**wrong)
    with pytest.raises(ValueError, match="frozen"):
        again.loop.max_steps = 7


@pytest.mark.parametrize(
    ("method", "setting", "value", "message"),
    [
        (
            "sasrec",
            "loss.sampled_negatives",
            "null",
            "='null': give a whole number from 1, 'auto', or null; null is None",
        ),
        ("sasrec", "loss.sampled_negatives", 0, "=0: give a whole number from 1, 'auto', or null$"),
        ("sasrec", "loss.sampled_negatives", "atuo", r"='atuo': give .*, or null; did you mean 'auto'\?$"),
        ("dtr", "tree.branching", 2.5, "=2.5: give a whole number from 2"),
        ("dtr", "model.mlp", 8, r"=8: give a list of one value or more, .*, as \[8\]$"),
        (
            "cooccurrence",
            "model.decay",
            "x",
            " has 'x': give a list of one value or more, each a number above 0 and at most 1$",
        ),
        ("cooccurrence", "model.decay", [], r"=\[\]: give a list of one value or more, each a number"),
    ],
)
def test_an_error_names_the_allowed_values(method, setting, value, message):
    with pytest.raises(InputError, match=f"^configuration: {setting}{message}"):
        load_method(method).configured({setting: value})


@pytest.mark.parametrize(
    ("method", "setting", "message"),
    [
        ("sasrec", "tree.branching", r"dtr, tdm, jtm, otm and \d+ more; leave it out$"),
        ("ranker", "model.context_columns", "two_stage; here there are model.kind, model.width, "),
    ],
)
def test_a_setting_of_other_methods_names_them(method, setting, message):
    with pytest.raises(InputError, match=f"^configuration: setting '{setting}' belongs to {message}"):
        load_method(method).configured({setting: 8})


@pytest.mark.parametrize("method", METHODS)
def test_errors_do_not_quote_other_packages(method):
    """The suggested value is itself accepted."""
    loaded = load_method(method)
    for name in loaded.Config.names():
        for value in ("abc", "null", None, -1, 1e30, True, [1], 0, 2.5, [], {"a": 1}, float("nan")):
            try:
                loaded.configured({name: value})
            except InputError as error:
                said = str(error)
                assert not re.search(r"Input should|unable to|valid |constrained|literal|Tuple|pydantic", said), said
                assert name in said or "settings" in said or "give " in said, said
                if said.endswith(f", as [{value!r}]"):
                    loaded.configured({name: [value]})
