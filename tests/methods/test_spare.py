"""Spare leaves for new items: the plan has them only in the tree's shape."""

import pytest

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.plan import Facts
from beamwood.methods import load_method
from beamwood.tree import Shape

FACTS = Facts(num_users=100, num_items=3883, mean_history=40.0)


def plan(**settings):
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return load_method("dtr").configured(named, None).plan(FACTS).flat()


@pytest.mark.parametrize("shape", ["compact", "complete"])
@pytest.mark.parametrize("spare", [0.01, 0.05, 0.5])
def test_spare_leaves_are_planned_as_a_shape(shape, spare):
    planned = plan(tree__shape=shape, tree__spare=spare)
    root_fanout, depth = planned["tree.shape"]
    assert Shape(root_fanout, planned["tree.branching"], depth).capacity >= 3883 * (1 + spare)
    assert "tree.spare" not in planned


def test_a_plan_without_spare_leaves_does_not_name_them():
    assert "tree.spare" not in plan()


def test_spare_leaves_need_a_tree():
    with pytest.raises(InputError, match=r"tree\.start=flat is not"):
        plan(tree__start="flat", tree__spare=0.05)
    with pytest.raises(InputError, match="spare is for a shape that is chosen"):
        plan(tree__shape=[4, 4], tree__spare=0.05)


def test_a_fit_reports_the_shape_with_spare_leaves(capsys):
    market = make_market(MarketConfig(num_users=40, num_items=60, max_events=30), seed=1)
    split = leave_one_out(Dataset.from_log(read_log(market.log)))
    small = {"model.width": 8, "model.windows": [4, 2], "model.mlp": [4], "loop.max_steps": 1, "loop.batch_size": 8}
    beamwood.fit(split, "dtr", small | {"tree.spare": 0.5})
    (line,) = (each for each in capsys.readouterr().err.splitlines() if each.startswith("dtr, planned: "))
    assert "tree.shape=" in line
    assert "tree.spare" not in line
