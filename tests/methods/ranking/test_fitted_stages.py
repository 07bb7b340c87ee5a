"""Fitted models as both stages: what ranks, alone and in a chain, and by the name of a counting method."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.cli.main import main
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.fitting import stages
from beamwood.fitting.validation import Validation
from beamwood.methods import load_method
from beamwood.training.budget import Budget
from beamwood.training.run_folder import RunFolder
from beamwood.types import Query, SearchOptions
from clocks import Clock
from rankers import RANKER, STAGES_OF


def test_a_fitted_ranker_orders_a_retrievers_candidates(dataset, first, tmp_path):
    split = leave_one_out(dataset)
    model = RANKER.fitted(split, RANKER.Config(**{"loop.max_steps": 40, "loop.evaluate_every": 20}), progress=False)
    model.save(tmp_path / "ranker")
    config = STAGES_OF.Config(
        **{
            "start.retriever": first["leave-one-out"],
            "start.ranker": str(tmp_path / "ranker"),
            "model.num_candidates": 25,
        }
    )
    assert STAGES_OF.fitted(split, config).searcher.parts[0].weight > 0
    both = STAGES_OF.fitted(split, config.changed({"choose.retriever_weight": 0, "choose.seen_weight": 0}))
    part = split.test.take(np.arange(20))
    query = Query(part.users, part.histories)
    found = both.searcher.search(query, 10, SearchOptions(part.seen, explain=True))
    candidates = found.parts[0].hits
    scores = model.searcher.score(query, candidates.items)
    best = np.take_along_axis(candidates.items, np.argsort(-scores, axis=1, kind="stable")[:, :10], axis=1)
    assert [set(a) for a in best.tolist()] == [set(a) for a in found.items.tolist()]
    with pytest.raises(InputError, match="the ranker has two stages itself; give the folder of a ranker or of one"):
        stages.two_stage(beamwood.load(first["leave-one-out"]), both)
    other = load_method("popularity").fitted(
        leave_one_out(Dataset.from_log(read_log(pl.DataFrame({"user": [1, 1, 1, 2], "item": [1, 2, 3, 1]}))))
    )
    with pytest.raises(InputError, match="fitted on other items"):
        stages.two_stage(other, model)


def test_a_removed_item_stays_removed_behind_another_model(dataset):
    split = leave_one_out(dataset)
    first, second = (load_method(name).fitted(split) for name in ("popularity", "cooccurrence"))
    (gone,) = first.items.decode([3])
    both = stages.two_stage(first.without_items([gone]), second)
    found = both.recommend(users=first.users.decode(range(5)), k=len(both.items), seen="keep")
    assert not any(gone in row for row in found.item_ids)


BEHIND = {
    "popularity": {},
    "transitions": {},
    "sasrec": {"model.width": 8, "loop.max_steps": 2},
    "two_tower": {"model.width": 8, "loop.max_steps": 2},
    "two_tower, by id": {"model.user_tower": "mf", "model.width": 8, "loop.max_steps": 2},
    "dtr": {"model.width": 8, "loop.max_steps": 2},
}


@pytest.mark.parametrize("name", BEHIND)
def test_any_fitted_retriever_can_rank_anothers_candidates(dataset, first, tmp_path, name):
    """Candidates are ordered by both scores, before and after saving, with weights chosen on validation users."""
    split = leave_one_out(dataset)
    module = load_method(name.split(",")[0])
    fitted = module.fitted(split, module.Config(**BEHIND[name]), **({"progress": False} if BEHIND[name] else {}))
    fitted.save(tmp_path / "ranker")
    config = STAGES_OF.Config(
        **{
            "start.retriever": first["leave-one-out"],
            "start.ranker": str(tmp_path / "ranker"),
            "model.num_candidates": 25,
        }
    )
    both = STAGES_OF.fitted(split, config)
    part, searcher = split.test.take(np.arange(20)), both.searcher
    query = Query(part.users, part.histories)
    found = searcher.search(query, 10, SearchOptions(part.seen, explain=True))
    candidates = found.parts[0].hits
    scores = fitted.searcher.score(query, candidates.items)
    total = scores + np.float32(searcher.parts[0].weight) * candidates.scores
    assert np.allclose(-np.sort(-total, axis=1)[:, :10], found.scores, rtol=1e-5)
    assert searcher.needs.users == name.endswith("by id")
    both.save(tmp_path / "both")
    loaded, asked = beamwood.load(tmp_path / "both"), {"users": split.dataset.users.decode([0, 3])}
    assert loaded.recommend(**asked, k=9) == both.recommend(**asked, k=9)
    assert loaded.recommend(users=[], k=9).item_ids == []
    measured = [
        Validation(split.valid, 10**6, seed=0)(s)["removed/ndcg@20"]
        for s in (searcher, beamwood.load(first["leave-one-out"]).searcher)
    ]
    # Differences below a hundredth of a standard deviation do not determine the order at the largest weight.
    assert measured[0] >= measured[1] - 1e-3


def test_two_stages_can_precede_a_third(dataset, first, tmp_path):
    split = leave_one_out(dataset)
    config = STAGES_OF.Config(
        **{"start.retriever": first["leave-one-out"], "start.ranker": "transitions", "model.num_candidates": 25}
    )
    STAGES_OF.fitted(split, config).save(tmp_path / "both")
    counted = load_method("popularity").fitted(split)
    counted.save(tmp_path / "third")
    settings = {
        "start.retriever": str(tmp_path / "both"),
        "start.ranker": str(tmp_path / "third"),
        "choose.retriever_weight": 0.5,
    }
    three = STAGES_OF.fitted(split, config.changed(settings | {"choose.seen_weight": 0}))
    three.save(tmp_path / "three")
    query = Query.of(split.test.histories.take(np.arange(20)))
    hits = beamwood.load(tmp_path / "three").searcher.search(query, 9)
    assert np.array_equal(hits.items, three.searcher.search(query, 9).items)
    before = beamwood.load(tmp_path / "both").searcher.search(query, 25)
    total = 0.5 * before.scores + counted.searcher.score(query, before.items)
    assert np.allclose(hits.scores, -np.sort(-total, axis=1)[:, :9], rtol=1e-5)


@pytest.mark.parametrize("name", ["cooccurrence", "transitions"])
def test_a_counting_method_by_name_can_rank(market, first, dataset, tmp_path, capsys, name):
    out = str(tmp_path / "both")
    log = [str(market / "log.parquet"), "--items", str(market / "items.parquet"), "--user-table"]
    fit = [
        "fit",
        *log,
        str(market / "users.parquet"),
        "--method",
        "two_stage",
        "--split",
        "leave-one-out",
        "--out",
        out,
    ]
    assert main([*fit, "--retriever", first["leave-one-out"], "--ranker", name]) == 0
    assert "retriever_weight" in capsys.readouterr().out
    split = leave_one_out(dataset)
    load_method(name).fitted(split).save(tmp_path / name)
    config = STAGES_OF.Config(**{"start.retriever": first["leave-one-out"], "start.ranker": str(tmp_path / name)})
    histories = [[1, 2, 3], [5]]
    expected = STAGES_OF.fitted(split, config, seed=2026).recommend(histories=histories, k=9)
    assert beamwood.load(out).recommend(histories=histories, k=9) == expected
    # The same in one call.
    both = beamwood.fit(split, f"cooccurrence+{name}", seed=2026)
    assert both.recommend(histories=histories, k=9) == expected
    assert both.metadata["training"].keys() >= {"shrinkage", f"{name}/retriever_weight"}


def test_fitted_stages_keep_to_a_time_limit(dataset, first, tmp_path, monkeypatch):
    """Counting and the choice of weights share it; there is no training to write down."""
    split = leave_one_out(dataset)
    config = STAGES_OF.Config(**{"start.retriever": first["leave-one-out"], "start.ranker": "cooccurrence"})
    monkeypatch.setattr(stages, "estimated_seconds", lambda *_: 1e9)
    clock, alone = Clock(), load_method("cooccurrence").fitted(split)
    limited = STAGES_OF.fitted(split, config, time_limit=Budget(60, clock=clock))
    told = f"the weights of a sum are chosen on 64 of {len(split.valid.labelled())} validation users"
    assert limited.metadata["training"]["left_out"] == [told]
    assert limited.metadata["stages"]["ranker"]["config"] == alone.metadata["config"]
    assert "left_out" not in STAGES_OF.fitted(split, config).metadata["training"]
    with pytest.raises(InputError, match="run is for a fit that trains by steps, which this one of two_stage does not"):
        STAGES_OF.fitted(split, config, run=RunFolder(tmp_path / "run"))
