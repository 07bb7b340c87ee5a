"""Settings that belong to one value of another setting are refused beside others, as they would have no effect."""

import pytest

from beamwood.errors import InputError
from beamwood.methods import METHODS, load_method

MARKED = [
    (name, f"{group}.{key}", mark)
    for name in METHODS
    for group in load_method(name).Config.model_fields
    for key, mark in load_method(name).Config.group(group).marks()
]


@pytest.mark.parametrize("name", METHODS)
def test_marks_name_settings_and_values_of_the_method(name):
    described = load_method(name).described()
    marks = [(setting, mark) for method, setting, mark in MARKED if method == name]
    for setting, mark in marks:
        assert mark.setting in described, setting
        assert mark.setting != setting
        choices = described[mark.setting]["choices"]
        assert not choices or set(map(str, mark.values)) <= set(choices), setting


def test_the_marked_settings_are_those_of_losses_samplers_trees_and_encoders():
    marked = {(name, setting) for name, setting, _ in MARKED}
    assert {
        ("two_tower", "loss.rate"),
        ("two_tower", "model.num_heads"),
        ("ranker", "loss.leaky"),
        ("ranker", "optimiser.ndcg_learning_rate"),
        ("lpo4rec", "loss.tau"),
        ("dtr", "tree.rollback"),
        ("sasrec", "optimiser.floor"),
    } <= marked


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("ranker", {"loss.kind": "logistic", "loss.leaky": True}, "loss.leaky=True has no effect with loss.kind=log"),
        ("lpo4rec", {"loss.preference": "simpo", "loss.tau": 0.5}, "loss.tau=0.5 .* set loss.preference=lpo$"),
        ("lpo4rec", {"loss.reweight": False, "loss.reweight_strength": 2}, "with loss.reweight=false; .* set loss.rew"),
        ("two_tower", {"loss.form": "weighted"}, "with loss.negatives=xir; leave it out, or set loss.negatives=bir"),
        ("two_tower", {"model.num_heads": 4}, "with model.user_tower=mean; .* set model.user_tower=sasrec"),
        ("dtr", {"tree.rollback": True}, "tree.rollback=True has no effect with tree.updates=0; .* set tree.updates$"),
        ("dtr", {"loss.estimator": "ease"}, "set loss.labels=rectified or one-step"),
        ("dtr", {"loss.negatives": "tree", "loss.depth_alpha": 0.5}, "set loss.negatives=uniform"),
        ("sasrec", {"optimiser.schedule": "constant", "optimiser.floor": 1e-4}, "optimiser.floor=0.0001 has no effect"),
    ],
)
def test_a_setting_without_effect_is_refused(name, given, said):
    method = load_method(name)
    for config in (given, method.Config(**given)):
        with pytest.raises(InputError, match=said):
            method.configured(config)


def test_with_its_choice_a_setting_is_accepted():
    towers = load_method("two_tower")
    assert towers.configured({"loss.negatives": "bir", "loss.form": "weighted"}).loss.form == "weighted"
    tree = load_method("dtr").configured({"tree.updates": 2, "tree.rollback": True})
    assert tree.tree.rollback


def test_a_preset_is_for_each_choice():
    towers = load_method("two_tower")
    assert towers.configured({"loss.negatives": "ssl"}, "paper").loss.cache_share == 0.2
    # A value of the user is not the preset's.
    with pytest.raises(InputError, match=r"loss.cache_share=0.9 has no effect"):
        towers.configured({"loss.negatives": "ssl", "loss.cache_share": 0.9}, "paper")


@pytest.mark.parametrize("name", METHODS)
def test_stored_settings_are_read_again(name):
    method = load_method(name)
    for preset in (None, *method.presets):
        config = method.configured(None, preset)
        assert method.Config(**config.flat()) == config
