"""Every encoder trains by the shared task: examples, options, exact resume, and equal answers after saving."""

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.plan import Facts
from beamwood.fitting.vectors.sequence import SequenceTask
from beamwood.fitting.vectors.settings import SequenceConfig
from beamwood.methods import load_method
from beamwood.models.encoders import caser, sasrec
from plans import planned
from prepared import Prepared
from resumed import whole_as_in_parts

SMALL = {"model.width": 8, "model.length": 6, "loop.batch_size": 16}
SIZES = {
    "sasrec": {"model.num_blocks": 1, "model.num_heads": 2},
    "gru4rec": {"model.hidden": 6},
    "caser": {},
    "fmlp": {"model.num_blocks": 1},
}


def small(name, **more):
    return load_method(name).Config(**SMALL, **SIZES[name], **more)


def task_of(split, name, **more):
    return Prepared(SequenceTask(split.train, planned(small(name, **more), split.train)), seed=0)


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=150, num_items=60, min_events=8, max_events=20), seed=1)
    rng = np.random.default_rng(0)
    table = market.item_frame.with_columns(text=pl.Series(rng.normal(size=(len(market.item_frame), 5)).tolist()))
    return leave_one_out(Dataset.from_log(read_log(market.log), table))


@pytest.mark.parametrize("name", SIZES)
def test_a_resumed_run_equals_an_uninterrupted_one_and_loads(split, tmp_path, name):
    module = load_method(name)
    steps = {"loop.max_steps": 6, "optimiser.decay_steps": 6, "loop.evaluate_every": 3}
    config = small(name, **steps, **{"choose.validation_users": 20})
    whole = whole_as_in_parts(module, split, config, tmp_path)
    assert whole.metadata["method"] == name
    whole.save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").recommend([[1, 2]], k=5) == whole.recommend([[1, 2]], k=5)


@pytest.mark.parametrize("encoder", [sasrec.ENCODER, caser.ENCODER])
def test_an_epoch_is_validated_for_the_examples_of_the_encoder(split, encoder):
    class Own(SequenceConfig):
        @property
        def encoder(self):
            return encoder

    config = planned(Own(**SMALL), split.train)
    epoch = SequenceTask(split.train, config).num_examples // config.loop.batch_size
    assert config.loop.evaluate_every == pytest.approx(epoch, rel=0.2)


def test_settings_need_an_encoder(split):
    with pytest.raises(InputError, match="SequenceConfig has no encoder; define its property `encoder`"):
        planned(SequenceConfig(), split.train)


@pytest.mark.parametrize("name", ["caser", "fmlp"])
def test_windows_that_end_at_each_position(split, name):
    task = task_of(split, name)
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


@pytest.mark.parametrize("name", SIZES)
def test_targets_stay_within_the_horizon(split, name):
    task = task_of(split, name, **{"examples.horizon": 2})
    rows = np.arange(30)
    batch = task.batch(rows)
    for user, items, targets in zip(task.users[rows], batch.items_BL, batch.targets_BL, strict=True):
        history = split.train.histories[user].tolist()
        real = items[items >= 0].tolist()
        start = next(s for s in range(len(history)) if history[s : s + len(real)] == real)
        assert targets[-1].item() in history[start + len(real) : start + len(real) + 2]


@pytest.mark.parametrize(
    "options", [{"model.tied": False}, {"model.item_column": "text"}, {"loss.sampled_negatives": 30}]
)
@pytest.mark.parametrize("name", SIZES)
def test_options_train_and_load(split, tmp_path, name, options):
    module = load_method(name)
    steps = {"loop.max_steps": 4, "loop.evaluate_every": 2, "choose.validation_users": 20}
    config = small(name, **options, **steps)
    fitted = module.fitted(split, config, progress=False)
    fitted.save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").recommend([[1, 2]], k=5) == fitted.recommend([[1, 2]], k=5)


def test_item_vectors_come_from_the_column(split):
    task = task_of(split, "sasrec", **{"model.item_column": "text"})
    given = torch.tensor(split.train.item_table.frame["text"].to_list(), dtype=torch.float32)
    linear = task.model.items.linear
    assert torch.allclose(task.model.items.weight, given @ linear.weight.T + linear.bias, atol=1e-5)
    assert "items.weight" not in dict(task.model.named_parameters())
    for column, message in (("txt", "is not in the item table"), ("category", "no JSON list of numbers")):
        with pytest.raises(InputError, match=message):
            task_of(split, "sasrec", **{"model.item_column": column})


def test_the_sampled_loss_converges_to_the_full_one(split):
    full = task_of(split, "sasrec")
    many = task_of(split, "sasrec", **{"loss.sampled_negatives": 60_000})
    few = task_of(split, "sasrec", **{"loss.sampled_negatives": 5})
    queries = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(12)
    with torch.no_grad():
        exact = full.cross_entropy(queries, targets, full.rng)
        assert torch.allclose(many.cross_entropy(queries, targets, many.rng), exact, atol=0.05)
        assert not torch.allclose(few.cross_entropy(queries, targets, few.rng), exact, atol=0.05)


def test_the_sampled_loss_equals_loops(split):
    """Draws that are the target are left out, and the others stand for all items but the target."""
    task, num_items = task_of(split, "sasrec", **{"loss.sampled_negatives": 300}), len(split.train.items)
    queries, targets = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    with torch.no_grad():
        losses = task.cross_entropy(queries, targets, torch.Generator().manual_seed(5)).numpy()
        logits = (queries @ task.model.output_weight.T).double().numpy()
    drawn = torch.randint(num_items, (300,), generator=torch.Generator().manual_seed(5)).numpy()
    assert (drawn == 0).any()
    for row in range(6):
        kept = drawn[drawn != row]
        rivals = np.exp(logits[row, kept]).sum() * (num_items - 1) / len(kept)
        assert losses[row] == pytest.approx(np.log1p(rivals / np.exp(logits[row, row])), rel=1e-4)


@pytest.mark.parametrize("name", ["sasrec", "gru4rec", "caser", "fmlp", "lpo4rec"])
def test_large_catalogues_are_trained_with_sampled_negatives(name):
    """Except with the papers' presets."""
    method = load_method(name)
    for preset in (None, "paper"):
        config = method.configured(None, preset)
        for num_items, wanted in ((15_000, None), (15_001, 4_000)):
            plan = config.plan(Facts(num_users=100, num_items=num_items, mean_history=10.0))
            assert plan.loss.sampled_negatives == (wanted if preset is None else None)
    given = method.configured({"loss.sampled_negatives": 7})
    assert given.plan(Facts(num_users=100, num_items=50)).loss.sampled_negatives == 7
