"""Rankers and two stages: every model and loss trains, resumes bit for bit, and answers without torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.cli.main import main
from beamwood.data import ColumnNames, Dataset, disjoint_users, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.evaluation.sampled import Sampled, evaluate_sampled
from beamwood.fitting import stages
from beamwood.fitting.choose import Validation
from beamwood.fitting.ranking import two_stage
from beamwood.fitting.ranking.lists import GuidedTask, ListTask
from beamwood.methods import load_method
from beamwood.types import ItemLists, Query, SearchOptions
from plans import planned, read_by
from prepared import Prepared
from resumed import whole_as_in_parts

RANKER, STAGES_OF = load_method("ranker"), load_method("two_stage")
LOSSES = (
    "guided",
    "logistic",
    "pairwise-logistic",
    "bpr",
    "list-mle",
    "softmax",
    "approx-ndcg",
    "gumbel-ndcg",
    "neural-sort",
)
SMALL = {
    "model.width": 6,
    "model.length": 8,
    "model.attention": (6, 4),
    "model.mlp": (8, 4),
    "loop.batch_size": 16,
    "choose.validation_users": 30,
}
STAGES = SMALL | {
    "model.num_candidates": 30,
    "loss.num_negatives": 6,
    "examples.max_examples": 400,
    "optimiser.decay_steps": 100,
}


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=300, num_items=150, min_events=10, max_events=30), seed=1)
    planted.log.write_parquet(folder / "log.parquet")
    planted.item_frame.write_parquet(folder / "items.parquet")
    users = planted.log["user_id"].unique().sort()
    ages, cities = np.arange(len(users)) % 60, [("a", "b", None)[n % 3] for n in range(len(users))]
    table = pl.DataFrame({"user_id": users, "age": ages, "city": cities})
    table[1:].write_parquet(folder / "users.parquet")
    return folder


@pytest.fixture(scope="module")
def dataset(market):
    return Dataset.from_log(
        read_log(market / "log.parquet"), market / "items.parquet", user_table=market / "users.parquet"
    )


@pytest.fixture(scope="module")
def first(market, dataset):
    """Fitted retrievers for two splits."""
    for split in (leave_one_out(dataset), disjoint_users(dataset)):
        load_method("cooccurrence").fitted(split).save(market / f"first-{split.name}")
    return {name: str(market / f"first-{name}") for name in ("leave-one-out", "users")}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", ["graphrec", "neumf", "din"])
def test_a_resumed_run_equals_an_uninterrupted_one(dataset, tmp_path, model, loss):
    split = disjoint_users(dataset) if model == "din" else leave_one_out(dataset)
    columns = {"model.item_columns": ("category",), "model.user_columns": ("age", "city")} if loss == "guided" else {}
    loop = {"loop.max_steps": 6, "loop.evaluate_every": 3, "loop.log_every": 4}
    config = RANKER.Config(**read_by(RANKER, SMALL | columns | {"model.kind": model, "loss.kind": loss} | loop))
    whole = whole_as_in_parts(RANKER, split, config, tmp_path)
    whole.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    by_user = model != "din" or bool(columns)
    asked = {"users": [3, 7]} if by_user else {"histories": [[1, 2, 3], []]}
    assert loaded.recommend(**asked, k=9) == whole.recommend(**asked, k=9)
    if by_user:
        with pytest.raises(InputError, match="knows users"):
            loaded.recommend(histories=[[1]], k=3)


@pytest.mark.parametrize("training", ["all", "harmonised"])
@pytest.mark.parametrize("negatives", ["unseen", "uniform", "candidates"])
def test_two_stages_resume_and_answer(dataset, first, tmp_path, training, negatives):
    split = disjoint_users(dataset)
    options = STAGES | {
        "examples.pairs": training,
        "loss.negatives": negatives,
        "loop.max_steps": 6,
        "loop.evaluate_every": 3,
    }
    config = STAGES_OF.Config(**options, **{"start.retriever": first["users"]})
    whole = whole_as_in_parts(STAGES_OF, split, config, tmp_path)
    whole.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    assert loaded.recommend(histories=[[1, 2, 3], []], k=9) == whole.recommend(histories=[[1, 2, 3], []], k=9)


def test_harmonised_pairs_are_the_retrieved_ones(dataset, first):
    split = disjoint_users(dataset)
    searcher = beamwood.load(first["users"]).searcher
    tasks = {
        name: Prepared(
            two_stage.StagesTask(
                split.train,
                planned(
                    STAGES_OF.Config(**STAGES, **{"examples.pairs": name, "loss.negatives": "candidates"}), split.train
                ),
                searcher,
            ),
            seed=0,
        )
        for name in ("all", "harmonised")
    }
    every, kept = tasks["all"].examples, tasks["harmonised"].examples
    asked = list(retrieved(tasks["all"], searcher))
    hits = np.array([hit for _, _, hit in asked])
    assert any(
        (hit & ~np.isin(target, new)).any() for target, new, hit in asked
    )  # Seen items may be recommended again.
    assert np.array_equal(kept.stop, every.stop[hits.any(axis=1)])
    assert np.array_equal(tasks["harmonised"].weights_ET, hits[hits.any(axis=1)])
    assert np.isclose(tasks["harmonised"].recall, np.mean(hits))
    assert (tasks["all"].weights_ET == 1).all()
    batch = tasks["harmonised"].batch(np.arange(20))
    assert batch.items_BC[:, :8].tolist() == tasks["harmonised"].targets(np.arange(20)).tolist()
    real, negatives = batch.log_weight_BM == 0, batch.items_BC[:, 8:]
    for row in range(20):
        own = set(tasks["harmonised"].candidates_EK[row].tolist())
        drawn = set(negatives[row][real[row]].tolist())
        assert drawn <= own
        assert not drawn & set(batch.items_BC[row, :8].tolist())


@pytest.mark.parametrize(("pairs", "candidates", "told"), [("harmonised", 1, 1), ("harmonised", 60, 0), ("all", 1, 0)])
def test_harmonising_with_a_poor_retriever_is_reported(dataset, tmp_path, capsys, pairs, candidates, told):
    split = disjoint_users(dataset)
    load_method("popularity").fitted(split).save(tmp_path / "popular")
    given = {"start.retriever": str(tmp_path / "popular"), "examples.pairs": pairs, "loop.max_steps": 1}
    given |= STAGES | {"model.num_candidates": candidates}
    fitted = STAGES_OF.fitted(split, given)
    found = capsys.readouterr().err
    assert found.count("in the study this gains nothing below 10 %: set examples.pairs=all") == told
    if pairs == "harmonised":
        assert (fitted.metadata["training"]["retrieved_share_of_training_pairs"] < 0.1) == told
    STAGES_OF.fitted(split, given, progress=False)
    assert "examples.pairs" not in capsys.readouterr().err


def retrieved(task, searcher):
    """Each example's targets, the retriever's candidates for the user's whole history, and the retrieved targets.

    A seen target is searched with seen items kept.
    """
    source = task.examples.source
    for row, (user, stop) in enumerate(zip(task.examples.users, task.examples.stop, strict=True)):
        past, target = source.items[source.indptr[user] : stop], task.targets(np.array([row]))[0]
        query = Query.of(ItemLists.from_lists([past]))
        new = searcher.search(query, 30, SearchOptions(query.histories)).items[0]
        whole = searcher.search(query, 30).items[0]
        yield target, new, np.where(np.isin(target, past), np.isin(target, whole), np.isin(target, new))


@pytest.mark.parametrize("bounds", [(1024, 2**18), (3, 2**18), (1024, 17)])
def test_the_retriever_gets_the_whole_history(dataset, first, monkeypatch, bounds):
    """The ranker gets the last 4 items; the retriever gets all and excludes all, in blocks of any size."""
    for name, bound in zip(("_SEARCHED_AT_A_TIME", "_ITEMS_AT_A_TIME"), bounds, strict=True):
        monkeypatch.setattr(two_stage, name, bound)
    searcher = beamwood.load(first["users"]).searcher
    config = STAGES_OF.Config(
        **STAGES | {"model.length": 4, "examples.max_examples": 90, "loss.negatives": "candidates"}
    )
    task = Prepared(
        two_stage.StagesTask(disjoint_users(dataset).train, planned(config, disjoint_users(dataset).train), searcher),
        seed=0,
    )
    assert np.array_equal(task.candidates_EK, [new for _, new, _ in retrieved(task, searcher)])


def test_targets_are_within_the_horizon(dataset, first):
    split = disjoint_users(dataset)
    config = STAGES_OF.Config(**STAGES, **{"examples.horizon": 5, "examples.num_targets": 3})
    task = Prepared(
        two_stage.StagesTask(split.train, planned(config, split.train), beamwood.load(first["users"]).searcher),
        seed=0,
    )
    ends = split.train.histories.indptr[task.examples.users + 1]
    for row, (stop, end) in enumerate(zip(task.examples.stop, ends, strict=True)):
        ahead = set(range(stop, min(end, stop + 5)))
        places = task.positions_ET[row].tolist()
        assert set(places) <= ahead
        assert len(set(places)) == min(3, len(ahead))
    offsets = (task.positions_ET - task.examples.stop[:, None])[ends - task.examples.stop >= 5]
    assert np.abs(np.bincount(offsets.ravel(), minlength=5) / offsets.size - 0.2).max() < 0.05


def test_a_horizon_beyond_every_history_costs_nothing(dataset, first):
    split, retriever = disjoint_users(dataset), beamwood.load(first["users"]).searcher
    longest = int(split.train.histories.lengths.max())
    near, far = (
        Prepared(
            two_stage.StagesTask(
                split.train,
                planned(STAGES_OF.Config(**STAGES, **{"examples.horizon": horizon}), split.train),
                retriever,
            ),
            seed=0,
        )
        for horizon in (longest, 2**31 - 1)
    )
    assert np.array_equal(near.positions_ET, far.positions_ET)


def test_the_loss_equals_loops(dataset, first):
    split = disjoint_users(dataset)
    config = STAGES_OF.Config(**STAGES, **{"examples.pairs": "harmonised", "loss.negatives": "candidates"})
    task = Prepared(
        two_stage.StagesTask(split.train, planned(config, split.train), beamwood.load(first["users"]).searcher),
        seed=0,
    )
    batch = task.batch(np.arange(12))
    batch.log_weight_BM[3] = -torch.inf  # A row without negatives.
    scores = task.model(batch.query, batch.items_BC).detach()
    total, weight = 0.0, 0.0
    for row in range(12):
        rivals = [s.item() for s, w in zip(scores[row, 8:], batch.log_weight_BM[row], strict=True) if w == 0]
        for target in range(8 if rivals else 0):
            own, share = scores[row, target].item(), batch.weights_BT[row, target].item()
            total += share * -np.log(np.exp(own) / (np.exp(own) + np.exp(rivals).sum()))
            weight += share
    loss = task.loss(batch)
    assert np.isclose(loss.item(), total / weight, rtol=1e-5)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in task.model.parameters() if p.grad is not None)


@pytest.mark.parametrize("negatives", ["uniform", "unseen"])
def test_sampled_negatives_estimate_the_full_sum(dataset, first, negatives):
    """E[sum of exp(s + log weight)] over draws is the sum over all candidates."""
    split = disjoint_users(dataset)
    searcher = beamwood.load(first["users"]).searcher
    task = Prepared(
        two_stage.StagesTask(
            split.train, planned(STAGES_OF.Config(**STAGES, **{"loss.negatives": negatives}), split.train), searcher
        ),
        seed=0,
    )
    scores = np.random.default_rng(0).normal(size=split.train.num_items)
    sums = []
    for _ in range(3000):
        batch = task.batch(np.array([5]))
        sums.append(np.exp(scores[batch.items_BC[0, 8:].numpy()] + batch.log_weight_BM[0].numpy()).sum())
    had = task.targets(np.array([5])) if negatives == "uniform" else split.train.histories[task.examples.users[5]]
    others = np.setdiff1d(np.arange(split.train.num_items), had)
    assert abs(np.mean(sums) / np.exp(scores[others]).sum() - 1) < 0.03


def test_uniform_negatives_stand_for_all_items_but_the_targets(dataset, first):
    """Each kept draw weighs (items that are no target) / (draws kept); draws that are a target weigh nothing."""
    split = disjoint_users(dataset)
    given = planned(STAGES_OF.Config(**STAGES, **{"loss.negatives": "uniform"}), split.train)
    task = Prepared(two_stage.StagesTask(split.train, given, beamwood.load(first["users"]).searcher), seed=0)
    batch, dropped = task.batch(np.arange(200)), 0
    for items, log_weights in zip(batch.items_BC.tolist(), batch.log_weight_BM.tolist(), strict=True):
        targets, drawn = set(items[:8]), items[8:]
        kept = [item not in targets for item in drawn]
        dropped += len(kept) - sum(kept)
        weight = (split.train.num_items - len(targets)) / max(sum(kept), 1)
        assert log_weights == pytest.approx([np.log(weight) if real else -np.inf for real in kept])
    assert dropped


@pytest.mark.parametrize("leaky", [False, True])
def test_guidedrec_has_three_optimisers(dataset, leaky):
    """For the logistic loss, for the predicted NDCG and for the surrogate; a leaky one moves both parts."""
    split = leave_one_out(dataset)
    task = Prepared(GuidedTask(split.train, planned(RANKER.Config(**{"loss.leaky": leaky}), split.train)), seed=0)
    ranker, surrogate = ({id(p) for p in part.parameters()} for part in (task.ranker, task.surrogate))
    both = ranker | surrogate
    expected = [(1e-3, 0.01, ranker), (1.3e-3, 0.0615, both if leaky else ranker)]
    expected.append((2e-3, 5e-4, both if leaky else surrogate))
    for optimizer, (rate, decay, moved) in zip(task.optimisers.each, expected, strict=True):
        (group,) = optimizer.param_groups
        assert (group["lr"], group["weight_decay"], group["decoupled_weight_decay"]) == (rate, decay, True)
        assert {id(parameter) for parameter in group["params"]} == moved


@pytest.mark.parametrize(("positives", "negatives"), [(5, 5), (2, 4), (4, 1)])
def test_bpr_pairs_each_positive_with_a_negative_in_turn(dataset, positives, negatives):
    """The fewer of the two are used again."""
    split = leave_one_out(dataset)
    given = {"loss.kind": "bpr", "examples.num_positives": positives, "loss.num_negatives": negatives}
    task = Prepared(ListTask(split.train, planned(RANKER.Config(**SMALL, **given), split.train)), seed=0)
    batch = task.batch(np.arange(9))
    losses, scores = task.loss(batch).detach(), task.model(batch.query, batch.items_BK).detach().double().numpy()
    for row in range(9):
        good, bad = scores[row, :positives], scores[row, positives:]
        pairs = [(good[n % positives], bad[n % negatives]) for n in range(max(positives, negatives))]
        expected = np.mean([np.log1p(np.exp(b - a)) for a, b in pairs])
        assert losses[row].item() == pytest.approx(expected, rel=1e-5)


def test_the_start_of_the_surrogate(dataset):
    split = leave_one_out(dataset)
    small, wide = 0.01, 20**-0.5
    for settings, expected in (
        ({}, small),
        ({"loss.surrogate": "nfm1"}, wide),
        ({"model.kind": "din", "model.width": 6}, wide),
        ({"loss.surrogate": "nfm1", "start.surrogate": "small"}, small),
        ({"start.surrogate": "wide"}, wide),
    ):
        task = Prepared(GuidedTask(split.train, planned(RANKER.Config(**settings), split.train)), seed=0)
        surrogate = task.surrogate
        matrix, bias = surrogate.shape.split(surrogate.weights)["h1"]
        assert abs(float(matrix.detach().std()) / expected - 1) < 0.15
        assert not bias.any()
    with pytest.raises(ValueError, match=r"start\.surrogate"):
        RANKER.Config(**{"start.surrogate": "broad"})


@pytest.mark.parametrize("loss", [pytest.param("guided", marks=pytest.mark.slow), "softmax"])
def test_a_ranker_learns_the_market(dataset, loss):
    split = leave_one_out(dataset)
    config = RANKER.Config(**{"loss.kind": loss, "loop.max_epochs": 30, "loop.evaluate_every": 500})
    lists = Sampled(split.test, split.train.num_items, num_negatives=60, seed=0)
    ours = evaluate_sampled(RANKER.fitted(split, config, progress=False).searcher, lists, ks=(10,))["ndcg@10"].mean()
    popular = evaluate_sampled(load_method("popularity").fitted(split).searcher, lists, ks=(10,))["ndcg@10"].mean()
    assert ours > popular + 0.02


def test_the_command_line(market, first, tmp_path, capsys):
    log = [str(market / "log.parquet"), "--items", str(market / "items.parquet")]
    settings = [part for key, value in STAGES.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    out = str(tmp_path / "stages")
    assert main(["fit", *log, "--method", "cooccurrence", "--seed", "2026", "--out", str(tmp_path / "first")]) == 0
    users = pl.read_parquet(market / "users.parquet")
    users.write_parquet(tmp_path / "users.parquet")
    fit = ["fit", *log, "--method", "two_stage", "--out", out, *settings, "--set", "loop.max_steps=4"]
    fit += ["--user-table", str(tmp_path / "users.parquet"), "--set", "model.user_columns=['age']"]
    assert main([*fit, "--retriever", str(tmp_path / "first")]) == 0
    capsys.readouterr()
    # The folder has the columns that the ranker uses.
    (tmp_path / "users.parquet").unlink()
    assert main(["evaluate", out, "--json", "--k", "5,10", "--sampled", "20"]) == 0
    document = json.loads(capsys.readouterr().out)
    stages = document["stages"]
    assert [cut["k"] for cut in stages["cuts"]] == [1, 5, 10]
    for cut in stages["cuts"]:
        assert np.isclose(cut["total_error"], stages["miss"] + cut["rank_error"] * (1 - stages["miss"]))
    assert 0 <= document["sampled"]["metrics"]["ndcg@10"] <= 1
    assert main(["evaluate", out]) == 0
    assert "rank error given a hit" in capsys.readouterr().out
    assert main(["recommend", out, "--history", "1,2,3"]) == 2
    assert "knows users, not histories alone (by a vector or columns of each)" in capsys.readouterr().err
    assert main(["recommend", out, "--user", str(users["user_id"][0]), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["items"]) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "two_stage"], "needs a fitted retriever; give its folder with --retriever"),
        (["--method", "dtr", "--retriever", "x"], "--retriever is not for dtr; it is for two_stage"),
        (["--method", "ranker", "--split", "users"], "recommends to users of the training data only"),
        (
            ["--method", "ranker", "--split", "leave-one-out", "--set", "choose.monitor=removed/f@20"],
            "does not fit choose.protocol",
        ),
        (
            ["--method", "ranker", "--split", "leave-one-out", "--set", "model.user_columns=['age']"],
            "with --user-table",
        ),
        (
            ["--method", "ranker", "--split", "leave-one-out", "--set", "model.item_columns=['prize']"],
            "no column 'prize'",
        ),
        (
            ["--method", "ranker", "--split", "leave-one-out", "--set", "model.item_columns=['item:number']"],
            "'item' is the column of ids, from which nothing can be learned",
        ),
        (["--method", "two_stage", "--retriever", ""], "--retriever is empty"),
        (["--method", "two_stage", "--retriever", "{first}", "--ranker", ""], "--ranker is empty"),
        (
            ["--method", "two_stage", "--retriever", "{first}", "--ranker", "eaze"],
            "--ranker 'eaze' is neither a folder nor a counting method; did you mean 'ease'?",
        ),
        (["--method", "two_stage", "--retriever", "{first}", "--ranker", "a/eaze"], "eaze does not exist"),
        (
            [
                "--method",
                "ranker",
                "--split",
                "leave-one-out",
                "--set",
                "model.kind=neumf",
                "--set",
                "model.graph=true",
            ],
            "model.graph=true is for",
        ),
        (
            ["--method", "ranker", "--split", "leave-one-out", "--set", "start.items=transitions"],
            "start.items=transitions is for model.kind=din, not for graphrec",
        ),
        (
            ["--method", "two_stage", "--set", "choose.retriever_weight=-1"],
            "choose.retriever_weight=-1: give a number from 0",
        ),
        (
            ["--method", "two_stage", "--retriever", "{first}", "--set", "choose.monitor=removed/f@2"],
            "choose.monitor='removed/f@2' is not",
        ),
        (
            ["--method", "two_stage", "--split", "leave-one-out", "--retriever", "{first}"],
            "was fitted on another split",
        ),
        (
            ["--method", "two_stage", "--retriever", "{first}", "--set", "model.context_columns=['timestamp']"],
            "needs examples.horizon=1",
        ),
        (
            ["--method", "two_stage", "--set", "model.num_candidates=2147483648"],
            "model.num_candidates=2147483648: give a whole number from ",
        ),
    ],
)
def test_wrong_input(market, first, tmp_path, capsys, arguments, message):
    arguments = [part.replace("{first}", first["users"]) for part in arguments]
    log = [str(market / "log.parquet"), "--items", str(market / "items.parquet"), "--out", str(tmp_path / "out")]
    capsys.readouterr()
    assert main(["fit", *log, *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.run").exists()


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


@pytest.mark.parametrize("of", ["item", "user"])
def test_ids_are_never_feature_columns(market, dataset, of):
    items = pl.read_parquet(market / "items.parquet").rename({"item_id": "sku"})
    items = items.with_columns(pl.lit("a name").alias("item"))
    named = Dataset.from_log(
        read_log(market / "log.parquet"), items, item_column="sku", user_table=market / "users.parquet"
    )
    given = read_by(RANKER, SMALL)
    for data in (dataset, named):
        with pytest.raises(InputError, match=f"'{of}' is the column of ids.* or rename the table's own column"):
            beamwood.fit(leave_one_out(data), "ranker", given | {f"model.{of}_columns": [of]}, progress=False)
    with pytest.raises(InputError, match=f"no column '{of}_id'; known: (age|category)"):
        beamwood.fit(
            leave_one_out(dataset),
            "ranker",
            given | {f"model.{of}_columns": [f"{of}_id"]},
            progress=False,
        )


@pytest.fixture(scope="module")
def by_device(tmp_path_factory):
    """Users have even items on one device and odd items on the other; nothing else matters."""
    folder, rng = tmp_path_factory.mktemp("device"), np.random.default_rng(0)
    users = np.repeat(np.arange(150), 14)
    device = rng.integers(0, 2, len(users))
    items = 2 * rng.integers(0, 20, len(users)) + device
    frame = pl.DataFrame({"user": users, "item": items, "time": np.arange(len(users)), "device": device})
    frame.with_columns(pl.Series("device", np.where(device == 0, "phone", "tv"))).write_parquet(folder / "log.parquet")
    return folder


def test_a_ranker_uses_the_context(by_device, tmp_path, capsys):
    log = [str(by_device / "log.parquet"), "--split", "leave-one-out"]
    assert main(["fit", *log, "--method", "popularity", "--out", str(tmp_path / "first")]) == 0
    settings = [
        "model.width=8",
        "model.length=4",
        "model.attention=[8]",
        "model.mlp=[16]",
        "model.num_candidates=40",
        "model.context_columns=['device']",
    ]
    settings += [
        "loop.max_steps=300",
        "loop.evaluate_every=150",
        "loss.num_negatives=20",
        "optimiser.learning_rate=0.01",
        "examples.horizon=1",
        "examples.num_targets=1",
        "choose.retriever_weight=0",
        "choose.seen_weight=0",
    ]
    out = str(tmp_path / "both")
    fit = ["fit", *log, "--method", "two_stage", "--retriever", str(tmp_path / "first"), "--out", out]
    assert main([*fit, *(part for setting in settings for part in ("--set", setting))]) == 0
    capsys.readouterr()
    assert main(["evaluate", out, "--k", "10,20", "--json"]) == 0
    # The context excludes half of the items: 20 of 40 include every label.
    assert json.loads(capsys.readouterr().out)["views"]["kept"]["metrics"]["hit_rate@20"] > 0.95
    for device, rest in (("phone", 0), ("tv", 1)):
        ask = ["recommend", out, "--history", "1,2,3,4", "--context", f"device={device}", "--include-seen", "--json"]
        assert main([*ask, "-k", "15"]) == 0
        found = json.loads(capsys.readouterr().out)[0]["items"]
        assert np.mean([item % 2 == rest for item in found]) > 0.9
    loaded = beamwood.load(out)
    either = loaded.recommend(users=[1, 2], k=5)
    assert len(either.item_ids) == 2  # Without context.
    with pytest.raises(InputError, match=r"column 'devise'.*'device'"):
        loaded.recommend(users=[1], k=5, context={"devise": ["tv"]})
    with pytest.raises(InputError, match="'device' needs a list of 2 values"):
        loaded.recommend(users=[1, 2], k=5, context={"device": ["tv"]})
    with pytest.raises(InputError, match="uses no context"):
        beamwood.load(tmp_path / "first").recommend(users=[1], k=5, context={"device": ["tv"]})
    assert main(["recommend", out, "--user", "1", "--context", "device"]) == 2
    assert "write --context column=value" in capsys.readouterr().err


def test_context_of_every_type_is_accepted(by_device, tmp_path, capsys):
    frame = pl.read_parquet(by_device / "log.parquet")
    row = pl.int_range(pl.len())
    log = str(tmp_path / "log.parquet")
    frame.with_columns(
        pl.concat_list(row % 3, row % 5).alias("vec"),
        pl.from_epoch(row * 3600).alias("when"),
        (row % 2 == 0).alias("flag"),
        pl.col("device").alias("^d.*$"),
        pl.col("device").alias("^d.*$= a"),
    ).write_parquet(log)
    assert main(["fit", log, "--method", "popularity", "--time-column", "time", "--out", str(tmp_path / "first")]) == 0
    columns = ["vec", "when:number", "flag:number", "^d.*$", "^d.*$= a"]
    settings = [
        "model.width=4",
        "model.length=4",
        "model.attention=[4]",
        "model.mlp=[4]",
        "examples.horizon=1",
        "examples.num_targets=1",
        "loop.max_steps=2",
    ]
    settings += [f"model.context_columns={columns}"]
    out = str(tmp_path / "both")
    fit = ["fit", log, "--time-column", "time", "--method", "two_stage", "--retriever", str(tmp_path / "first")]
    assert main([*fit, "--out", out, *(part for setting in settings for part in ("--set", setting))]) == 0
    for given in ("vec=[1,2]", "when=1970-01-02T10:00:00", "flag=true", "^d.*$=tv", "^d.*$= a=tv"):
        assert main(["recommend", out, "--user", "1", "--context", given]) == 0
    # One name is a prefix of the other; both are recognised.
    both = ["--context", "^d.*$=tv", "--context", "^d.*$= a=phone"]
    assert main(["recommend", out, "--user", "1", *both]) == 0
    capsys.readouterr()
    for given, message in {
        "vec=1,2": "column 'vec' holds '1,2', which is not a list of numbers; give a list of 2 numbers, as [1, 2]",
        "when=noon": "such as 'noon'; give dates and times, as 2024-05-01T12:30:00",
        "flag=maybe": "such as 'maybe'; give true or false",
    }.items():
        assert main(["recommend", out, "--user", "1", "--context", given]) == 2
        assert message in capsys.readouterr().err
    loaded = beamwood.load(out)
    for values in (["x"], [5], [["a", "b"]], [[1, 2, 3]], [object()], 5):
        with pytest.raises(InputError, match="column 'vec'"):
            loaded.recommend(users=[1], k=5, context={"vec": values})
    with pytest.raises(InputError, match="column 'vec'"):
        loaded.recommend(users=[1, 2], k=5, context={"vec": [[1, 2], "x"]})


def test_an_earlier_stage_uses_the_context_too(by_device, tmp_path, capsys):
    log = [str(by_device / "log.parquet"), "--split", "leave-one-out"]
    assert main(["fit", *log, "--method", "popularity", "--out", str(tmp_path / "first")]) == 0
    settings = [
        "model.width=8",
        "model.length=4",
        "model.attention=[8]",
        "model.mlp=[16]",
        "model.num_candidates=40",
        "model.context_columns=['device']",
    ]
    settings += [
        "loop.max_steps=300",
        "loop.evaluate_every=150",
        "loss.num_negatives=20",
        "optimiser.learning_rate=0.01",
    ]
    settings += ["examples.horizon=1", "examples.num_targets=1", "choose.retriever_weight=0", "choose.seen_weight=0"]
    fit = ["fit", *log, "--method", "two_stage", "--out"]
    middle, outer = str(tmp_path / "middle"), str(tmp_path / "outer")
    asked = [part for setting in settings for part in ("--set", setting)]
    assert main([*fit, middle, "--retriever", str(tmp_path / "first"), *asked]) == 0
    # The third stage orders the same 20 items, so it finds what the second finds.
    third = ["--ranker", "popularity", "--set", "model.num_candidates=20", "--set", "choose.seen_weight=0"]
    assert main([*fit, outer, "--retriever", middle, *third]) == 0
    capsys.readouterr()
    rates = []
    for folder in (middle, outer):
        assert main(["evaluate", folder, "--k", "20", "--json"]) == 0
        rates.append(json.loads(capsys.readouterr().out)["views"]["kept"]["metrics"]["hit_rate@20"])
    assert rates[0] == rates[1] > 0.95
    both = beamwood.load(outer)
    for device, rest in (("phone", 0), ("tv", 1)):
        found = both.recommend(users=[1], k=15, seen="keep", context={"device": [device]}).item_ids[0]
        assert np.mean([item % 2 == rest for item in found]) > 0.9
    # A stage ignores additional context; missing context and unknown names are errors.
    split = leave_one_out(Dataset.from_log(read_log(by_device / "log.parquet")))
    with pytest.raises(InputError, match=r"needs the context 'device'.*ColumnNames\(context=\('device',\)\)"):
        STAGES_OF.fitted(split, STAGES_OF.Config(**{"start.retriever": middle, "start.ranker": "popularity"}))
    columns = ColumnNames(context=("user", "device"))
    more = leave_one_out(Dataset.from_log(read_log(by_device / "log.parquet", columns=columns)))
    small = {
        "loop.max_steps": 1,
        "model.width": 4,
        "model.attention": [4],
        "model.mlp": [4],
        "examples.pairs": "harmonised",
        "model.num_candidates": 20,
    }
    small |= {"examples.horizon": 1, "examples.num_targets": 1}
    wider = STAGES_OF.fitted(more, STAGES_OF.Config(**{"start.retriever": middle}, **small), progress=False)
    assert wider.metadata["training"]["retrieved_share_of_training_pairs"] > 0.95
    with pytest.raises(InputError, match=r"column 'devise'.*'device'"):
        wider.recommend(users=[1], k=5, context={"devise": ["tv"]})


TREE = {
    "model.width": 4,
    "model.attention_hidden": 4,
    "model.windows": (4, 2, 1),
    "model.mlp": (8, 4),
    "examples.min_history": 2,
}
RETRIEVERS = {
    "dtr": TREE,
    "plt": TREE,
    "sasrec": {"model.width": 8, "model.length": 8},
    "two_tower": {"model.width": 4, "model.user_tower": "mf"},
    "transitions": {},
    "popularity": {},
}


@pytest.mark.parametrize("method", RETRIEVERS)
def test_any_retriever_can_come_first(dataset, tmp_path, method):
    split = leave_one_out(dataset)
    module = load_method(method)
    steps = {"loop.max_steps": 2} if RETRIEVERS[method] else {}
    module.fitted(split, module.Config(**RETRIEVERS[method], **steps)).save(tmp_path / "first")
    config = STAGES_OF.Config(
        **STAGES, **{"start.retriever": str(tmp_path / "first"), "examples.pairs": "harmonised", "loop.max_steps": 2}
    )
    both = STAGES_OF.fitted(split, config, progress=False)
    both.save(tmp_path / "both")
    loaded = beamwood.load(tmp_path / "both")
    allowed = list(range(0, 150, 3))
    found = loaded.recommend(users=[3, 7], k=5, allowed=allowed)
    assert found == both.recommend(users=[3, 7], k=5, allowed=allowed)
    assert {item for row in found.item_ids for item in row} <= set(allowed)


def test_two_stages_answer_without_torch(dataset, first, tmp_path):
    split = disjoint_users(dataset)
    config = STAGES_OF.Config(**STAGES, **{"start.retriever": first["users"], "loop.max_steps": 2})
    STAGES_OF.fitted(split, config, progress=False).save(tmp_path / "saved")
    code = (
        "import sys, beamwood; r = beamwood.load(sys.argv[1]); r.recommend(histories=[[1, 2]], k=3); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "saved")], check=True)


def shared():
    folder = Path(os.environ.get("BEAMWOOD_SHARED", Path(__file__).parents[2].parent / "shared")) / "data" / "ml100k"
    if not folder.is_dir():
        pytest.skip("the data set ml100k is not beside the checkout (../shared)")
    return folder


@pytest.mark.real_data
@pytest.mark.slow
def test_a_faithful_run_has_the_published_metrics(tmp_path):
    """GuidedRec on ML-100K: predicted and true NDCG, surrogate and logistic loss, means of epochs 1 and 20."""
    split = leave_one_out(Dataset.from_log(read_log(shared() / "interactions.parquet")))
    task = Prepared(GuidedTask(split.train, planned(RANKER.Config(), split.train)), seed=0)
    rng, seen = np.random.default_rng(0), {}
    for epoch in range(1, 21):
        order, facts = rng.permutation(task.num_examples), []
        for start in range(0, len(order), 25):
            facts.append(task.step(order[start : start + 25], number=1).facts)
        seen[epoch] = {name: np.mean([each[name] for each in facts]) for name in facts[0]}
    expected = {1: (0.88, 0.935, 0.51, 0.605), 20: (0.968, 0.969, 0.012, 0.526)}
    tolerance = {1: (0.02, 0.01, 0.06, 0.01), 20: (0.01, 0.01, 0.005, 0.01)}
    for epoch, values in expected.items():
        for name, value, allowed in zip(seen[epoch], values, tolerance[epoch], strict=True):
            assert abs(seen[epoch][name] - value) < allowed, (epoch, name, seen[epoch][name])
