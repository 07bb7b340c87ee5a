"""Settings that the other settings leave unread are refused where the user gives them, and only there."""

from pathlib import Path

import pytest

from beamwood.errors import InputError
from beamwood.fitting.effect import NotBoth, Only
from beamwood.fitting.plan import Facts
from beamwood.methods import METHODS, load_method

ONE_FILE = Path(__file__).parents[1] / "one_file"
METHODS_BY_NAME = {name: load_method(name) for name in METHODS}
# Once for each group of settings and each choice that a method has in its configuration; DIN's tree is always flat.
EVERY = list(
    {
        (method.Config.group(group), key, condition, name == "din"): (name, f"{group}.{key}", condition)
        for name, method in METHODS_BY_NAME.items()
        for group in method.Config.model_fields
        for key, conditions in method.Config.group(group).conditions().items()
        for condition in conditions
        if {f"{group}.{key}", *condition.choices} <= set(method.described())
    }.values()
)
# Another value than the default, by the setting; of others it is derived from the default.
OTHER = {
    "tree.shape": "complete",
    "tree.vectors": "folder",
    "tree.learner": "kmeans",
    "tree.stride": 2,
    "tree.embeddings": "node",
    "tree.after_update": "keep",
    "model.num_blocks": 3,
    "model.known_users": "trained",
    "start.folder": "folder",
    "start.items": "random",
    "loss.level_reduction": "sum",
    "loss.tail_of": "prefixes",
    "start.surrogate": "wide",
    "start.item_column": "text",
    "loss.estimator": "sasrec",
    "loss.surrogate": "mlp",
    "loss.pi": "prob",
    "loss.negatives": "top",
    "loss.correction": "program",
    "loss.form": "weighted",
    "loss.draw": "independent",
    "loss.cache_counts": "all",
    "optimiser.decay": "coupled",
}


def default(method, name):
    group, _, key = name.partition(".")
    return dict(method.Config.model_fields[group].default)[key]


def another(method, name):
    value = default(method, name)
    if name in OTHER:
        return next(each for each in (OTHER[name], "binary", 4) if each != value)
    if value is None:
        return 3
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return [*value, 8]
    return value / 2 if isinstance(value, float) and value else value + 1


def unread_with(method, condition):
    """Values of the choices with which the setting is not read."""
    if isinstance(condition, NotBoth):
        return dict((condition.one, condition.other))
    if condition.choice == "start.folder":
        return {"start.folder": "folder"}
    if not isinstance(condition, Only):
        return {condition.choice: condition.values[0]}
    if condition.choice == "tree.start":
        return {"tree.start": "random" if "random" not in condition.values else "folder"}
    row = method.described()[condition.choice]
    words = [word for word in row["choices"] if word not in condition.values]
    return {condition.choice: words[0] if words else not condition.values[0]}


@pytest.mark.parametrize(("name", "setting", "condition"), EVERY)
def test_a_setting_that_is_not_read_is_refused(name, setting, condition):
    method = load_method(name)
    chosen, other = unread_with(method, condition), another(method, setting)
    if (name == "din") != (chosen.get("tree.start", "flat" if name == "din" else "") == "flat"):
        # Only DIN is flat.
        return
    given = {choice: value for choice, value in chosen.items() if default(method, choice) != value}
    assert condition.problem(setting, chosen) is not None
    with pytest.raises(InputError, match="leave it out, or change"):
        method.configured(given | {setting: other})
    # As an instance, and beside a preset, too.
    with pytest.raises(InputError, match="leave it out, or change"):
        method.configured(method.Config(**given, **{setting: other}))
    # The default asks for nothing else than is done.
    assert method.Config(**given, **{setting: default(method, setting)}).without_effect([setting]) is None


@pytest.mark.parametrize("name", METHODS)
def test_conditions_name_settings_and_their_values(name):
    method = load_method(name)
    rows = method.described()
    for _, setting, condition in (each for each in EVERY if each[0] == name):
        assert setting in rows
        pairs = (condition.one, condition.other) if isinstance(condition, NotBoth) else ()
        for choice, values in [(choice, (value,)) for choice, value in pairs] or [(condition.choice, condition.values)]:
            words = rows[choice]["choices"]
            assert all(value in words for value in values if words and isinstance(value, str))


@pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name in METHODS for preset in load_method(name).presets]
)
def test_presets_may_hold_what_the_user_switches_off(name, preset):
    load_method(name).configured(None, preset)


