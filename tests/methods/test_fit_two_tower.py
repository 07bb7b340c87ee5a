"""Two towers: every sampler trains, resumes bit for bit and answers without torch; masks and features work."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import ColumnNames, Dataset, disjoint_users, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.data.splits import by_boundary, by_time
from beamwood.errors import InputError
from beamwood.fitting.vectors.item_start import transition_vectors
from beamwood.fitting.vectors.towers import TwoTowerTask, masked_candidates
from beamwood.methods import load_method
from beamwood.methods.two_tower import METHOD, Config
from beamwood.sampling.in_batch import SAMPLERS
from beamwood.types import ItemLists, Query
from one_view import evaluate_view
from plans import planned, read_by
from prepared import Prepared
from resumed import whole_as_in_parts

fit = METHOD.fitted
SMALL = {
    "model.width": 8,
    "loop.batch_size": 64,
    "model.length": 15,
    "model.num_blocks": 1,
    "choose.validation_users": 20,
}
NEGATIVES = ["full", "ssl", "ssl-pop", "mns", "g-tower", "bir", "xir"]
ENCODERS = ["sasrec", "gru4rec", "caser", "fmlp", "youtube_dnn"]
CASES = [*itertools.product(["mf", "mean", "sasrec"], NEGATIVES), *itertools.product(ENCODERS[1:], ["full", "xir"])]


def small(changes):
    return Config(**read_by(METHOD, SMALL | changes))


@pytest.fixture(scope="module")
def dataset():
    market = make_market(MarketConfig(num_users=300, num_items=90, min_events=20, max_events=60), seed=1)
    frame = market.item_frame.with_columns(
        price=pl.Series([None if n == 3 else n * 1.5 for n in range(90)], dtype=pl.Float64),
        vector=pl.Series([[float(n % 2), 1.0] for n in range(90)]),
    )
    return Dataset.from_log(read_log(market.log), frame)


@pytest.mark.parametrize(("tower", "negatives"), CASES)
def test_a_resumed_run_equals_an_uninterrupted_one(dataset, tmp_path, negatives, tower):
    split = leave_one_out(dataset) if tower == "mf" else disjoint_users(dataset)
    config = small(
        {
            "loss.negatives": negatives,
            "model.user_tower": tower,
            "optimiser.decay_steps": 500,
            "loop.evaluate_every": 3,
            "loop.max_steps": 6,
        }
    )
    whole = whole_as_in_parts(METHOD, split, config, tmp_path)
    whole.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    asked = {"users": [3, 7]} if tower == "mf" else {"histories": [[1, 2, 3], []]}
    assert loaded.recommend(**asked, k=9) == whole.recommend(**asked, k=9)


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_learns_the_market(negatives):
    market = make_market(MarketConfig(num_users=1500, num_items=90, min_events=20, max_events=60), seed=1)
    split = disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))
    # Users repeat items here, so seen items are not false negatives.
    sizes = {"model.width": 16, "loop.batch_size": 512, "model.length": 30}
    config = small(sizes | {"loss.negatives": negatives, "loop.max_epochs": 3, "loss.mask_known": False})
    retriever = fit(split, config, progress=False)
    popular = load_method("popularity").fitted(split)
    f20 = [
        evaluate_view(r.searcher, split.test, ks=(20,), remove_seen=True).means()["f@20"] for r in (retriever, popular)
    ]
    # Uncorrected negatives lower the scores of popular items. So does G-Tower if every batch has every item, so that
    # all gaps are 1. On a market this small, this costs more than is learned.
    biased = negatives in ("ssl", "g-tower")
    assert f20[0] < f20[1] if biased else f20[0] > f20[1] + 0.005


@pytest.mark.parametrize("repeats", [True, False])
def test_masks_equal_loops(repeats):
    generator = torch.Generator().manual_seed(0)
    items = torch.randint(30, (12,), generator=generator)
    candidates = torch.cat([items, torch.randint(30, (20,), generator=generator)])
    rng = np.random.default_rng(0)
    known = ItemLists.from_lists([rng.integers(0, 30, n) for n in range(12)])
    mask = masked_candidates(items, candidates, known, repeats=repeats)
    for row in range(12):
        for column, candidate in enumerate(candidates.tolist()):
            is_positive = candidate == items[row]
            kept = not is_positive or (not repeats and column != row)
            assert mask[row, column] == (not kept or (not is_positive and candidate in known[row]))


def test_masks_take_no_memory_in_proportion_to_the_catalogue():
    """One number for each item up to the last one here would fit no memory."""
    items, candidates = torch.tensor([3, 5]), torch.tensor([3, 5, 7, 5, 2**45])
    mask = masked_candidates(items, candidates, ItemLists.from_lists([np.array([7]), np.array([3])]))
    assert mask.tolist() == [[True, False, True, False, False], [True, True, False, True, False]]


def test_repeated_items_are_masked_once():
    frame = pl.DataFrame({"user": [0] * 50 + [1] * 3, "item": [0, 1] * 25 + [0, 2, 0]})
    train = Dataset.from_log(read_log(frame))
    for masks, settings in (
        (True, {"loss.mask_known": True}),
        (False, {"loss.mask_known": False}),
        # This affects only importance resampling.
        *((name not in ("bir", "xir"), {"loss.negatives": name}) for name in ("full", *SAMPLERS)),
    ):
        known = Prepared(TwoTowerTask(train, planned(Config(**settings), train)), seed=0).known
        assert [row.tolist() for row in known] == ([[0, 1], [0, 2]] if masks else [[], []])


def test_the_hardest_negatives_of_the_example_are_not_the_users_own_items(dataset):
    own, given = load_method(str(Path(__file__).parents[1] / "one_file" / "hardest_negatives.py")), []

    class Watched(type(own.fit.keywords["sampler"])):
        def losses(self, pairs, generator):
            given.append(pairs)
            return super().losses(pairs, generator)

    config = planned(own.Config(**read_by(own, SMALL)), dataset)
    task = Prepared(TwoTowerTask(dataset, config, Watched()), seed=0)
    batch = task.batch(np.arange(0, 640, 10))
    task.loss(batch)
    (pairs,) = given
    candidates = pairs.candidates_C.numpy()
    expected = [np.isin(candidates, dataset.histories[user]) for user in batch.users_B.tolist()]
    assert 0 < np.mean(expected) < 1
    np.testing.assert_array_equal(pairs.masked_BC.numpy(), expected)


def skewed_tasks(config, *others):
    """Tasks with equal towers on a log of 24 items with popularity up to 20 to 1; all users start with item 23."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 25)
    rows = [[23, *rng.choice(24, 8, p=share / share.sum())] for _ in range(150)]
    frame = pl.DataFrame({"user": np.repeat(np.arange(150), 9), "item": np.concatenate(rows)})
    data = Dataset.from_log(read_log(frame))
    drawn = {"start.items": "random"}
    tasks = [
        Prepared(TwoTowerTask(data, planned(Config(**drawn | config | other), data)), seed=0) for other in ({}, *others)
    ]
    with torch.no_grad():
        for weight in tasks[0].model.parameters():
            weight.mul_(7)
    for task in tasks[1:]:
        task.model.load_state_dict(tasks[0].model.state_dict())
    return tasks


