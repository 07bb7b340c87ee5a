"""The inputs of a fit are identified: changed folders, tables and context are refused."""

import numpy as np
import polars as pl
import pytest

from beamwood.cli.main import main
from beamwood.data import ColumnNames, Dataset, read_log
from beamwood.data.digest import column_digest, frame_digest

SMALL = [
    "model.width=4",
    "model.attention=[4]",
    "model.mlp=[4]",
    "model.num_candidates=12",
    "loop.max_steps=2",
    "loop.evaluate_every=1",
    "model.length=4",
]


@pytest.fixture
def folder(tmp_path):
    rng, rows = np.random.default_rng(0), 60 * 8
    log = pl.DataFrame(
        {
            "user_id": np.arange(rows) % 60,
            "item_id": rng.integers(0, 30, rows),
            "timestamp": np.arange(rows),
            "device": rng.choice(["phone", "tv"], rows),
        }
    )
    log.write_parquet(tmp_path / "log.parquet")
    items = pl.DataFrame({"item_id": np.arange(30), "price": rng.random(30), "colour": rng.choice(["red", "blue"], 30)})
    items.write_parquet(tmp_path / "items.parquet")
    return tmp_path


def fit(folder, out, method, *options, settings=()):
    last = dict(setting.split("=", 1) for setting in settings)
    sets = [part for name, value in last.items() for part in ("--set", f"{name}={value}")]
    log = [str(folder / "log.parquet"), "--items", str(folder / "items.parquet")]
    return main(["fit", *log, "--method", method, "--out", str(folder / out), *options, *sets])


def refused(capsys, status):
    assert status == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_run_does_not_resume_on_a_refitted_stage(folder, capsys):
    assert fit(folder, "first", "cooccurrence") == 0
    stages = ("--retriever", str(folder / "first"))
    assert fit(folder, "both", "two_stage", *stages, settings=SMALL) == 0
    more = [*SMALL, "loop.max_steps=4"]
    assert fit(folder, "first", "popularity", "--overwrite") == 0
    capsys.readouterr()
    again = fit(folder, "both", "two_stage", *stages, "--resume", "--overwrite", settings=more)
    assert "another model in the folder of start.retriever" in refused(capsys, again)
    # An identical refit is accepted.
    assert fit(folder, "first", "cooccurrence", "--overwrite") == 0
    assert fit(folder, "both", "two_stage", *stages, "--resume", "--overwrite", settings=more) == 0


def test_a_run_does_not_resume_on_a_changed_table(folder, capsys):
    assert fit(folder, "first", "popularity") == 0
    columns = [*SMALL, "model.item_columns=['price', 'colour']"]
    stages = ("--retriever", str(folder / "first"))
    assert fit(folder, "both", "two_stage", *stages, settings=columns) == 0
    items = pl.read_parquet(folder / "items.parquet")
    items.with_columns(pl.col("colour").replace("red", "zinc")).write_parquet(folder / "items.parquet")
    capsys.readouterr()
    again = fit(
        folder, "both", "two_stage", *stages, "--resume", "--overwrite", settings=[*columns, "loop.max_steps=4"]
    )
    assert "other columns of items, users or context" in refused(capsys, again)


def test_evaluate_refuses_changed_context(folder, capsys):
    assert fit(folder, "first", "popularity") == 0
    context = [*SMALL, "model.context_columns=['device']", "examples.horizon=1", "examples.num_targets=1"]
    assert fit(folder, "both", "two_stage", "--retriever", str(folder / "first"), settings=context) == 0
    assert main(["evaluate", str(folder / "both"), "--k", "5"]) == 0
    log = pl.read_parquet(folder / "log.parquet")
    log.with_columns(pl.col("device").reverse()).write_parquet(folder / "other.parquet")
    log.write_csv(folder / "same.csv")
    capsys.readouterr()
    judged = main(["evaluate", str(folder / "both"), "--log", str(folder / "other.parquet"), "--k", "5"])
    assert "the column 'device' of" in refused(capsys, judged)
    assert main(["evaluate", str(folder / "both"), "--log", str(folder / "same.csv"), "--k", "5"]) == 0


def test_settings_without_effect_are_reported(folder, capsys):
    assert fit(folder, "first", "popularity") == 0
    stages = ("--retriever", str(folder / "first"), "--ranker", "transitions")
    idle = fit(folder, "both", "two_stage", *stages, settings=["model.kind=neumf", "model.item_columns=['nosuch']"])
    assert "model.item_columns, model.kind: no effect with --ranker 'transitions'" in refused(capsys, idle)
    twice = fit(folder, "both", "two_stage", *stages, settings=["start.retriever=elsewhere"])
    assert "--retriever and --set start.retriever= name the same folder" in refused(capsys, twice)
    weights = ["choose.retriever_weight=0", "choose.seen_weight=0", "choose.monitor=foo/bar"]
    assert "foo/bar" in refused(capsys, fit(folder, "both", "two_stage", *stages, settings=weights))


def test_digests_depend_only_on_content():
    frame = pl.DataFrame(
        {
            "^a.*$": [1, None, 3],
            "b": ["x", "", None],
            "c": [[1.0, 2.0], None, []],
            "d": [["u", "v"], ["w"], []],
            "e": [True, False, None],
            "f": [{"g": 1}, {"g": 2}, None],
        }
    ).with_columns(h=pl.datetime(2026, 1, pl.Series([1, 2, 3])))
    whole = frame_digest(frame)
    assert frame_digest(frame[frame.columns[::-1]]) == whole
    assert frame_digest(frame.with_columns(pl.col("b").cast(pl.Categorical), e=pl.Series([1, 0, None]))) == whole
    for name in frame.columns:
        changed = frame.with_columns(frame[name].alias("column").reverse().alias(name))
        assert frame_digest(changed) != whole, name
        assert frame_digest(frame.rename({name: "other"})) != whole
    assert column_digest(pl.Series([["ab"], ["c"]])) != column_digest(pl.Series([["a"], ["bc"]]))
    assert column_digest(pl.Series([1, None])) != column_digest(pl.Series([None, 1]))
    large = [column_digest(pl.Series([1, 2**53 + n], dtype=dtype)) for n in (0, 1) for dtype in (pl.Int64, pl.UInt64)]
    assert large[0] == large[1] != large[2] == large[3]
    whole = [column_digest(pl.Series([2**63 - n]).cast(pl.UInt64)) for n in (0, 1)]
    assert whole[0] != whole[1] == column_digest(pl.Series([2**63 - 1]))
    for dtype in (pl.Datetime, pl.Duration):
        assert (
            len({column_digest(pl.Series([5000]).cast(dtype("us")).cast(dtype(unit))) for unit in ("ms", "us", "ns")})
            == 1
        )
    log = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [1, 2, 1], "device": ["a", "b", "c"]})
    known = Dataset.from_log(read_log(log, columns=ColumnNames(context=("device",))))
    assert known.context_digests() == {"device": column_digest(known.context["device"])}
    assert known.tables_digest() != Dataset.from_log(read_log(log)).tables_digest()
