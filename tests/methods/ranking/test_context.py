"""Columns of the log as context of a ranker, alone and in an earlier stage."""

import json

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.cli.main import main
from beamwood.data import ColumnNames, Dataset, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.fitting.columns import item_features
from rankers import STAGES_OF

# A ranker that learns the context within 300 steps.
SETTINGS = {
    "model.width": 8,
    "model.length": 4,
    "model.attention": [8],
    "model.mlp": [16],
    "model.num_candidates": 40,
    "model.context_columns": ["device"],
    "loop.max_steps": 300,
    "loop.evaluate_every": 150,
    "loss.num_negatives": 20,
    "optimiser.learning_rate": 0.01,
    "examples.horizon": 1,
    "examples.num_targets": 1,
    "choose.retriever_weight": 0,
    "choose.seen_weight": 0,
}


def options(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]


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
    out = str(tmp_path / "both")
    fit = ["fit", *log, "--method", "two_stage", "--retriever", str(tmp_path / "first"), "--out", out]
    assert main([*fit, *options(SETTINGS)]) == 0
    capsys.readouterr()
    assert main(["evaluate", out, "--k", "10,20", "--json"]) == 0
    # The context excludes half of the items: 20 of 40 include every label.
    assert json.loads(capsys.readouterr().out)["views"]["kept"]["metrics"]["hit_rate@20"] > 0.95
    for device, rest in (("phone", 0), ("tv", 1)):
        ask = ["recommend", out, "--history", "1,2,3,4", "--context", f"device={device}", "--include-seen", "--json"]
        assert main([*ask, "-k", "15"]) == 0
        captured = capsys.readouterr()
        assert "--context" not in captured.err
        found = json.loads(captured.out)[0]["items"]
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
    assert main(["recommend", out, "--user", "1", "--context", "device=fone"]) == 0
    said = "--context 'device': training had no value 'fone', so it counts as missing; did you mean 'phone'?"
    assert said in capsys.readouterr().err


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
    small = {"model.width": 4, "model.length": 4, "model.attention": [4], "model.mlp": [4], "loop.max_steps": 2}
    small |= {"examples.horizon": 1, "examples.num_targets": 1, "model.context_columns": columns}
    out = str(tmp_path / "both")
    fit = ["fit", log, "--time-column", "time", "--method", "two_stage", "--retriever", str(tmp_path / "first")]
    assert main([*fit, "--out", out, *options(small)]) == 0
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
    fit = ["fit", *log, "--method", "two_stage", "--out"]
    middle, outer = str(tmp_path / "middle"), str(tmp_path / "outer")
    assert main([*fit, middle, "--retriever", str(tmp_path / "first"), *options(SETTINGS)]) == 0
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
    small = {"loop.max_steps": 1, "model.width": 4, "model.attention": [4], "model.mlp": [4]}
    small |= {"examples.pairs": "harmonised", "model.num_candidates": 20}
    small |= {"examples.horizon": 1, "examples.num_targets": 1}
    wider = STAGES_OF.fitted(more, STAGES_OF.Config(**{"start.retriever": middle}, **small), progress=False)
    assert wider.metadata["training"]["retrieved_share_of_training_pairs"] > 0.95
    with pytest.raises(InputError, match=r"column 'devise'.*'device'"):
        wider.recommend(users=[1], k=5, context={"devise": ["tv"]})


@pytest.mark.parametrize(
    ("column", "cells", "told"),
    [
        (
            "price",
            ["1.5", "20", None],
            "'price' holds numbers as text, each of which is read as a category; write price",
        ),
        ("price:number", ["1.5", "20", None], ""),
        ("price:category", ["1", "2", "3"], ""),
        ("price", ["1.5", "20", "free"], ""),
        ("price", [1.5, 20, None], ""),
    ],
)
def test_numbers_as_text_are_reported(column, cells, told, capsys):
    log = read_log(pl.DataFrame({"user": [1, 2, 2], "item": [1, 2, 3]}))
    train = Dataset.from_log(log, pl.DataFrame({"item": [1, 2, 3], "price": cells}, strict=False))
    assert item_features(train, [column]) is not None
    said = capsys.readouterr().err
    assert told in said
    assert bool(told) == bool(said)
