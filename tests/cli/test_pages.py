"""The pages of --html in Chromium: no requests, no errors, no horizontal scrolling, and the numbers of the JSON."""

import json
import re
import subprocess
import sys

import polars as pl
import pytest

from beamwood.cli import output
from beamwood.data.markets import synthetic
from beamwood.errors import NotInstalledError
from chromium import Chromium, check_page, needs_chromium, rows_of
from cli_cases import ENVIRONMENT, TINY, beamwood

pytestmark = pytest.mark.slow


def said(capsys, *arguments):
    """The JSON document of a command."""
    capsys.readouterr()
    assert beamwood(*arguments, "--json") == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@needs_chromium
def test_compare(market, capsys, tmp_path):
    page, methods = tmp_path / "page.html", "popularity,cooccurrence,transitions,cooccurrence+transitions"
    asked = ("compare", market / "log.parquet", "--methods", methods, "--k", "5,10", "--tail", "0.3")
    document = said(capsys, *asked, "--html", page)
    charts = check_page(page, document, tmp_path)
    for view, verdict in document["verdict"].items():
        drawn = {row["name"]: row for row in rows_of(charts[f"quality-{view}"])}
        assert {name: row["mean"] for name, row in drawn.items()} == {
            name: views[view]["metrics"]["f@5"] for name, views in document["methods"].items()
        }
        shown = {row["name"]: row["mean"] for row in rows_of(charts[f"differences-{view}"]) if "name" in row}
        assert shown == {rival["name"]: rival["difference"] for rival in verdict["rivals"]}
        shares = {(row["name"], row["part"]): row["share"] for row in rows_of(charts[f"users-{view}"])}
        assert shares[verdict["rivals"][0]["name"], "worse for"] == verdict["rivals"][0]["worse"]
        assert verdict["words"] in document["conclusion"]
        for part in ("history", "popularity"):
            cells = document["for_whom"][view][part]["methods"]
            for row in rows_of(charts[f"{part}-{view}"]):
                assert {"mean": row["mean"], "low": row["low"], "high": row["high"]} in cells[row["name"]]
    for cost in ("milliseconds", "megabytes"):
        drawn = {row["name"]: row["x"] for row in rows_of(charts[cost])}
        assert drawn == {name: own[cost] for name, own in document["costs"].items()}


ATTACK = "<script>document.title = 'mine'</script><img src=x onerror='document.title = 1'>"


@pytest.fixture(scope="module")
def hostile(market, tmp_path_factory):
    """A small tree over items whose titles try to run scripts, and users whose ids do."""
    folder = tmp_path_factory.mktemp("hostile")
    log = pl.read_parquet(market / "log.parquet")
    log.with_columns(user_id=pl.format("{}<b onclick='x'>&", "user_id")).write_parquet(folder / "log.parquet")
    items = pl.read_parquet(market / "items.parquet")
    titles = items.with_columns(
        title=pl.format("{} " + ATTACK, "item_id"), category=pl.format("{}</script>", "category")
    )
    titles.write_parquet(folder / "items.parquet")
    settings = [part for setting in (*TINY, "tree.branching=4") for part in ("--set", setting)]
    source = (folder / "log.parquet", "--items", folder / "items.parquet")
    assert beamwood("fit", *source, "--method", "dtr", "--out", folder / "tree", *settings) == 0
    return folder


@needs_chromium
def test_evaluate(hostile, capsys, tmp_path):
    page = tmp_path / "page.html"
    asked = ("evaluate", hostile / "tree", "--k", "5,10", "--tail", "0.3", "--sampled", "20", "--html", page)
    document = said(capsys, *asked)
    charts = check_page(page, document, tmp_path)
    drawn = {(row["part"], row["name"]): row["mean"] for row in rows_of(charts["metrics"])}
    for view, words in (("removed", "seen items removed"), ("kept", "seen items kept")):
        for name in document["views"][view]["interval_95"]:
            assert drawn[words, name] == document["views"][view]["metrics"][name]
    lost = [row["y"] for row in rows_of(charts["lost"])]
    assert lost == document["beam"]["lost"]
    assert sum(lost) + document["beam"]["found"] == pytest.approx(1)
    ranges = document["calibration"]["ranges"]
    points = [row for row in rows_of(charts["calibration"]) if "predicted" in row]
    assert [(row["predicted"], row["observed"]) for row in points] == [(r["predicted"], r["observed"]) for r in ranges]
    assert len(document["examples"]) == 5
    for example in document["examples"]:
        assert all(ATTACK in each["title"] for each in example["shown"])
        found = {each["title"] for each in example["labels"] if each["hit"]}
        assert found == {each["title"] for each in example["shown"] if each["hit"]}
    # Titles are escaped.
    with Chromium(tmp_path) as browser:
        browser.open(page, 1280)
        assert browser.ask("document.title") == "dtr on the test data · beamwood evaluate"
        assert browser.ask("document.querySelectorAll('.items img, .items script, main b').length") == 0
        first = document["examples"][0]
        assert browser.ask("document.querySelector('.items li').textContent") == first["history"][0]
        assert browser.ask("document.querySelector('.example h3').textContent") == f"User {first['user']}"