def item_gradient(task, batch):
    task.model.zero_grad()
    task.loss(batch).mean().backward()
    return task.model.items.ids.weight.grad.clone()


@pytest.mark.parametrize("mask_known", [True, False])
@pytest.mark.parametrize("correction", ["sampled", "program"])
@pytest.mark.parametrize("tower", ["mf", "mean"])
def test_the_mean_gradient_is_close_to_that_of_the_full_softmax(tower, correction, mask_known):
    """As in training: popularity, masks and repeats are the same on both sides, so there is no bias."""
    config = {"model.user_tower": tower, "model.width": 8, "loop.batch_size": 512, "loss.mask_known": mask_known}
    full, task = skewed_tasks(
        config | {"loss.negatives": "full"}, {"loss.negatives": "ssl-pop", "loss.correction": correction}
    )
    rng = np.random.default_rng(1)
    found, expected = 0, 0
    for _ in range(60):
        batch = task.batch(rng.integers(0, task.num_examples, 512))
        found, expected = found + item_gradient(task, batch), expected + item_gradient(full, batch)
    assert (found - expected).abs().sum() < 0.045 * expected.abs().sum()


@pytest.mark.parametrize("tower", ["mf", "mean"])
def test_log_q_is_that_of_the_examples(tower):
    """Every user's first item is the same, and a history tower never has it as a positive."""
    (task,) = skewed_tasks(
        {"model.user_tower": tower, "model.width": 8, "loop.batch_size": 64, "loss.negatives": "ssl-pop"}
    )
    items = task.batch(np.arange(task.num_examples)).items_B
    counts = torch.bincount(items, minlength=24).clamp(min=1).double()
    assert torch.allclose(torch.exp(task.sampler.log_q_N).double(), counts / counts.sum(), rtol=1e-5)


