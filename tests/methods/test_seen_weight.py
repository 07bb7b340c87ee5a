"""The weight of seen items is best on validation users: negative without repeats, positive with them."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.fitting import blend
from beamwood.fitting.blend import SEEN_WEIGHTS, best_seen_weight
from beamwood.methods import load_method
from beamwood.retrieval.searchers.candidates import find_candidates
from beamwood.types import SearchOptions
from one_view import evaluate_view

SMALL = {
    "model.width": 8,
    "model.length": 12,
    "model.num_blocks": 1,
    "loop.max_steps": 60,
    "loop.evaluate_every": 30,
    "optimiser.learning_rate": 0.01,
}


def log_of(again):
    """Users walk on a ring of 60 items by one to three steps; `again`: they return to one of their last five."""
    rng, rows = np.random.default_rng(0), []
    for user in range(250):
        item, had = int(rng.integers(60)), []
        for _ in range(12):
            item = int(rng.choice(had[-5:])) if had and rng.random() < again else (item + int(rng.integers(1, 4))) % 60
            had.append(item)
        rows += [(user, each, time) for time, each in enumerate(had)]
    return read_log(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"))


@pytest.fixture(scope="module", params=[0.0, 0.8], ids=["never", "often"])
def case(request):
    split = disjoint_users(Dataset.from_log(log_of(request.param)))
    module = load_method("sasrec")
    return request.param, split, module.fitted(split, module.Config(**SMALL), progress=False)


def chosen(searcher, queries):
    """The weight for the vectors of a blend."""
    first = searcher.first
    return best_seen_weight(
        lambda query, k: find_candidates(first, query, k, apart=True), first.needs, queries, "removed/f@20"
    )


def test_the_weight_is_the_best_of_the_grid(case, monkeypatch):
    again, split, retriever = case
    searcher, kept = retriever.searcher, retriever.searcher.seen_weight
    assert kept == retriever.metadata["training"]["seen_weight"]
    assert (kept > 0) if again else (kept < 0)
    values = {}
    for weight in SEEN_WEIGHTS:
        searcher.seen_weight = weight
        values[weight] = evaluate_view(searcher, split.valid, ks=(20,), remove_seen=False).means()["f@20"]
    searcher.seen_weight = kept
    assert values[kept] == max(values.values())
    assert values[kept] > values[0.0]
    monkeypatch.setattr(blend, "_QUERIES_AT_A_TIME", 7)
    assert chosen(searcher, split.valid) == kept


def test_answers_without_seen_items_do_not_change(case, tmp_path):
    _, split, retriever = case
    retriever.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved").searcher
    assert loaded.seen_weight == retriever.searcher.seen_weight
    test = split.test
    ours = loaded.search(test.query(loaded.needs), 20, SearchOptions(test.seen))
    loaded.seen_weight = 0.0
    plain = loaded.search(test.query(loaded.needs), 20, SearchOptions(test.seen))
    assert np.array_equal(ours.items, plain.items)
    assert np.allclose(ours.scores, plain.scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("given", [0.0, -3.0])
def test_a_given_weight_is_kept(given):
    split, module = leave_one_out(Dataset.from_log(log_of(0.0))), load_method("gru4rec")
    config = module.Config(
        **{"model.width": 6, "model.length": 5, "model.hidden": 4, "loop.max_steps": 2, "choose.seen_weight": given}
    )
    assert module.fitted(split, config, progress=False).searcher.seen_weight == given


def test_without_labels_nothing_changes(case):
    _, split, retriever = case
    bare = split.valid.take(np.arange(0))
    assert chosen(retriever.searcher, bare) == 0
