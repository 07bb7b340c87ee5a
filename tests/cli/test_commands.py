"""The command line end to end: successful runs, exit codes, and one clear line for each invalid input."""

import html
import json
import os
import re
import subprocess
import sys
import time

import polars as pl
import pytest

from beamwood.cli.quantities import parse_duration, parse_time_limit
from beamwood.cli.splits import load_split
from beamwood.errors import InputError
from beamwood.methods import Method
from beamwood.retrieval.retriever import Retriever
from cli_cases import ENVIRONMENT, beamwood


def test_fit_evaluate_recommend(market, fitted, capsys):
    capsys.readouterr()
    assert beamwood("evaluate", fitted, "--json", "--k", "5,10") == 0
    document = json.loads(capsys.readouterr().out)
    metrics = document["views"]["removed"]["metrics"]
    assert 0 < metrics["f@5"] < 1
    assert document["views"]["kept"]["protocol"]["queries"] == 12
    assert beamwood("evaluate", fitted, "--k", "5", "--tail", "0.3", "--tail-of", "interactions", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert "together hold 30 % of the training interactions" in document["tail"]["rule"]
    for views in (document["views"], document["tail"]["views"]):
        assert views["kept"]["protocol"]["tail_rule"] == document["tail"]["rule"]
        assert 0 <= views["kept"]["metrics"]["gini@5"] <= 1
    assert document["tail"]["probability_gap"]["queries"] == 12
    page = market / "report.html"
    assert beamwood("evaluate", fitted, "--k", "5", "--tail", "0.3", "--html", page) == 0
    assert "scores over their sum" in capsys.readouterr().out
    assert "test users with a tail label" in page.read_text()
    by_prefixes = ("evaluate", fitted, "--k", "5", "--tail", "0.3", "--tail-of", "prefixes", "--html", page)
    assert beamwood(*by_prefixes, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    for said in (document["tail"]["rule"], document["views"]["removed"]["protocol"]["tail_rule"]):
        assert "prefixes of two items or more" in said
    assert "prefixes of two items or more" in html.unescape(page.read_text())
    assert beamwood(*by_prefixes) == 0
    assert capsys.readouterr().out.count("prefixes of two items or more") == 3
    assert beamwood("evaluate", fitted, "--k", "5", "--html", market / "log.parquet" / "page.html") == 2
    assert beamwood("evaluate", fitted, "--k", "5") == 0
    assert "seen items removed" in capsys.readouterr().out
    assert beamwood("recommend", fitted, "--user", "3", "--user", "7", "-k", "4", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["query"] for row in rows] == [3, 7]
    assert all(len(row["items"]) == 4 for row in rows)
    assert beamwood("recommend", fitted, "--history", "1,2,3", "--category", "group 0, category 1", "-k", "2") == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert beamwood("inspect", fitted, "--json") == 0
    assert json.loads(capsys.readouterr().out)["method"] == "cooccurrence"
    assert beamwood("doctor", "--json") == 0
    assert "kernels" in json.loads(capsys.readouterr().out)


def test_min_weight_is_stored_and_reused(market, tmp_path, capsys):
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


def test_the_tail_gap_of_methods_with_user_ids(market, fitted, tmp_path, capsys):
    """By softmax for matrix factorisation, a ranker alone, and a ranker with a retriever."""
    few = {"model.width": 4, "choose.validation_users": 10, "loop.max_steps": 2, "loop.evaluate_every": 2}
    ranking = few | {"loop.batch_size": 16}
    of_histories = {"model.mlp": [4], "model.attention": [4]}
    methods = {
        "two_tower": few | {"model.user_tower": "mf", "loop.batch_size": 32},
        "ranker": ranking | {"model.kind": "neumf"},
        "two_stage": ranking | of_histories | {"model.num_candidates": 10, "loss.num_negatives": 3},
    }
    for method, settings in methods.items():
        out, split = tmp_path / method, "users" if method == "two_stage" else "leave-one-out"
        options = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        options += ["--retriever", fitted] if method == "two_stage" else []
        fit = ["fit", market / "log.parquet", "--method", method, "--split", split, "--out", out, *options]
        assert beamwood(*fit) == 0, capsys.readouterr().err
        capsys.readouterr()
        assert beamwood("evaluate", out, "--k", "5", "--tail", "0.3") == 0
        assert "probability (softmax of the scores) of a tail item" in capsys.readouterr().out


def test_compare_names_the_better_method(market, capsys):
    code = beamwood("compare", market / "log.parquet", "--methods", "popularity,cooccurrence", "--k", "10", "--json")
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(document["methods"]) == {"popularity", "cooccurrence"}
    winner = document["verdict"]["removed"]["winner"]
    assert f"{winner} " in document["conclusion"]
    assert document["verdict"]["removed"]["simplest"] == "popularity"
    assert document["costs"]["cooccurrence"]["milliseconds"] > 0
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
    assert "the 40 % of the items" in tail["rule"]
    assert set(tail["methods"]) == {"popularity", "cooccurrence"}
    assert tail["methods"]["popularity"]["kept"]["protocol"]["queries"] == tail["queries"]
    (test,) = tail["paired_tests"]["removed"]
    assert {test["baseline"], test["rival"]} == {"popularity", "cooccurrence"}
    assert tail["verdict"]["removed"]["winner"] == test["baseline"]
    assert beamwood(*arguments, "--tail-of", "prefixes") == 0
    assert re.search("test users with a tail label; .*prefixes of two items or more", capsys.readouterr().out)


SLOW = """
from beamwood.errors import TimeLimitError
from beamwood.methods import Method
from beamwood.methods.popularity import METHOD as POPULARITY


def build(split, config, seed, budget):
    raise TimeLimitError("time_limit=1 s is below 61 s, what slow needs here; raise it")


METHOD = Method(name="slow", summary="needs a minute", Config=POPULARITY.Config, build=build)
"""


def test_compare_reports_omitted_methods_at_the_end(market, tmp_path, capsys):
    (tmp_path / "slow.py").write_text(SLOW)
    methods = f"popularity,cooccurrence,{tmp_path / 'slow.py'}"
    assert beamwood("compare", market / "log.parquet", "--methods", methods, "--k", "10") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("slow is left out: time_limit=1 s is below 61 s")


def test_compare_accepts_sums(market, capsys, tmp_path, monkeypatch):
    """A sum is evaluated like the folder of its two stages, each part is fitted once, and a third part is possible."""
    log, fitted, whole = market / "log.parquet", [], Method.fitted
    monkeypatch.setattr(Method, "fitted", lambda self, *a, **o: (fitted.append(self.name), whole(self, *a, **o))[1])
    names = ["cooccurrence+transitions", "cooccurrence", "transitions+cooccurrence+popularity"]
    assert beamwood("compare", log, "--methods", ",".join(names), "--k", "10", "--json") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert list(document["methods"]) == names
    assert sorted(fitted) == ["cooccurrence", "popularity", "transitions"]
    assert document["seconds"][names[0]] >= document["seconds"]["cooccurrence"]
    first = ["fit", log, "--method"]
    assert beamwood(*first, "cooccurrence", "--out", tmp_path / "first") == 0
    stages = [*first, "two_stage", "--retriever", tmp_path / "first", "--ranker", "transitions"]
    assert beamwood(*stages, "--out", tmp_path / "both") == 0
    capsys.readouterr()
    assert beamwood("evaluate", tmp_path / "both", "--k", "10", "--json") == 0
    alone = json.loads(capsys.readouterr().out)
    for view in ("kept", "removed"):
        assert document["methods"][names[0]][view]["metrics"] == alone["views"][view]["metrics"]
    # The same as a single fit command.
    assert beamwood(*first, names[2], "--out", tmp_path / "three", "--seed", "2026", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["training"].keys() >= {
        "decay",
        "cooccurrence/retriever_weight",
        "popularity/seen_weight",
    }
    assert beamwood("evaluate", tmp_path / "three", "--k", "10", "--json") == 0
    views = json.loads(capsys.readouterr().out)["views"]
    assert document["methods"][names[2]]["removed"]["metrics"] == views["removed"]["metrics"]


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
            "1 of 40 rows with no user id, the first None in row 1",
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
        (["fit", log, "--method", "dtr", "--set", "lerning_rate=1", *out], "did you mean 'optimiser.learning_rate'"),
        (["fit", log, "--method", "dtr", "--set", "model.width=-3", *out], "model.width=-3"),
        (
            ["fit", log, "--method", "dtr", "--set", "optimiser.clip_norm=inf", *out],
            "optimiser.clip_norm=inf: give a finite number above 0, or null",
        ),
        (
            ["fit", log, "--method", "cooccurrence", "--set", "model.shrinkage=[nan]", *out],
            "each a finite number from 0",
        ),
        (["fit", log, "--method", "dtr", "--set", "width", *out], "has no '='"),
        (["fit", log, "--method", "dtr", "--config", tmp_path / "bad.toml", *out], "not readable TOML"),
        (["fit", log, "--split", "user", *out], "did you mean 'users'"),
        (["fit", log, "--time-limit", "soon", *out], "write 30m, 90s or 500ms"),
        (["fit", log, "--method", "popularity", "--out", tmp_path / "foreign"], "foreign"),
        (["fit", log, "--method", "popularity", "--out", fitted], "overwrite"),
        (["fit", log, "--set", "model.width=8", *out], "--set belongs to a method; name it with --method"),
        (["fit", log, "--method", "ease", "--budget-ms", "2", *out], "--budget-ms is for the search"),
        (["fit", log, "--budget-mb", "-1", *out], "--budget-mb -1.0 is not a number above 0"),
        (["evaluate", fitted, "--k", "0"], "--k 0 is outside"),
        (["evaluate", fitted, "--k", "61"], "--k 61 is outside 1..60"),
        (["evaluate", fitted, "--log", few], "no user column"),
        (["evaluate", fitted, "--tail", "0.2", "--tail-of", "interaction"], "did you mean 'interactions'"),
        (["evaluate", fitted, "--tail", "0.999"], "the tail has 60 of 60 items, so there is no gap to others"),
        (["evaluate", tmp_path / "none"], "none"),
        (["recommend", fitted, "--user", "3", "-k", "0"], "--k 0 is outside 1..60"),
        (["recommend", fitted, "--user", "3", "-k", "99"], "--k 99 is outside 1..60"),
        (["recommend", fitted, "--user", "9999"], "unknown, such as 9999"),
        (["recommend", fitted, "--user", "x"], "id 'x' is unknown: the log's ids are of type Int64"),
        (["recommend", fitted], "give one of --user"),
        (["recommend", fitted, "--history", "1", "--category", "none"], "category 'none' is unknown"),
        (["recommend", tmp_path / "foreign", "--user", "1"], "foreign"),
        (["nonsense"], "nonsense"),
        (["compare", log, "--methods", "dtr"], "at least two"),
        (["compare", log, "--methods", "dtr,dtr+melt"], "melt starts from a fitted model"),
        (["compare", log, "--methods", "dtr,dtr+"], "has a '+' without a method on one side"),
        (
            ["fit", log, "--method", "dtr+sasrec", "--out", "x"],
            "sasrec is trained, and a sum adds counting methods only",
        ),
        (["fit", log, "--method", "dtr+cooc", "--out", "x"], "'cooc' is unknown; did you mean 'cooccurrence'"),
    ]
    for arguments, message in cases:
        assert beamwood(*arguments) == 2, arguments
        error = capsys.readouterr().err
        assert message in error, (arguments, error)
        assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "foreign" / "file").read_text() == "mine"
    assert beamwood("recommend", fitted, "--user", "3", "-k", "0", "--json") == 2
    assert "--k 0" in json.loads(capsys.readouterr().out)["error"]


def test_ids_are_used_as_typed(tmp_path, capsys):
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
    assert asked("--users", tmp_path / "users.txt", "--include-seen") == asked(
        "--user", "u,3", "--user", " u,4", "--include-seen"
    )
    assert sorted(asked("--history", "[]", "--allowed-items", tmp_path / "items.txt")[0]) == ["i,3 ", "i,4 "]
    for arguments, message in [
        (["recommend", out, "--users", tmp_path / "empty.txt"], "empty.txt holds no ids"),
        (["recommend", out, "--user", os.fsdecode(b"\xff")], "not UTF-8"),
        (["recommend", out, "--history", os.fsdecode(b"\xff")], "not UTF-8"),
        (["fit", tmp_path / "log.parquet", "--out", os.fsdecode(b"o\xff")], "not UTF-8"),
    ]:
        assert beamwood(*arguments) == 2
        assert message in capsys.readouterr().err


def test_unknown_integer_ids_can_be_ignored(fitted, capsys):
    for arguments, said in (
        (["--user", "nobody"], "unknown and ignored: 1 of 1 user id, such as 'nobody'"),
        (["--history", "1,x"], "unknown and ignored: 1 of 2 item ids, such as 'x'"),
        # As of a file in another form.
        (["--history", "1 2"], "unknown and ignored: 1 of 1 item id, such as '1 2'"),
    ):
        assert beamwood("recommend", fitted, *arguments, "-k", "3", "--on-unknown", "ignore") == 0
        told = capsys.readouterr()
        assert told.out.count("\n") == 4
        assert said in told.err
        assert beamwood("recommend", fitted, *arguments) == 2
        assert "is unknown: the log's ids are of type Int64" in capsys.readouterr().err


def test_counting_commands_never_import_torch(fitted):
    program = (
        "import sys\nfrom beamwood.cli.main import main\n"
        f"assert main(['recommend', {str(fitted)!r}, '--user', '3']) == 0\n"
        f"assert main(['evaluate', {str(fitted)!r}, '--k', '5']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=ENVIRONMENT)


def test_input_that_is_nested_too_deeply_is_not_an_internal_error(market, fitted, tmp_path, capsys):
    deep = tmp_path / "deep.toml"
    deep.write_text("a=" + "[" * 50_000)
    fit = ("fit", market / "log.parquet", "--out", tmp_path / "out")
    for arguments in (
        ("recommend", fitted, "--history", "[" * 100_000),
        (*fit, "--config", deep),
        (*fit, "--set", "loop.max_steps=" + "[" * 5_000),
    ):
        assert beamwood(*arguments) == 2
        assert "internal error of beamwood" not in capsys.readouterr().err


def test_a_failure_in_a_custom_file_is_not_an_internal_error(market, tmp_path, capsys):
    """Nor is a failure in the package on values from the file; the line is named, and the traceback is kept."""
    head = "from beamwood.fitting.settings import MethodConfig\nfrom beamwood.methods import Method\n\n\n"
    tail = "\n\n\nMETHOD = Method('broken', 'fails', MethodConfig, build=build)\n"
    for place, line in enumerate(("1 / 0", "split.train.histories.take('a')")):
        file = tmp_path / f"broken{place}.py"
        file.write_text(f"{head}def build(split, config, seed, budget):\n    {line}{tail}")
        assert beamwood("fit", market / "log.parquet", "--method", file, "--out", tmp_path / "out") == 2
        said = capsys.readouterr().err
        assert f"the method file {file}, line 6: " in said
        assert "Traceback" in said
        assert "internal error of beamwood" not in said


def test_durations():
    assert [parse_time_limit(text) for text in ("30m", "90s", "1h30m", "45", None)] == [1800, 90, 5400, 45, None]
    assert [parse_duration("--drain", text) for text in ("500ms", "0s", "1m2.5s", "0")] == [0.5, 0, 62.5, 0]
    # An hour and thirty seconds, or minutes?
    for text in ("", "m", "-3s", "1d", "1h30", "5m30", "9" * 400, "9" * 400 + "h"):
        with pytest.raises(InputError, match=r"--drain .* is not a duration; write 30m, 90s or 500ms"):
            parse_duration("--drain", text)
    with pytest.raises(InputError, match="--time-limit '0s' is not above 0"):
        parse_time_limit("0s")


GONE = """
from beamwood.methods import Method
from beamwood.methods.popularity import METHOD as POPULARITY


def build(split, config, seed, budget):
    searcher, _ = POPULARITY.build(split, config, seed, budget)
    return searcher, {"limit": budget.limit, "gone": budget.seconds}


METHOD = Method(name="gone", summary="says what is gone of its limit", Config=POPULARITY.Config, build=build)
"""


def test_a_limit_covers_the_reading_of_the_log(market, tmp_path, capsys, monkeypatch):
    def slowly(*arguments, **options):
        time.sleep(0.3)
        return load_split(*arguments, **options)

    monkeypatch.setattr(sys.modules["beamwood.cli.commands.fit"], "load_split", slowly)
    (tmp_path / "gone.py").write_text(GONE)

    def training(method):
        arguments = ("--method", method, "--out", tmp_path / "fit", "--time-limit", "60s", "--overwrite")
        assert beamwood("fit", market / "log.parquet", *arguments) == 0
        return Retriever.load(tmp_path / "fit").metadata["training"]

    alone = training(tmp_path / "gone.py")
    assert alone["limit"] == 60
    assert alone["gone"] >= 0.3
    assert training(f"{tmp_path / 'gone.py'}+popularity")["limit"] == 45
    said = capsys.readouterr().out
    assert float(said[said.rindex("saved gone+popularity") :].split(" after ")[1].split()[0]) >= 0.3