@pytest.mark.parametrize("mask_known", [True, False])
def test_the_full_softmax_has_the_masks_of_the_samplers(mask_known):
    (task,) = skewed_tasks(
        {"model.width": 8, "loop.batch_size": 64, "loss.negatives": "full", "loss.mask_known": mask_known}
    )
    batch = task.batch(np.arange(0, task.num_examples, 7))
    with torch.no_grad():
        losses = task.loss(batch)
        users = task.model.user_vectors(batch.users_B, batch.histories_BL)
        logits = (users @ task.model.item_vectors(torch.arange(24)).T).double()
    for row, item in enumerate(batch.items_B.tolist()):
        known = set(task.histories[int(batch.users_B[row])].tolist()) if mask_known else set()
        kept = [other for other in range(24) if other == item or other not in known]
        expected = torch.logsumexp(logits[row, kept], 0) - logits[row, item]
        assert losses[row].item() == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize(("horizon", "most"), [(1, 1), (3, 3), (0, 1000)])
def test_a_history_ends_within_the_horizon_of_its_item(dataset, horizon, most):
    config = planned(small({"model.length": 1, "examples.horizon": horizon}), dataset)
    task = Prepared(TwoTowerTask(dataset, config), seed=0)
    rows = np.arange(task.num_examples)
    batch = task.batch(rows)
    gaps = set()
    for at, (item,) in zip(task.positions, batch.histories_BL.tolist(), strict=True):
        before = dataset.histories.items[task.starts[at] : at].tolist()
        assert item in before[-most:]
        gaps.add(before[::-1].index(item))
    assert len(gaps) > 1 or most == 1


def test_towers_of_ids_have_no_horizon(dataset):
    with pytest.raises(InputError, match=r"examples\.horizon=4 is for towers that read histories"):
        METHOD.configured({"model.user_tower": "mf", "examples.horizon": 4})


def test_item_columns_reach_the_tower(dataset):
    split = disjoint_users(dataset)
    config = small({"model.item_columns": ("category", "price", "vector")})
    task = Prepared(TwoTowerTask(split.train, planned(config, split.train)), seed=0)
    kind, price, vector = task.model.items.rows.encoder.weights
    with torch.no_grad():
        for weight in (kind, price, vector):
            before = task.model.all_item_vectors()
            weight += 1
            assert not np.allclose(task.model.all_item_vectors(), before)
    assert task.model.all_item_vectors().shape == (90, 8)
    with pytest.raises(InputError, match="no column 'colour'"):
        Prepared(
            TwoTowerTask(split.train, planned(small({"model.item_columns": ("colour",)}), split.train)),
            seed=0,
        )


