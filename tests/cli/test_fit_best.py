"""`beamwood fit LOG` without a method: an early result, the table, and resumption."""

import json
import shlex
import tempfile

import pytest
from markupsafe import escape

import beamwood as package
from beamwood.cli.written import default_output
from beamwood.recipes.portfolio import find as finding
from beamwood.recipes.portfolio.members import Member
from beamwood.retrieval.retriever import Retriever
from cli_cases import beamwood

COUNTING = [Member("popularity", "popularity", blends=False), Member("cooccurrence", "cooccurrence")]


@pytest.fixture(autouse=True)
def counting_alone(monkeypatch):
    """Make the search short, for any candidates."""
    whole = finding.find

    def short(split, **options):
        return whole(split, **options, members=COUNTING)

    monkeypatch.setattr(finding, "find", short)


def test_the_best_is_saved_with_its_table(market, tmp_path, capsys):
    out, page = tmp_path / "best", tmp_path / "best.html"
    asked = ("fit", market / "log.parquet", "--items", market / "items.parquet", "--out", out, "--time-limit", "10m")
    assert beamwood(*asked, "--json", "--html", page) == 0
    captured = capsys.readouterr()
    assert "the whole search takes 10 minutes at most\n" in captured.err
    assert "120 users and 60 items" in captured.err
    assert "popularity: removed/f@20" in captured.err
    document = json.loads(captured.out)
    assert document["method"] == document["portfolio"]["chosen"]
    assert package.load(out).metadata["portfolio"] == document["portfolio"]
    text = page.read_text()
    # A simpler one, or one within a budget, need not be the best.
    assert " is chosen on <data" in text
    for row in document["portfolio"]["rows"]:
        assert f'data-row="{row["name"]}"' in text
    assert beamwood("evaluate", out, "--json") == 0
    views = json.loads(capsys.readouterr().out)["views"]
    test = document["portfolio"]["test"]["removed"]["metrics"]["f@20"]["value"]
    assert views["removed"]["metrics"]["f@20"] == pytest.approx(test)
    assert beamwood("recommend", out, "--history", "1,2", "-k", "3") == 0
    capsys.readouterr()
    assert beamwood(*asked) == 2
    assert "already holds a search; pass --resume to go on with it, or --overwrite" in capsys.readouterr().err
    assert beamwood(*asked, "--resume") == 0
    captured = capsys.readouterr()
    assert "popularity: removed" not in captured.err
    assert "is chosen, on " in captured.out
    assert beamwood(*asked, "--overwrite", "--without-histories") == 0
    assert package.load(out).histories is None


def test_a_search_needs_no_temporary_folder(market, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    assert beamwood("fit", market / "log.parquet", "--out", tmp_path / "best", "--time-limit", "10m") == 0
    assert package.load(tmp_path / "best").metadata["portfolio"]["chosen"]


def test_the_view_that_is_maximised_can_be_chosen(tmp_path, capsys):
    rows = [(user, user % 5 * 6 + time % 3, time) for user in range(60) for time in range(12)]
    log, out = tmp_path / "log.csv", tmp_path / "best"
    log.write_text("\n".join(["user_id,item_id,timestamp", *(",".join(map(str, row)) for row in rows)]))
    asked = ("fit", log, "--out", out, "--time-limit", "10m")
    assert beamwood(*asked) == 0
    assert "lists without seen items; --monitor kept/f@20 judges lists with them" in capsys.readouterr().err
    assert beamwood(*asked, "--monitor", "kept/f@20", "--resume") == 2
    assert beamwood(*asked, "--monitor", "kept/f@20", "--overwrite") == 0
    captured = capsys.readouterr()
    assert "cooccurrence: kept/f@" in captured.err
    assert "--monitor kept/f@20 judges" not in captured.err
    assert package.load(out).metadata["portfolio"]["chosen"] == "cooccurrence"
    assert beamwood(*asked, "--monitor", "kept/f", "--overwrite") == 2
    assert "--monitor kept/f is not measured; did you mean 'kept/f@20'?" in capsys.readouterr().err
    assert beamwood(*asked, "--monitor", "kept/f@20", "--method", "ease") == 2
    assert "leave one out, or use --set choose.monitor=kept/f@20" in capsys.readouterr().err


def test_weights_that_trained_methods_ignore_are_reported(tmp_path, capsys):
    rows = [
        (user, user % 5 * 6 + time % 6, time, "buy" if time % 2 else "view") for user in range(60) for time in range(8)
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["user_id,item_id,timestamp,event", *(",".join(map(str, row)) for row in rows)]))
    asked = ("fit", log, "--out", tmp_path / "best", "--time-limit", "10m")
    assert beamwood(*asked, "--events", "buy,view=0.3") == 0
    assert "trained methods learn from each event alike" in capsys.readouterr().err
    assert beamwood(*asked[:4], "--events", "buy,view", "--overwrite") == 0
    told = capsys.readouterr().err
    assert "takes 30 minutes at most; a time limit of your own changes that\n" in told
    assert "from each event alike" not in told


@pytest.fixture
def interrupted_once(monkeypatch):
    """Make Ctrl-C come as soon as the first model is saved outside the folder of the search."""
    save = Retriever.save

    def interrupted(self, path, **options):
        save(self, path, **options)
        if "portfolio" in self.metadata:
            monkeypatch.setattr(Retriever, "save", save)
            raise KeyboardInterrupt

    monkeypatch.setattr(Retriever, "save", interrupted)


