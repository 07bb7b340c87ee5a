"""Every encoder trains by the shared task: its examples, its options, an exact resume, and a saved answer."""

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.vectors.sequence import SequenceTask
from beamwood.methods import load_method
from beamwood.training.run_folder import RunFolder

SMALL = {"width": 8, "length": 6, "num_blocks": 1, "num_heads": 2, "hidden": 6, "batch_size": 16}
NAMES = ["sasrec", "gru4rec", "caser", "fmlp"]


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=150, num_items=60, min_events=8, max_events=20), seed=1)
    rng = np.random.default_rng(0)
    table = market.item_frame.with_columns(text=pl.Series(rng.normal(size=(len(market.item_frame), 5)).tolist()))
    return leave_one_out(Dataset.from_log(read_log(market.log), table))


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_equals_an_uninterrupted_one_and_loads(split, tmp_path, name):
    module = load_method(name)
    config = module.Config(**SMALL, max_steps=6, decay_steps=6, evaluate_every=3, validation_users=20)
    whole = module.fit(split, config, run=RunFolder(tmp_path / "whole"), progress=False)
    half = config.model_copy(update={"max_steps": 3})
    module.fit(split, half, run=RunFolder(tmp_path / "parts"), progress=False)
    resumed = module.fit(split, config, run=RunFolder(tmp_path / "parts"), resume=True, progress=False)
    ours, theirs = whole.searcher.export()[1], resumed.searcher.export()[1]
    assert all(np.array_equal(ours[array], theirs[array]) for array in ours)
    assert whole.metadata["method"] == name
    whole.save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").recommend([[1, 2]], k=5) == whole.recommend([[1, 2]], k=5)


@pytest.mark.parametrize("name", ["caser", "fmlp"])
def test_windows_that_end_at_each_position(split, name):
    task = SequenceTask(split.train, load_method(name).Config(**SMALL), seed=0)
    histories = split.train.histories
    assert task.num_examples == int(np.maximum(histories.lengths - 1, 0).sum())
    rows = np.arange(task.num_examples)
    batch = task.batch(rows)
    assert batch.targets_BL.shape == (len(rows), 1)
    place = 0
    for history in histories:
        for stop in range(1, len(history)):
            items = batch.items_BL[place]
            assert items[items >= 0].tolist() == history[max(0, stop - 6) : stop].tolist()
            assert batch.targets_BL[place, 0] == history[stop]
            place += 1
    assert place == len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_ahead_is_kept(split, name):
    task = SequenceTask(split.train, load_method(name).Config(**SMALL, horizon=2), seed=0)
    rows = np.arange(30)
    batch = task.batch(rows)
    for user, items, targets in zip(task.users[rows], batch.items_BL, batch.targets_BL, strict=True):
        history = split.train.histories[user].tolist()
        real = items[items >= 0].tolist()
        start = next(s for s in range(len(history)) if history[s : s + len(real)] == real)
        assert targets[-1].item() in history[start + len(real) : start + len(real) + 2]


@pytest.mark.parametrize("options", [{"tied": False}, {"item_column": "text"}, {"sampled_negatives": 30}])
@pytest.mark.parametrize("name", NAMES)
def test_options_train_and_load(split, tmp_path, name, options):
    module = load_method(name)
    config = module.Config(**SMALL, **options, max_steps=4, evaluate_every=2, validation_users=20)
    fitted = module.fit(split, config, progress=False)
    fitted.save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").recommend([[1, 2]], k=5) == fitted.recommend([[1, 2]], k=5)


def test_item_vectors_come_from_the_column(split):
    task = SequenceTask(split.train, load_method("sasrec").Config(**SMALL, item_column="text"), seed=0)
    given = torch.tensor(split.train.item_table.frame["text"].to_list(), dtype=torch.float32)
    linear = task.model.items.linear
    assert torch.allclose(task.model.items.weight, given @ linear.weight.T + linear.bias, atol=1e-5)
    assert "items.weight" not in dict(task.model.named_parameters())
    for column, message in (("txt", "is not in the item table"), ("category", "no lists of numbers")):
        with pytest.raises(InputError, match=message):
            SequenceTask(split.train, load_method("sasrec").Config(**SMALL, item_column=column), seed=0)


def test_the_sampled_loss_goes_to_the_full_one(split):
    full = SequenceTask(split.train, load_method("sasrec").Config(**SMALL), seed=0)
    many = SequenceTask(split.train, load_method("sasrec").Config(**SMALL, sampled_negatives=60_000), seed=0)
    few = SequenceTask(split.train, load_method("sasrec").Config(**SMALL, sampled_negatives=5), seed=0)
    queries = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(12)
    with torch.no_grad():
        exact = full.cross_entropy(queries, targets)
        assert torch.allclose(many.cross_entropy(queries, targets), exact, atol=0.05)
        assert not torch.allclose(few.cross_entropy(queries, targets), exact, atol=0.05)


@pytest.mark.parametrize("sampled", [None, 20])
def test_the_prior_is_added_to_the_logits(split, sampled):
    config = load_method("sasrec").Config(**SMALL, sampled_negatives=sampled)
    tasks = [
        SequenceTask(split.train, config.model_copy(update={"prior_power": power}), seed=0) for power in (0.0, 0.7)
    ]
    queries = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(9)
    plain, with_prior = (task.cross_entropy(queries, targets) for task in tasks)
    counts = torch.from_numpy(np.maximum(split.train.item_counts, 1)).float()
    logits = queries @ tasks[1].model.items.weight.T + 0.7 * torch.log(counts / counts.sum())
    if sampled is None:
        exact = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        assert torch.allclose(with_prior, exact, atol=1e-5)
    assert not torch.allclose(plain, with_prior, atol=1e-3)
    # Answers are of the vectors alone.
    ours, theirs = (task.searcher().export()[1] for task in tasks)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
