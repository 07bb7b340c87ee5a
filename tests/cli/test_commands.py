"""The command line from the outside: the happy path, exit codes, and one clear line for each wrong input."""

import html
import json
import os
import re
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from beamwood.cli.inputs import parse_duration
from beamwood.cli.main import main
from beamwood.data.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
TINY = [
    "width=4",
    "attention_hidden=4",
    "windows=[4,2,1]",
    "mlp=[8,4]",
    "min_history=2",
    "max_steps=6",
    "evaluate_every=3",
]


def beamwood(*arguments):
    """Run in this process; returns the exit code."""
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=120, num_items=60, max_events=40), seed=0)
    planted.log.write_parquet(folder / "log.parquet")
    planted.item_frame.write_parquet(folder / "items.parquet")
    return folder


@pytest.fixture(scope="module")
def fitted(market):
    out = market / "fitted"
    assert (
        beamwood(
            "fit", market / "log.parquet", "--items", market / "items.parquet", "--method", "cooccurrence", "--out", out
        )
        == 0
    )
    return out


def test_fit_evaluate_recommend(market, fitted, capsys):
    capsys.readouterr()
    assert beamwood("evaluate", fitted, "--json", "--k", "5,10") == 0
    document = json.loads(capsys.readouterr().out)
    metrics = document["views"]["new"]["metrics"]
    assert 0 < metrics["f@5"] < 1
    assert document["views"]["all"]["protocol"]["queries"] == 12
    assert beamwood("evaluate", fitted, "--k", "5", "--tail", "0.3", "--tail-of", "interactions", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert "together hold 0.3 of the training interactions" in document["tail"]["rule"]
    for views in (document["views"], document["tail"]["views"]):
        assert views["all"]["protocol"]["tail_rule"] == document["tail"]["rule"]
        assert 0 <= views["all"]["metrics"]["gini@5"] <= 1
    assert document["tail"]["probability_gap"]["queries"] == 12
    page = market / "report.html"
    assert beamwood("evaluate", fitted, "--k", "5", "--tail", "0.3", "--html", page) == 0
    assert "scores over their sum" in capsys.readouterr().out
    assert "<svg" in page.read_text()
    assert "test users with a tail label" in page.read_text()
    by_prefixes = ("evaluate", fitted, "--k", "5", "--tail", "0.3", "--tail-of", "prefixes", "--html", page)
    assert beamwood(*by_prefixes, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    for said in (document["tail"]["rule"], document["views"]["new"]["protocol"]["tail_rule"]):
        assert "prefixes of two items or more" in said
    assert "prefixes of two items or more" in html.unescape(page.read_text())
    assert beamwood(*by_prefixes) == 0
    assert capsys.readouterr().out.count("prefixes of two items or more") == 3
    assert beamwood("evaluate", fitted, "--k", "5", "--html", market / "nowhere" / "page.html") == 2
    assert beamwood("evaluate", fitted, "--k", "5") == 0
    assert "consumed items taken out" in capsys.readouterr().out
    assert beamwood("recommend", fitted, "--user", "3", "--user", "7", "-k", "4", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["query"] for row in rows] == ["3", "7"]
    assert all(len(row["items"]) == 4 for row in rows)
    assert beamwood("recommend", fitted, "--history", "1,2,3", "--category", "group 0, category 1", "-k", "2") == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert beamwood("inspect", fitted, "--json") == 0
    assert json.loads(capsys.readouterr().out)["method"] == "cooccurrence"
    assert beamwood("doctor", "--json") == 0
    assert "kernels" in json.loads(capsys.readouterr().out)


def test_the_least_weight_is_read_again(market, tmp_path, capsys):
    log = pl.read_parquet(market / "log.parquet").with_row_index("rating").with_columns(pl.col("rating") % 5 + 1)
    log.write_parquet(tmp_path / "rated.parquet")
    out = tmp_path / "out"
    least = [tmp_path / "rated.parquet", "--min-weight", "4", "--json"]
    assert beamwood("fit", *least, "--method", "popularity", "--out", out) == 0
    captured = capsys.readouterr()
    assert f"{log['rating'].ge(4).sum():,} rows kept, {log['rating'].lt(4).sum():,} left out" in captured.err
    assert Retriever.load(out).metadata["source"]["min_weight"] == 4
    assert beamwood("evaluate", out, "--k", "5", "--json") == 0
    assert "at least 4" in capsys.readouterr().err
    assert beamwood("compare", *least, "--methods", "popularity,transitions", "--k", "5") == 0
    assert "at least 4" in capsys.readouterr().err


def test_the_tail_gap_of_those_that_know_users(market, fitted, tmp_path, capsys):
    """By softmax for matrix factorisation, a ranker alone and one behind another retriever."""
    few = {"width": 4, "validation_users": 10, "max_steps": 2, "evaluate_every": 2}
    ranking = few | {"batch_size": 16, "mlp": [4], "attention": [4]}
    methods = {
        "two_tower": few | {"user_tower": "mf", "batch_size": 32},
        "ranker": ranking | {"model": "neumf"},
        "two-stage": ranking | {"num_candidates": 10, "num_negatives": 3},
    }
    for method, settings in methods.items():
        out, split = tmp_path / method, "users" if method == "two-stage" else "leave-one-out"
        options = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        options += ["--retriever", fitted] if method == "two-stage" else []
        fit = ["fit", market / "log.parquet", "--method", method, "--split", split, "--out", out, *options]
        assert beamwood(*fit) == 0, capsys.readouterr().err
        capsys.readouterr()
        assert beamwood("evaluate", out, "--k", "5", "--tail", "0.3") == 0
        assert "probability (softmax of the scores) of a tail item" in capsys.readouterr().out


def test_dtr_from_end_to_end(market, capsys):
    out = market / "tree"
    settings = [part for setting in TINY for part in ("--set", setting)]
    assert beamwood("fit", market / "log.parquet", "--out", out, *settings, "--json") == 0
    assert json.loads(capsys.readouterr().out)["training"]["steps"] == 6
    assert beamwood("inspect", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["tree"]["leaves"] >= 60
    assert beamwood("evaluate", out, "--json", "--k", "5") == 0
    assert beamwood("fit", market / "log.parquet", "--out", out, *settings) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert beamwood("fit", market / "log.parquet", "--out", out, *settings, "--overwrite") == 0


def test_inspect_diagnoses_a_tree(market, capsys, tmp_path):
    out = market / "inspected"
    settings = [part for setting in TINY for part in ("--set", setting)]
    log = tmp_path / "moved.parquet"
    log.write_bytes((market / "log.parquet").read_bytes())
    assert beamwood("fit", log, "--out", out, *settings, "--set", "branching=4") == 0
    capsys.readouterr()
    page = tmp_path / "page.html"
    assert beamwood("inspect", out, "--widths", "5,60", "--html", page, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["queries"] == "12 validation users"
    levels = document["diagnostics"]["levels"]
    assert [level["level"] for level in levels] == list(range(1, document["tree"]["depth"] + 1))
    assert document["diagnostics"]["beams"][-1]["overlap"] == 1
    assert document["diagnostics"]["heap_tolerance"] == 0.5
    drawn = page.read_text()
    for text in ("recall of the labels", "heap violations", "KL of tree", "score missed", "scored nodes"):
        assert f"<figcaption>{text}" in drawn
    assert drawn.count("predicted across, observed up</figcaption>") == len(levels)
    assert "calibrated: the softmax of the level; heap violation: a score more than 0.5 logits" in drawn
    assert beamwood("inspect", out, "--users", "5") == 0
    shown = capsys.readouterr().out
    assert "heap violations" in shown
    assert "all items" in shown
    log.unlink()
    assert beamwood("inspect", out, "--users", "7", "--json") == 0
    captured = capsys.readouterr()
    assert "stored histories" in json.loads(captured.out)["queries"]
    assert "may have seen" in captured.err
    assert beamwood("inspect", out, "--widths", "5,x") == 2
    assert beamwood("inspect", out, "--users", "0", "--html", page) == 2
    assert beamwood("inspect", out, "--log", market / "items.parquet") == 2


@pytest.mark.parametrize(("method", "words"), [("tdm", "sigmoid of the node"), ("plt", "product along the path")])
def test_inspect_calibrates_what_a_method_trained(market, capsys, tmp_path, method, words):
    out, old = tmp_path / "new", tmp_path / "old"
    settings = [part for setting in [*TINY, "branching=16"] for part in ("--set", setting)]
    assert beamwood("fit", market / "log.parquet", "--method", method, "--out", out, *settings) == 0
    # As saved before searchers named their loss: the method tells.
    retriever = Retriever.load(out)
    assert retriever.searcher.loss == "binary"
    retriever.searcher.loss = "softmax"
    retriever.save(old)
    for folder in (out, old):
        capsys.readouterr()
        assert beamwood("inspect", folder, "--users", "5", "--widths", "5", "--html", tmp_path / "page.html") == 0
        shown = capsys.readouterr().out
        assert words in shown
        assert "│ - " in shown
    drawn = (tmp_path / "page.html").read_text()
    assert drawn.count("<figcaption>heap violations") == 1  # of one level, above the leaves
    assert "KL of tree sampling from" not in drawn


def test_compare_says_which_is_better(market, capsys):
    code = beamwood("compare", market / "log.parquet", "--methods", "popularity,cooccurrence", "--k", "10", "--json")
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(document["methods"]) == {"popularity", "cooccurrence"}
    assert "cooccurrence" in document["conclusion"]
    arguments = [
        "compare",
        market / "log.parquet",
        "--methods",
        "popularity,cooccurrence",
        "--k",
        "10",
        "--tail",
        "0.4",
    ]
    assert beamwood(*arguments, "--json") == 0
    tail = json.loads(capsys.readouterr().out)["tail"]
    assert "the 0.4 share of item types" in tail["rule"]
    assert set(tail["methods"]) == {"popularity", "cooccurrence"}
    assert tail["methods"]["popularity"]["all"]["protocol"]["queries"] == tail["queries"]
    assert tail["paired_tests"]["new"][0]["rival"] == "popularity"
    assert beamwood(*arguments, "--tail-of", "prefixes") == 0
    assert re.search("test users with a tail label; .*prefixes of two items or more", capsys.readouterr().out)


def write(folder, name, frame):
    frame.write_csv(folder / name)
    return folder / name


GOOD = pl.DataFrame({"user_id": [1, 1, 2, 2] * 10, "item_id": list(range(8)) * 5, "timestamp": range(40)})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (GOOD.drop("user_id"), "has no user column; it has: item_id, timestamp"),
        (
            GOOD.with_columns(user_id=pl.Series([None, *[1, 2] * 19, 1])),
            "1 of 40 rows without a user id, the first None in row 1",
        ),
        (
            GOOD.with_columns(timestamp=pl.Series(["soon", *map(str, range(39))])),
            "1 of 40 times that cannot be read, the first 'soon'",
        ),
        (GOOD.head(0), "has no rows"),
        (GOOD.with_columns(user_id=pl.lit(1)), "has 1 user"),
        (GOOD, "2 users are too few"),
    ],
)
def test_wrong_logs(tmp_path, capsys, frame, message):
    log = write(tmp_path, "log.csv", frame)
    assert beamwood("fit", log, "--method", "popularity", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_wrong_arguments(market, fitted, tmp_path, capsys):
    log, items = market / "log.parquet", market / "items.parquet"
    few = write(tmp_path, "few.csv", pl.read_parquet(items).head(5))
    (tmp_path / "broken.parquet").write_bytes((market / "log.parquet").read_bytes()[:200])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").write_text("mine")
    (tmp_path / "bad.toml").write_text("a = = b")
    out = ["--out", tmp_path / "out"]
    cases = [
        (["fit", tmp_path / "none.parquet", *out], "does not exist"),
        (["fit", tmp_path / "broken.parquet", *out], "cannot be read"),
        (["fit", log, "--items", few, *out], "are not in the item table"),
        (["fit", log, "--method", "drt", *out], "did you mean 'dtr'"),
        (["fit", log, "--set", "lerning_rate=1", *out], "did you mean 'learning_rate'"),
        (["fit", log, "--set", "width=-3", *out], "width=-3"),
        (["fit", log, "--set", "clip_norm=inf", *out], "clip_norm=inf: Input should be a finite number"),
        (["fit", log, "--method", "cooccurrence", "--set", "shrinkage=[nan]", *out], "should be a finite number"),
        (["fit", log, "--set", "width", *out], "has no '='"),
        (["fit", log, "--config", tmp_path / "bad.toml", *out], "no readable TOML"),
        (["fit", log, "--split", "user", *out], "did you mean 'users'"),
        (["fit", log, "--time-limit", "soon", *out], "write 30m, 90s or 1h30m"),
        (["fit", log, "--method", "popularity", "--out", tmp_path / "foreign"], "foreign"),
        (["fit", log, "--method", "popularity", "--out", fitted], "overwrite"),
        (["fit", log], "--out"),
        (["evaluate", fitted, "--k", "0"], "k=0 is outside"),
        (["evaluate", fitted, "--k", "61"], "k=61 is outside 1..60"),
        (["evaluate", fitted, "--log", few], "no user column"),
        (["evaluate", fitted, "--tail", "0.2", "--tail-of", "interaction"], "did you mean 'interactions'"),
        (["evaluate", fitted, "--tail", "0.999"], "the tail has 60 of 60 items; choose a share between"),
        (["evaluate", tmp_path / "none"], "none"),
        (["recommend", fitted, "--user", "3", "-k", "0"], "k=0 is outside 1..60"),
        (["recommend", fitted, "--user", "3", "-k", "99"], "k=99 is outside 1..60"),
        (["recommend", fitted, "--user", "9999"], "unknown, such as 9999"),
        (["recommend", fitted, "--user", "x"], "id 'x' is not of type Int64"),
        (["recommend", fitted], "either --user"),
        (["recommend", fitted, "--history", "1", "--category", "none"], "category 'none' is unknown"),
        (["recommend", tmp_path / "foreign", "--user", "1"], "foreign"),
        (["nonsense"], "nonsense"),
        (["compare", log, "--methods", "dtr"], "at least two"),
    ]
    for arguments, message in cases:
        assert beamwood(*arguments) == 2, arguments
        error = capsys.readouterr().err
        assert message in error, (arguments, error)
        assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "foreign" / "file").read_text() == "mine"
    assert beamwood("recommend", fitted, "--user", "3", "-k", "0", "--json") == 2
    assert "k=0" in json.loads(capsys.readouterr().out)["error"]


def test_ids_as_they_are_typed(tmp_path, capsys):
    frame = pl.DataFrame({"user": [f"u,{n % 20}" for n in range(200)], "item": [f"i,{n % 7} " for n in range(200)]})
    frame.write_parquet(tmp_path / "log.parquet")
    out = tmp_path / "out"
    assert beamwood("fit", tmp_path / "log.parquet", "--method", "popularity", "--out", out) == 0
    (tmp_path / "users.txt").write_bytes(b"\xef\xbb\xbfu,3\r\n\r\nu,4\r\n")
    (tmp_path / "items.txt").write_bytes(b"\xef\xbb\xbfi,3\ni,4 \n")
    (tmp_path / "empty.txt").write_text("\n")

    def asked(*arguments):
        capsys.readouterr()
        assert beamwood("recommend", out, "-k", 7, "--json", *arguments) == 0, capsys.readouterr().err
        return [row["items"] for row in json.loads(capsys.readouterr().out)]

    seen = ("--history", '["i,0", "i,1 "]', "--history", '["i,2"]')
    assert [len(set(row)) for row in asked(*seen)] == [5, 6]
    assert asked("--users-file", tmp_path / "users.txt", "--include-seen") == asked(
        "--user", "u,3", "--user", " u,4", "--include-seen"
    )
    assert sorted(asked("--history", "", "--allowed-items", tmp_path / "items.txt")[0]) == ["i,3 ", "i,4 "]
    for arguments, message in [
        (["recommend", out, "--users-file", tmp_path / "empty.txt"], "empty.txt holds no ids"),
        (["recommend", out, "--user", os.fsdecode(b"\xff")], "not UTF-8"),
        (["recommend", out, "--history", os.fsdecode(b"\xff")], "not UTF-8"),
        (["fit", tmp_path / "log.parquet", "--out", os.fsdecode(b"o\xff")], "not UTF-8"),
    ]:
        assert beamwood(*arguments) == 2
        assert message in capsys.readouterr().err


def test_unknown_integer_ids_can_be_ignored(fitted, capsys):
    for arguments in (["--user", "nobody"], ["--history", "1,x"]):
        assert beamwood("recommend", fitted, *arguments, "-k", "3", "--on-unknown", "ignore") == 0
        assert capsys.readouterr().out.count("\n") == 4
        assert beamwood("recommend", fitted, *arguments) == 2
        assert "is not of type Int64" in capsys.readouterr().err


def test_corrupt_and_changed(market, fitted, tmp_path, capsys):
    weights = fitted / "weights.safetensors"
    whole = weights.read_bytes()
    try:
        for damage in (whole[:-7], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
            weights.write_bytes(damage)
            assert beamwood("recommend", fitted, "--user", "3") == 2
            assert "weights.safetensors" in capsys.readouterr().err
    finally:
        weights.write_bytes(whole)
    changed = tmp_path / "changed.parquet"
    pl.read_parquet(market / "log.parquet").head(-1).write_parquet(changed)
    assert beamwood("evaluate", fitted, "--log", changed) == 2
    assert "content has changed" in capsys.readouterr().err


def test_counting_commands_never_import_torch(fitted):
    program = (
        "import sys\nfrom beamwood.cli.main import main\n"
        f"assert main(['recommend', {str(fitted)!r}, '--user', '3']) == 0\n"
        f"assert main(['evaluate', {str(fitted)!r}, '--k', '5']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=ENVIRONMENT)


@pytest.mark.slow
def test_an_interrupt_keeps_the_run(market):
    out = market / "long"
    command = [sys.executable, "-m", "beamwood", "fit", str(market / "log.parquet"), "--out", str(out)]
    for setting in [*TINY[:5], "max_steps=1000000", "evaluate_every=20", "patience=1000000"]:
        command += ["--set", setting]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    metrics = market / "long.run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size > 500):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "--resume" in errors
    resumed = subprocess.run(
        [*command, "--resume", "--time-limit", "20s"], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert (out / "manifest.json").exists()


def test_durations():
    assert [parse_duration(text) for text in ("30m", "90s", "1h30m", "45", None)] == [1800, 90, 5400, 45, None]
    for text in ("", "0s", "m", "-3s", "1d"):
        with pytest.raises(InputError, match="time-limit"):
            parse_duration(text)


@pytest.mark.slow
def test_a_kill_while_saving_leaves_the_old_artefact_whole(market, fitted):
    command = [sys.executable, "-m", "beamwood", "fit", str(market / "log.parquet"), "--method", "popularity"]
    command += ["--out", str(fitted), "--overwrite"]
    program = (
        "import os, runpy, signal, sys\n"
        "real, left = os.fsync, [int(sys.argv[1])]\n"
        "def fsync(descriptor):\n"
        "    left[0] -= 1\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if left[0] < 0 else real(descriptor)\n"
        "os.fsync = fsync\n"
        "sys.argv = ['beamwood', *sys.argv[2:]]\n"
        "runpy.run_module('beamwood', run_name='__main__')\n"
    )
    for point in (0, 2, 5):
        killed = subprocess.run(
            [sys.executable, "-c", program, str(point), *command[3:]], capture_output=True, env=ENVIRONMENT, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        assert beamwood("recommend", fitted, "--user", "3") == 0
        assert beamwood("inspect", fitted) == 0


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_artefact_whole(market, fitted):
    program = (
        "import resource, runpy, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))\n"
        "sys.argv = ['beamwood', *sys.argv[1:]]\n"
        "runpy.run_module('beamwood', run_name='__main__')\n"
    )
    arguments = ["fit", str(market / "log.parquet"), "--method", "cooccurrence", "--out", str(fitted), "--overwrite"]
    full = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    assert beamwood("recommend", fitted, "--user", "3") == 0
    assert [entry.name for entry in market.iterdir() if entry.name.startswith(".")] == []