def test_users_by_id_need_a_split_that_keeps_them(dataset, tmp_path):
    with pytest.raises(InputError, match=r"model.user_tower=mf recommends to users of the training data only"):
        fit(disjoint_users(dataset), small({"model.user_tower": "mf"}), progress=False)
    config = small({"model.user_tower": "mf", "loop.max_epochs": 1})
    retriever = fit(leave_one_out(dataset), config, progress=False)
    with pytest.raises(InputError, match="knows users, not histories"):
        retriever.recommend([[1, 2]], k=3)
    known = retriever.recommend(users=[1, 2], k=3)
    assert known.item_ids[0] != known.item_ids[1]
    assert len(retriever.recommend(users=[999], k=3, on_unknown="ignore").item_ids[0]) == 3


def test_users_without_a_training_event_are_unknown():
    """A split by time keeps their index, whose vector only weight decay has changed."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"user": np.repeat(np.arange(40), 10), "item": rng.integers(0, 30, 400)})
    late = np.where(frame["user"] < 30, 0, 960)
    frame = frame.with_columns(time=pl.Series(rng.integers(late, 1000)))
    split = by_time(Dataset.from_log(read_log(frame)))
    lengths = split.train.histories.lengths
    assert (lengths == 0).any()
    vectors = fit(
        split, small({"model.user_tower": "mf", "loop.max_epochs": 1}), progress=False
    ).searcher.first.queries.of.users
    np.testing.assert_allclose(
        vectors[lengths == 0], vectors[lengths > 0].mean(axis=0)[None].repeat((lengths == 0).sum(), 0), rtol=1e-4
    )


def test_a_log_with_a_split_column():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": np.repeat(np.arange(30), 20),
            "item": rng.integers(0, 40, 600),
            "part": np.where(rng.random(600) < 0.8, "train", "test"),
        }
    )
    data = Dataset.from_log(read_log(frame, columns=ColumnNames(boundary="part")))
    split = by_boundary(data, seed=3)
    for row, user in enumerate(split.test.users):
        rows = frame.filter(pl.col("user") == user)
        train = rows.filter(pl.col("part") == "train")["item"].to_list()
        assert sorted(split.test.histories[row].tolist()) == sorted(train)
        assert set(split.test.labels[row]) == set(rows.filter(pl.col("part") == "test")["item"])
        kept = split.train.histories[user].tolist()
        valid = split.valid.labels[np.flatnonzero(split.valid.users == user)[0]]
        assert len(train) - len(kept) == max(1, round(len(train) * 0.1))
        assert set(valid) <= set(train)
    with pytest.raises(InputError, match="needs a column"):
        by_boundary(Dataset.from_log(read_log(frame)))


@pytest.mark.parametrize("tower", ENCODERS)
def test_answers_of_an_encoder_equal_its_model_s(dataset, tower):
    """For short, long and empty histories, with normalised vectors and temperature."""
    config = small({"model.user_tower": tower, "model.normalise": True, "model.temperature": 0.2})
    task = Prepared(TwoTowerTask(dataset, planned(config, dataset)), seed=0)
    rng = np.random.default_rng(0)
    histories = ItemLists.from_lists([rng.integers(0, 90, n) for n in (1, 4, 15, 40, 0)])
    padded = torch.from_numpy(histories.padded(config.model.length).astype(np.int64))
    task.model.eval()
    with torch.no_grad():
        expected = task.model.user_vectors(torch.zeros(5, dtype=torch.int64), padded).numpy()
    expected[4] = 0
    searcher = task.searcher()
    query = Query.of(histories)
    np.testing.assert_allclose(searcher.encode(query), expected, atol=1e-4)
    np.testing.assert_allclose(type(searcher).restore(*searcher.export()).encode(query), searcher.encode(query))


@pytest.mark.parametrize("tower", ["mean", *ENCODERS])
def test_answers_without_torch(dataset, tmp_path, tower):
    config = small({"loop.max_epochs": 1, "loop.max_steps": 3, "model.user_tower": tower})
    fit(disjoint_users(dataset), config, progress=False).save(tmp_path / "saved")
    program = (
        "import sys, beamwood; r = beamwood.load(sys.argv[1]); print(r.recommend([[1, 2]], k=3).item_ids); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "saved")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def groups():
    """A log of users with items of one of three groups of 20."""
    rng = np.random.default_rng(2)
    rows = [(u, int(i) + 20 * (u % 3), t) for u in range(240) for t, i in enumerate(rng.permutation(20)[:10])]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    return disjoint_users(Dataset.from_log(read_log(log)))


@pytest.mark.parametrize("tower", ["mean", "sasrec"])
def test_both_towers_are_initialised_from_transitions(groups, tower):
    config = small({"model.user_tower": tower})
    model = Prepared(TwoTowerTask(groups.train, planned(config, groups.train)), seed=3).model
    vectors = transition_vectors(groups.train, 8, seed=3)
    known = vectors.any(axis=1)
    assert known.sum() == 60
    for table in (model.items.ids, model.users.items):
        assert np.array_equal(table.weight.detach().numpy()[:60][known], vectors[known])
    drawn = Prepared(
        TwoTowerTask(groups.train, planned(config.changed({"start.items": "random"}), groups.train)), seed=3
    ).model
    assert drawn.items.ids.weight.std().item() == pytest.approx(0.1, rel=0.2)


def test_an_initialised_mean_is_good_before_training(groups):
    found = {}
    for start in ("transitions", "random"):
        config = small({"start.items": start, "loop.max_steps": 1, "optimiser.learning_rate": 1e-9})
        retriever = fit(groups, config, progress=False)
        found[start] = evaluate_view(retriever.searcher, groups.test, ks=(5,), remove_seen=True).means()
    # Five other items of the group, which include labels.
    assert found["transitions"]["precision@5"] > 2 * found["random"]["precision@5"]


def test_user_ids_have_no_initialisation(dataset):
    with pytest.raises(InputError, match=r"start.items=transitions is for a history tower"):
        Prepared(
            TwoTowerTask(dataset, planned(small({"model.user_tower": "mf", "start.items": "transitions"}), dataset)),
            seed=0,
        )
    Prepared(TwoTowerTask(dataset, planned(small({"model.user_tower": "mf"}), dataset)), seed=0)


@pytest.mark.parametrize("tower", ["mf", "mean"])
def test_seen_items_have_a_weight(groups, tower, tmp_path):
    split = leave_one_out(groups.dataset) if tower == "mf" else groups
    retriever = fit(split, small({"model.user_tower": tower, "loop.max_epochs": 1}), progress=False)
    searcher, queries = retriever.searcher, split.test
    # No user has an item twice.
    assert searcher.seen_weight < 0
    assert retriever.metadata["training"]["seen_weight"] == searcher.seen_weight
    retriever.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved").searcher
    assert loaded.seen_weight == searcher.seen_weight
    every = np.tile(np.arange(60), (len(queries), 1))
    query = queries.query(loaded.needs)
    weighed, hits = loaded.score(query, every), loaded.search(query, 9)
    loaded.seen_weight = 0.0
    plain = loaded.score(query, every)
    had = np.zeros(plain.shape, bool)
    had[queries.histories.rows, queries.histories.items] = True
    assert np.allclose(weighed - plain, np.where(had, searcher.seen_weight, 0), atol=1e-4)
    best = np.take_along_axis(weighed, hits.items.astype(np.int64), axis=1)
    assert np.allclose(best, -np.sort(-weighed, axis=1)[:, :9], atol=1e-5)
    given = fit(
        split,
        small({"model.user_tower": tower, "loop.max_epochs": 1, "choose.seen_weight": 0}),
        progress=False,
    )
    assert given.searcher.seen_weight == 0