@pytest.mark.parametrize(
    ("name", "given", "preset", "message"),
    [
        ("ranker", {"loss.kind": "logistic", "loss.leaky": True}, None, "loss.leaky is for loss.kind=guided, not log"),
        ("ranker", {"loss": {"kind": "bpr", "ndcg_at": 3}}, None, "loss.ndcg_at is for loss.kind=guided, not bpr"),
        ("lpo4rec", {"loss.preference": "simpo", "loss.tau": 2.0}, "paper", "loss.tau is for loss.preference=lpo, not"),
        ("lpo4rec", {"model.hidden": 9}, None, "model.hidden is for model.encoder=gru4rec, not sasrec"),
        ("two_tower", {"model.num_heads": 1}, None, "model.num_heads is for model.user_tower=sasrec, not mean"),
        ("dtr", {"tree.rollback": True}, None, "tree.rollback has no effect with tree.updates=0; leave it out, or"),
        ("dtr", {"examples.horizon": 5}, "paper", "examples.horizon has no effect with examples.window=last; leave it"),
        ("din", {"tree.branching": 2}, None, "tree.branching has no effect with tree.start=flat"),
        ("din", {"tree.beam_width": 9}, None, "tree.beam_width has no effect with tree.start=flat"),
        (
            "dtr",
            {"tree.start": "runs/t", "tree.shape": "complete"},
            None,
            "tree.shape is for tree.start=auto or .*runs/t",
        ),
        ("plt", {"model.light_width": 8}, None, "model.light_width=8: plt scores paths"),
        (
            "lpo4rec",
            {"loss.preference": "none", "loss.reweight": False, "loss.tail_of": "prefixes"},
            None,
            "loss.tail_of has no effect with loss.preference=none and loss.reweight=false; leave it out, or change "
            "loss.preference or loss.reweight",
        ),
        (
            "lpo4rec",
            {"loss.preference": "simpo", "loss.negatives": "uniform", "loss.pi": "prob"},
            None,
            "loss.pi has no effect with loss.preference=simpo and loss.negatives=uniform; leave it out, or change",
        ),
        ("lpo4rec", {"start.folder": "run", "start.items": "random"}, None, "start.items is for start.folder=null"),
        ("ranker", {"model.mlp": [8]}, None, "model.mlp is for model.kind=din, not graphrec"),
        ("ranker", {"model.length": 5}, None, "model.length is for model.kind=din, not graphrec"),
        ("ranker", {"examples.horizon": 1}, None, "examples.horizon is for model.kind=din, not graphrec"),
        ("ranker", {"start.attention": 0.5}, None, "start.attention is for model.kind=din, not graphrec"),
        (
            "ranker",
            {"loss.with_logloss": False, "optimiser.learning_rate": 1.0},
            None,
            "kind=guided and loss.with_logloss",
        ),
        ("tiger", {"start.folder": "run", "start.codes": "random"}, None, "start.folder is for start.codes=vectors"),
        ("tiger", {"start.folder": "run", "start.item_column": "text"}, None, "is for start.folder=null, not run"),
    ],
)
def test_the_message_names_the_choice(name, given, preset, message):
    with pytest.raises(InputError, match=message):
        load_method(name).configured(given, preset)


def test_a_preset_is_not_what_the_user_gave():
    config = load_method("lpo4rec").configured({"loss.preference": "simpo", "loss.gamma": 1.0}, "paper")
    assert (config.loss.tau, config.loss.gamma) == (0.1, 1.0)
    # Nor is it in the instance that was made of both.
    assert load_method("lpo4rec").configured(config, "paper") == config


def test_a_score_of_ones_own_may_read_histories():
    own = load_method(str(ONE_FILE / "attended_product.py"))
    assert own.configured({"model.length": 5, "examples.horizon": 1}).model.length == 5


@pytest.mark.parametrize("name", ["sasrec", "gru4rec", "caser", "fmlp", "youtube_dnn", "lpo4rec"])
def test_the_optimiser_of_samples_needs_them(name):
    """Known only with the log where `loss.sampled_negatives` is automatic."""
    lazy, facts = {"optimiser.embeddings": "lazy-adam"}, Facts(num_users=90, num_items=90, mean_history=9.0)
    for negatives in (None, *(["auto"] if name != "youtube_dnn" else [])):
        config = load_method(name).configured(lazy | {"loss.sampled_negatives": negatives})
        with pytest.raises(InputError, match="has no effect with a softmax over all items"):
            config.plan(facts)
    config = load_method(name).configured(lazy | {"loss.sampled_negatives": 8})
    assert config.plan(facts).optimiser.embeddings == "lazy-adam"


def test_settings_that_a_method_does_not_leave_open_are_not_listed():
    """Listed ones are offered: no value of these would be accepted, or read."""
    din, plt = (load_method(name).described() for name in ("din", "plt"))
    assert not [name for name in din if name.startswith("tree.")]
    assert "model.light_width" not in {**din, **plt}
    assert {"model.width", "loss.num_negatives"} <= set(din)
    assert {"model.width", "tree.branching", "tree.start"} <= set(plt)