@needs_chromium
def test_evaluate_a_counting_method(fitted, capsys, tmp_path):
    page = tmp_path / "page.html"
    document = said(capsys, "evaluate", fitted, "--k", "5", "--html", page)
    assert document["beam"] is None
    charts = check_page(page, document, tmp_path)
    assert "lost" not in charts
    assert "examples" not in said(capsys, "evaluate", fitted, "--k", "5")


@needs_chromium
def test_inspect(hostile, capsys, tmp_path):
    page = tmp_path / "page.html"
    document = said(capsys, "inspect", hostile / "tree", "--widths", "20,40,60", "--html", page)
    charts = check_page(page, document, tmp_path)
    report, nodes = document["diagnostics"], document["outline"]
    assert [row["y"] for row in rows_of(charts["lost"])] == [level["lost"] for level in report["levels"]]
    drawn = {(row["x"], row["name"]): row["y"] for row in rows_of(charts["found"])}
    for beam in (*report["beams"], report["exact"]):
        assert drawn[beam["scored_nodes"], "of the exact best"] == beam["overlap"]
    with Chromium(tmp_path) as browser:
        browser.open(page, 360)
        assert browser.ask("document.querySelectorAll('.tree li').length") == 1 + len(nodes[0]["below"])
        # Opened level by level down to an item, whose title is escaped.
        for _ in range(document["tree"]["depth"] - 1):
            browser.ask("[...document.querySelectorAll('.tree details:not([open])')].at(0).open = true")
            browser.ask("new Promise(done => setTimeout(done, 200))")
        leaf = browser.ask("document.querySelector('.tree .leaf .name').textContent")
        assert ATTACK in leaf
        assert browser.ask("document.querySelectorAll('.tree img, .tree script').length") == 0
        assert browser.ask("document.documentElement.scrollWidth") <= 360
        assert browser.errors() == []


@needs_chromium
def test_fit(market, capsys, tmp_path):
    page, board = tmp_path / "page.html", tmp_path / "board"
    settings = [*TINY, "loop.log_every=2", "tree.updates=1", "tree.branching=4"]
    asked = (
        "fit",
        market / "log.parquet",
        "--method",
        "dtr",
        "--out",
        tmp_path / "tree",
        *(f"--set={setting}" for setting in settings),
    )
    document = said(capsys, *asked, "--html", page, "--tensorboard", board)
    charts = check_page(page, document, tmp_path)
    losses = [line["loss"] for line in document["curve"] if "loss" in line]
    assert len(losses) == 3
    assert [row["y"] for row in rows_of(charts["loss"]) if "y" in row] == losses
    (update,) = [line for line in document["curve"] if "update" in line]
    assert [row["x"] for row in rows_of(charts["loss"]) if "words" in row] == [update["step"]]
    # A step with a tree update is validated before and after the update.
    drawn = {(row["x"], row["y"]) for row in rows_of(charts["valid-1"]) if row.get("name") == "seen items removed"}
    name = "valid/removed/f@20"
    assert drawn == {(line["step"], line[name]) for line in document["curve"] if name in line}
    assert events(board)["loss"] == pytest.approx(losses, rel=1e-5)


