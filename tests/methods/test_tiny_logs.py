"""Logs of a few items and users: each method and index answers, or gives one line that names the fix."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.errors import InputError
from beamwood.methods import METHODS, load_method
from beamwood.retrieval.index import INDEXES
from plans import read_by

LOGS = {"three items": (3, 5, 20), "two items": (2, 3, 12)}
STEPS = {"loop.max_steps": 2, "loop.evaluate_every": 1, "model.width": 8, "model.length": 4, "optimiser.decay_steps": 2}
# Methods that cannot answer on so few items, and the fix in their error.
REFUSED = {
    "lpo4rec": r"lower loss\.(tail_share or model\.length|num_negatives)",
    "ranker": "set choose.protocol=full and choose.monitor=removed/ndcg@20",
}
ALONE = [name for name in METHODS if load_method(name).needs.alone]


@pytest.fixture(params=LOGS)
def split(request):
    items, users, rows = LOGS[request.param]
    draw = np.random.default_rng(8)
    log = pl.DataFrame({"user": np.arange(rows) % users, "item": draw.integers(items, size=rows), "time": range(rows)})
    dataset = beamwood.Dataset.from_log(beamwood.read_log(log))
    assert dataset.num_items == items
    return beamwood.splits.leave_one_out(dataset)


def short(name, **more):
    return read_by(load_method(name), STEPS | more)


def answers(retriever):
    found = retriever.recommend([[0], []], k=len(retriever.items), seen="keep")
    return [sorted(row) for row in found.item_ids]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in ALONE if name not in REFUSED])
def test_a_method_answers_all_items_of_a_tiny_log(split, name):
    retriever = beamwood.fit(split, name, short(name))
    every = sorted(split.train.items.ids.to_list())
    assert answers(retriever) == [every, every]


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_cannot_names_the_setting(split, name):
    with pytest.raises(InputError, match=REFUSED[name]) as error:
        beamwood.fit(split, name, short(name))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("index", INDEXES)
def test_an_index_answers_all_items_of_a_tiny_log(split, index):
    retriever = beamwood.fit(split, "two_tower", short("two_tower", **{"index.kind": index}))
    every = sorted(split.train.items.ids.to_list())
    assert answers(retriever) == [every, every]
