"""`benchmarks.lightgcn` trains on all rows that the log marks as train, measures on the rest, and chooses nothing."""

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest


@pytest.fixture
def lightgcn(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks import lightgcn

    return lightgcn


@pytest.fixture
def folder(tmp_path):
    """Users have items of their group of 12; the log marks three of them as test."""
    rng = np.random.default_rng(0)
    rows = [
        (user, int(item) + 12 * (user % 4), "test" if place > 6 else "train")
        for user in range(80)
        for place, item in enumerate(rng.permutation(12)[:10])
    ]
    pl.DataFrame(rows, ["user_id", "item_id", "split"], orient="row").write_parquet(tmp_path / "interactions.parquet")
    return tmp_path


def test_every_training_row_is_an_edge(lightgcn, folder):
    split = lightgcn.published_split(folder)
    assert len(split.train.histories.items) == 80 * 7
    assert len(split.test) == 80
    for train, seen, labels in zip(split.train.histories, split.test.seen, split.test.labels, strict=True):
        assert sorted(train) == sorted(seen)
        assert not set(train) & set(labels)


def test_it_prints_its_measurements(lightgcn, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lightgcn", "--data", str(folder), "--epochs", "5", "--json"])
    lightgcn.main()
    said = json.loads(capsys.readouterr().out)
    assert said["published"] == {"recall@20": 0.1071, "ndcg@20": 0.0894}
    assert (said["epochs"], said["seed"]) == (5, 0)
    # Five items of the group are unseen; three of them are labels.
    assert 0 < said["recall@20"] <= 1
    assert said["training_seconds"] > 0