def events(folder):
    """The values of each curve that TensorBoard reads, in order."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(folder))
    read.Reload()
    return {name: [event.value for event in read.Scalars(name)] for name in read.Tags()["scalars"]}


def test_fit_a_counting_method(market, tmp_path, capsys):
    page, board = tmp_path / "page.html", tmp_path / "board"
    asked = ("fit", market / "log.parquet", "--method", "cooccurrence", "--out", tmp_path / "counts", "--html", page)
    assert beamwood(*asked, "--tensorboard", board) == 0
    assert "--tensorboard has no effect" in capsys.readouterr().err
    assert "Nothing was logged by step" in page.read_text()
    assert not board.exists()


def test_tensorboard_continues_with_a_resumed_run(market, tmp_path, capsys):
    """Events of repeated steps are discarded; a file at the folder's path is refused."""
    board = tmp_path / "board"
    log, out = market / "log.parquet", tmp_path / "tree"
    asked = (
        "fit",
        log,
        "--method",
        "dtr",
        "--out",
        out,
        "--tensorboard",
        board,
        *(f"--set={s}" for s in [*TINY, "loop.log_every=1"]),
    )
    assert beamwood(*asked) == 0
    longer = [part.replace("loop.max_steps=6", "loop.max_steps=9") for part in map(str, asked)]
    assert beamwood(*longer, "--resume", "--overwrite") == 0
    assert len(events(board)["loss"]) == 9
    (tmp_path / "file").write_text("mine")
    assert beamwood("fit", log, "--method", "dtr", "--out", tmp_path / "other", "--tensorboard", tmp_path / "file") == 2
    assert "is a file; name a folder" in capsys.readouterr().err


@needs_chromium
def test_demo(capsys, tmp_path, monkeypatch):
    """On a smaller market than the default."""
    small = synthetic.MarketConfig(num_users=200, num_items=80, min_events=12, max_events=40)
    made = synthetic.make_market
    monkeypatch.setattr(synthetic, "make_market", lambda seed: made(small, seed=seed))
    document = said(capsys, "demo", "--out", tmp_path / "demo", "--seconds", "15")
    charts = check_page(tmp_path / "demo.html", document, tmp_path)
    assert document["market"]["num_items"] == 80
    best = document["beyond"]["best possible"]["removed"]["metrics"]["f@20"]
    drawn = {row["name"]: row["mean"] for row in rows_of(charts["quality-removed"])}
    assert drawn["best possible"] == best
    assert drawn.keys() == {"best possible", *document["methods"]}
    assert {"valid-1", "milliseconds", "users-removed"} <= charts.keys()
    assert beamwood("demo", "--out", tmp_path / "demo") == 2
    assert "already holds a" in capsys.readouterr().err


@needs_chromium
def test_nothing_learned(market, capsys, tmp_path, monkeypatch):
    """If no method finds anything, the page reports it and draws the available data."""
    from beamwood.evaluation import protocol

    monkeypatch.setattr(protocol, "relevance", lambda items, labels: items < -1)
    page = tmp_path / "page.html"
    asked = ("compare", market / "log.parquet", "--methods", "popularity,transitions", "--k", "5", "--html", page)
    document = said(capsys, *asked)
    assert document["conclusion"].startswith("Nothing was learned: ")
    assert "simpler" not in document["conclusion"]
    check_page(page, document, tmp_path)
    assert "<h1>Nothing was learned</h1>" in page.read_text()


def test_a_page_never_overwrites_another_file(market, tmp_path, capsys):
    log, page = market / "log.parquet", tmp_path / "page.html"
    page.write_text("mine")
    asked = ("compare", log, "--methods", "popularity,transitions", "--k", "5", "--html", page)
    assert beamwood(*asked) == 2
    assert "is not a page of beamwood" in capsys.readouterr().err
    page.unlink()
    assert beamwood(*asked) == beamwood(*asked) == 0
    assert page.read_text().startswith("<!doctype html>")


def test_without_the_extra_the_installation_is_named(market, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(NotInstalledError, match=r'install it with: pip install "beamwood\[plots\]"'):
        output.check_page("page.html")
    assert beamwood("compare", market / "log.parquet", "--html", "page.html") == 2
    assert "beamwood[plots]" in capsys.readouterr().err


def test_commands_without_a_page_do_not_import_its_libraries(market):
    program = (
        "import sys\nfrom beamwood.cli.main import main\n"
        f"assert main(['compare', {str(market / 'log.parquet')!r}, '--methods', 'popularity,transitions']) == 0\n"
        "assert not {'altair', 'jinja2', 'vl_convert'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=ENVIRONMENT)


def test_only_the_page_s_own_scripts_may_run(market, tmp_path):
    page = tmp_path / "page.html"
    assert beamwood("compare", market / "log.parquet", "--methods", "popularity,transitions", "--html", page) == 0
    text = page.read_text()
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1]
    assert policy.startswith("default-src &#39;none&#39;;")
    assert policy.count("sha256-") == len(re.findall(r"<script>", text)) == 2
    assert not re.search(r"<(?:link|img|iframe)\b|\bsrc=", text.split("<script>")[0])
