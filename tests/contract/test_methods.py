"""The method contract, for every method that needs only a split, and for a custom method file."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from beamwood.data.queries import Queries
from beamwood.methods import METHODS, load_method
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.testing import MethodContract
from beamwood.types import ItemLists
from own_files import METHOD_FILES
from plans import read_by

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


for each in [*METHODS, *map(str, METHOD_FILES)]:
    if load_method(each).needs.alone:
        found = contract_of(each)
        globals()[found.__name__] = pytest.mark.filterwarnings("ignore:no native form")(found)


class Shifted(PopularitySearcher):
    """Its scores are not those of its search."""

    def score(self, query, items_BM):
        return super().score(query, items_BM) + 1


def test_a_score_unlike_that_of_the_search_breaks_the_contract():
    histories = ItemLists.from_lists([[0], [1], [2], [3]])
    test = Queries(np.arange(4), histories, histories, histories)
    for kind, broken in ((PopularitySearcher, False), (Shifted, True)):
        retriever = SimpleNamespace(searcher=kind(np.arange(9)))
        with pytest.raises(AssertionError) if broken else nullcontext():
            MethodContract().test_score_equals_search(SimpleNamespace(test=test), retriever)
