"""SASRec learns the planted market, resumes exactly, and samples targets as documented."""

import numpy as np
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.fitting.vectors.sequence import SequenceTask
from beamwood.methods import load_method
from beamwood.methods.sasrec import METHOD, Config
from beamwood.types import Query
from one_view import evaluate_view
from plans import planned
from prepared import Prepared
from resumed import whole_as_in_parts

fit = METHOD.fitted
SMALL = {"model.width": 16, "model.length": 15, "model.num_blocks": 1, "model.num_heads": 2, "loop.batch_size": 16}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=2000, num_items=90, min_events=20, max_events=60), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


def test_learns_the_market(split):
    retriever = fit(
        split,
        Config(
            **(SMALL | {"model.width": 32, "model.length": 30, "loop.batch_size": 64}),
            **{"loop.max_steps": 400, "optimiser.learning_rate": 3e-3},
        ),
        progress=False,
    )
    popular = load_method("popularity").fitted(split)
    f20 = [
        evaluate_view(r.searcher, split.test, ks=(20,), remove_seen=True).means()["f@20"] for r in (retriever, popular)
    ]
    assert f20[0] > f20[1] + 0.01


@pytest.mark.parametrize("horizon", [1, 3, 0])
def test_targets_follow_within_the_horizon(split, horizon):
    task = Prepared(
        SequenceTask(
            split.train,
            planned(Config(**SMALL, **{"examples.horizon": horizon}), split.train),
        ),
        seed=0,
    )
    rows = np.arange(60)
    batch = task.batch(rows)
    for row, items, targets in zip(rows, batch.items_BL.numpy(), batch.targets_BL.numpy(), strict=True):
        history = split.train.histories[task.users[row]].tolist()
        real = items[items >= 0].tolist()
        starts = [s for s in range(len(history)) if history[s : s + len(real)] == real]
        assert starts
        assert len(real) == min(15, len(history) - 1)
        assert ((targets >= 0) == (items >= 0)).all()
        ok = []
        for start in starts:
            ahead = [history[start + i + 1 : (start + i + 1 + horizon) if horizon else None] for i in range(len(real))]
            ok.append(all(t in a for t, a in zip(targets[items >= 0], ahead, strict=True)))
        assert any(ok)


def test_resume_equals_uninterrupted_and_loads(split, tmp_path):
    config = Config(
        **SMALL,
        **{
            "loop.max_steps": 8,
            "optimiser.decay_steps": 8,
            "optimiser.warmup_steps": 2,
            "loop.evaluate_every": 4,
            "choose.validation_users": 10,
        },
    )
    whole = whole_as_in_parts(METHOD, split, config, tmp_path, steps=4)
    whole.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    query = Query.of(split.test.histories)
    assert np.array_equal(loaded.searcher.search(query, 9).items, whole.searcher.search(query, 9).items)
