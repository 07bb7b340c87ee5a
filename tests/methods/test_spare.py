"""Spare leaves for new items: the plan has them only in the tree's shape."""

import pytest

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
