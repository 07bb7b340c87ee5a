"""Rankers: every model and loss trains, resumes bit for bit, and answers."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.evaluation.sampled import Sampled, evaluate_sampled
from beamwood.fitting.ranking.lists import GuidedTask, ListTask
from beamwood.methods import load_method
from plans import planned, read_by
from prepared import Prepared
from rankers import RANKER, SMALL
from real_data import real_data
from resumed import whole_as_in_parts

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
        beamwood.fit(leave_one_out(dataset), "ranker", given | {f"model.{of}_columns": [f"{of}_id"]}, progress=False)


@pytest.mark.real_data
@pytest.mark.slow
def test_a_faithful_run_has_the_published_metrics(tmp_path):
    """GuidedRec on ML-100K: predicted and true NDCG, surrogate and logistic loss, means of epochs 1 and 20."""
    split = leave_one_out(Dataset.from_log(read_log(real_data("ml100k") / "interactions.parquet")))
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