def test_an_interrupted_search_prints_one_document(market, tmp_path, interrupted_once, capsys):
    out, page = tmp_path / "the best", tmp_path / "best.html"
    asked = ("fit", market / "log.parquet", "--out", out, "--time-limit", "10m", "--json", "--html", page)
    assert beamwood(*asked) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["method"] == "popularity"
    assert document["error"].startswith(f"interrupted; the best so far is in {out}")
    assert document["exit"] == 130
    text = page.read_text()
    assert "the search was interrupted before a test" in text
    assert f"beamwood evaluate {escape(shlex.quote(str(out)))}</code>" in text


@pytest.mark.usefixtures("interrupted_once")
def test_ctrl_c_leaves_the_best_so_far_saved(market, tmp_path, capsys):
    out = tmp_path / "best"
    asked = ("fit", market / "log.parquet", "--out", out, "--time-limit", "10m")
    assert beamwood(*asked) == 130
    captured = capsys.readouterr()
    assert (
        captured.err.strip()
        .splitlines()[-1]
        .endswith(f"interrupted; the best so far is in {out}; the same command with --resume goes on")
    )
    assert "popularity is chosen" in captured.out
    assert package.load(out).metadata["portfolio"]["chosen"] == "popularity"
    assert beamwood(*asked, "--resume") == 0
    assert "cooccurrence" in capsys.readouterr().out
    assert package.load(out).metadata["portfolio"]["test"]


def test_a_search_that_cannot_begin_is_refused_before_the_log_is_read(tmp_path, capsys):
    """The log is missing, which would be said otherwise."""
    asked = ("fit", tmp_path / "log.csv", "--out", tmp_path / "best")
    assert beamwood(*asked, "--resume") == 2
    assert "best.search does not exist, so there is nothing to resume; run without" in capsys.readouterr().err
    (tmp_path / "best.search").mkdir()
    (tmp_path / "best.search" / "notes.txt").touch()
    assert beamwood(*asked) == 2
    assert "best.search does not hold a search of beamwood" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [(), ("--overwrite",)])
def test_another_model_that_was_saved_meanwhile_is_replaced_only_if_asked(market, tmp_path, monkeypatch, capsys, asked):
    out, find = tmp_path / "best", finding.find
    command = ("fit", market / "log.parquet", "--out", out, "--time-limit", "10m")

    def late(split, **options):
        monkeypatch.setattr(finding, "find", find)
        assert beamwood("fit", market / "log.parquet", "--method", "ease", "--out", out) == 0
        return find(split, **options)

    monkeypatch.setattr(finding, "find", late)
    if asked:
        assert beamwood(*command, *asked) == 0
        assert "portfolio" in package.load(out).metadata
        return
    assert beamwood(*command) == 2
    said = capsys.readouterr().err
    assert "best already holds an artefact; pass --overwrite" in said
    assert "with --overwrite --resume the search goes on with what it has found\n" in said
    assert beamwood(*command, "--resume") == 2
    assert "best already holds an artefact" in capsys.readouterr().err
    assert package.load(out).metadata["method"] == "ease"
    assert beamwood(*command, "--overwrite", "--resume") == 0
    assert "popularity: removed" not in capsys.readouterr().err
    assert package.load(out).metadata["portfolio"]["chosen"]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_model_that_replaced_one_of_the_search_is_kept(market, tmp_path, monkeypatch, capsys, resumed):
    """It comes between two saves of a search, and while a resumed one reads its log."""
    out, find = tmp_path / "best", finding.find
    command = ("fit", market / "log.parquet", "--out", out, "--time-limit", "10m")

    def replaced():
        monkeypatch.setattr(finding, "find", find)
        assert beamwood("fit", market / "log.parquet", "--method", "ease", "--out", out, "--overwrite") == 0

    def between(split, *, better, **options):
        def then_replaced(retriever):
            better(retriever)
            assert package.load(out).metadata["portfolio"]
            replaced()

        return find(split, better=then_replaced, **options)

    def late(split, **options):
        replaced()
        return find(split, **options)

    if resumed:
        assert beamwood(*command) == 0
    monkeypatch.setattr(finding, "find", late if resumed else between)
    assert beamwood(*command, *(("--resume",) if resumed else ())) == 2
    assert "best already holds an artefact; pass --overwrite" in capsys.readouterr().err
    assert package.load(out).metadata["method"] == "ease"
    assert beamwood(*command, "--overwrite", "--resume") == 0
    assert package.load(out).metadata["portfolio"]["chosen"]


def test_budgets_reach_the_search(market, tmp_path, capsys):
    asked = ("fit", market / "log.parquet", "--out", tmp_path / "small", "--time-limit", "10m")
    assert beamwood(*asked, "--budget-mb", "0.001", "--json") == 0
    assert json.loads(capsys.readouterr().out)["method"] == "popularity"
    assert beamwood(*asked, "--budget-ms", "0.0000001", "--overwrite") == 2
    assert "nothing is within --budget-ms 1e-07" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("log", "out"),
    [
        ("log.csv", "runs/log"),
        ("data/events/", "runs/events"),
        ("a/log.csv.gz", "runs/log"),
        ("data/*.parquet", "runs/log"),
    ],
)
def test_the_output_has_the_name_of_the_log(log, out):
    assert default_output(log) == out
