"""`beamwood refit`: from a fitted folder to one for serving."""

import json

import polars as pl
import pytest

from beamwood.retrieval.retriever import Retriever
from cli_cases import TINY, beamwood


@pytest.fixture(scope="module")
def fitted(market):
    out = market / "before"
    fit = ("fit", market / "log.parquet", "--method", "cooccurrence", "--set", "model.power=0.3", "--out", out)
    assert beamwood(*fit) == 0
    return out


def test_the_refitted_folder_recommends_and_is_not_evaluated(fitted, capsys):
    capsys.readouterr()
    assert beamwood("refit", fitted, "--json", "--overwrite") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["out"] == f"{fitted}-refit"
    assert document["refit"]["of"] == str(fitted)
    assert json.loads((fitted.parent / "before-refit/manifest.json").read_text())["config"]["model"]["power"] == [0.3]
    assert beamwood("recommend", document["out"], "--user", "3") == 0
    assert beamwood("evaluate", document["out"]) == 2
    assert f"no test users are left; give {fitted}, the model before it" in capsys.readouterr().err
    assert beamwood("refit", document["out"], "--out", f"{fitted}-third") == 0
    assert json.loads((fitted.parent / "before-third/manifest.json").read_text())["refit"]["of"] == str(fitted)


def test_a_later_log_has_its_new_items(market, fitted, tmp_path, capsys):
    log = pl.read_parquet(market / "log.parquet")
    later = log.filter(pl.col("item_id") == log["item_id"][0]).with_columns(item_id=pl.lit(10**6, log["item_id"].dtype))
    pl.concat([log, later]).write_parquet(tmp_path / "next.parquet")
    assert beamwood("refit", fitted, "--log", tmp_path / "next.parquet", "--out", tmp_path / "next") == 0
    assert beamwood("similar", tmp_path / "next", "--item", 10**6, "-k", "1") == 0
    capsys.readouterr()
    assert beamwood("refit", fitted, "--log", tmp_path / "nowhere.parquet", "--out", tmp_path / "none") == 2
    assert "nowhere.parquet" in capsys.readouterr().err


def test_a_later_log_may_have_more_columns(market, tmp_path, capsys):
    """The users of the fit stay the users, though a preferred name of a column comes along."""
    log = pl.read_parquet(market / "log.parquet").rename({"user_id": "session_id"}).with_columns(score=pl.lit(5))
    log.write_parquet(tmp_path / "log.parquet")
    fit = ("fit", tmp_path / "log.parquet", "--method", "popularity", "--min-weight", "4", "--out", tmp_path / "before")
    assert beamwood(*fit) == 0
    more = {"user_id": pl.col("session_id") % 9, "product_id": pl.col("item_id"), "rating": pl.lit(1)}
    log.with_columns(**more).write_parquet(tmp_path / "next.parquet")
    assert beamwood("evaluate", tmp_path / "before", "--log", tmp_path / "next.parquet") == 0
    capsys.readouterr()
    refit = ("refit", tmp_path / "before", "--log", tmp_path / "next.parquet")
    assert beamwood(*refit, "--out", tmp_path / "next") == 0
    assert "(user=session_id, item=item_id, time=timestamp, weight=score)" in capsys.readouterr().err
    # Names that are known by themselves may still change.
    log.rename({"item_id": "item"}).write_parquet(tmp_path / "next.parquet")
    assert beamwood("refit", tmp_path / "next", "--out", tmp_path / "third") == 0
    assert "(user=session_id, item=item, time=timestamp, weight=score)" in capsys.readouterr().err


def test_a_later_log_may_have_items_that_its_table_lacks(market, fitted, tmp_path, capsys):
    log = pl.read_parquet(market / "log.parquet")
    log.select(pl.col("item_id").unique()).write_parquet(tmp_path / "items.parquet")
    listed, new = tmp_path / "listed", 10**6
    fit = ("fit", market / "log.parquet", "--items", tmp_path / "items.parquet", "--method", "popularity")
    assert beamwood(*fit, "--out", listed) == 0
    later = log.head(1).with_columns(item_id=pl.lit(new, log["item_id"].dtype))
    pl.concat([log, later]).write_parquet(tmp_path / "next.parquet")
    refit = ("refit", listed, "--log", tmp_path / "next.parquet", "--out", tmp_path / "next")
    capsys.readouterr()
    assert beamwood(*refit) == 2
    said = capsys.readouterr().err
    assert "--unlisted-items keep" in said
    assert "of `beamwood fit`" not in said
    assert beamwood(*refit, "--unlisted-items", "keep") == 0
    assert beamwood("recommend", tmp_path / "next", "--history", new) == 0
    assert beamwood("refit", fitted, "--out", tmp_path / "none", "--unlisted-items", "keep") == 2
    assert "--unlisted-items is for the item table" in capsys.readouterr().err


def test_wrong_outputs_are_refused_before_the_log_is_read(fitted, tmp_path, capsys):
    capsys.readouterr()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    for out, words in ((fitted, "is the fitted folder itself"), (tmp_path / "mine", "never replaced")):
        assert beamwood("refit", fitted, "--out", out, "--overwrite") == 2
        said = capsys.readouterr().err
        assert words in said
        assert "rows (" not in said
    assert beamwood("refit", fitted, "--out", tmp_path / "new", "--from", fitted) == 2
    assert "--from is not for cooccurrence, which starts from no fitted folder" in capsys.readouterr().err


def test_an_interrupted_refit_goes_on(market, tmp_path, capsys, monkeypatch):
    settings = [word for each in TINY for word in ("--set", each)]
    fit = ("fit", market / "log.parquet", "--method", "dtr", *settings, "--out", tmp_path / "tree")
    assert beamwood(*fit) == 0
    again = ("refit", tmp_path / "tree", "--out", tmp_path / "whole")
    assert beamwood(*again, "--resume") == 2
    assert "there is nothing to resume" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(Retriever, "save", raising)
        assert beamwood(*again) == 130
    assert f"is in {tmp_path}/whole.run; run the same command with --resume" in capsys.readouterr().err
    assert beamwood(*again) == 2
    assert beamwood(*again, "--resume") == 0
    assert json.loads((tmp_path / "whole/manifest.json").read_text())["training"]["steps"] == 6
    assert beamwood("inspect", tmp_path / "whole", "--users", "5") == 0
    assert "refit trained on all users: halves of stored histories" in capsys.readouterr().err


def raising(*_, **__):
    raise KeyboardInterrupt
