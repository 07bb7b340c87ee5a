"""Rankers and two stages on the command line, and what it refuses."""

import json

import numpy as np
import polars as pl
import pytest

from beamwood.cli.main import main
from rankers import STAGES


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


def test_a_fit_that_trains_nothing_has_no_curve(market, tmp_path, capsys):
    """The run beside the output is that of an earlier model."""
    log, out = str(market / "log.parquet"), str(tmp_path / "out")
    stages = ["fit", log, "--out", out, "--method", "two_stage", "--retriever", str(tmp_path / "first")]
    shown = ["--html", str(tmp_path / "page.html"), "--json"]
    assert main(["fit", log, "--method", "popularity", "--out", str(tmp_path / "first")]) == 0
    settings = [part for key, value in STAGES.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    curves = []
    for more in ([*settings, "--set", "loop.max_steps=2"], ["--ranker", "cooccurrence", "--overwrite"]):
        capsys.readouterr()
        assert main([*stages, *more, *shown]) == 0
        curves.append(json.loads(capsys.readouterr().out)["curve"])
    assert curves[0]
    assert curves[1] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "two_stage"], "two_stage needs a fitted model; give its folder with --retriever"),
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
            "model.graph is for model.kind=graphrec, not neumf",
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
