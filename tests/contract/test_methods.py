"""The method contract, for every method that needs only a split, and for a custom method file."""

from pathlib import Path

import pytest

from beamwood.methods import METHODS, load_method
from beamwood.testing import MethodContract
from plans import read_by

FILES = Path(__file__).parent.parent / "one_file"
SHORT = {
    "loop.max_steps": 4,
    "loop.evaluate_every": 2,
    "loop.batch_size": 16,
    "choose.validation_users": 20,
    "model.width": 8,
    "optimiser.decay_steps": 4,
    "tree.branching": 4,
    "model.mlp": (8, 4),
    "model.windows": (4, 2, 1),
    "model.attention_hidden": 4,
    "model.length": 6,
}


def contract_of(named):
    method = load_method(named)
    return type(f"Test_{method.name}", (MethodContract,), {"method": method, "settings": read_by(method, SHORT)})


for each in [*METHODS, *map(str, sorted(FILES.glob("*.py")))]:
    if load_method(each).needs.alone:
        found = contract_of(each)
        globals()[found.__name__] = pytest.mark.filterwarnings("ignore:no native form")(found)
