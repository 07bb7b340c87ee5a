"""The examples of README and the documentation run as typed, on a small log, with shorter time limits.

`sh` blocks are commands, and `python` blocks run in sequence. A block that starts with `# file: NAME` is that file.
`http` blocks are requests to a service of the folder in the page's last `beamwood serve`, which is stopped before its
store is read.
"""

import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

from beamwood.cli.registry import EXAMPLES
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.methods import load_method
from cli_cases import beamwood
from prose import fenced

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "lab")]
RUNNING = [
    page for page in PAGES if any(block.language in ("sh", "python", "http") for block in fenced(page.read_text()))
]
# Pages for every change; the others take longer.
SHORT = ("README.md", "first-answers.md", "columns.md", "add-a-method.md")
# Very short trainings: steps of a fit, and limits of Python calls and of comparisons, which omit slower methods.
STEPS = ["--set", "loop.max_steps=40", "--set", "loop.evaluate_every=20"]
LIMIT, SECONDS = "3s", "time_limit=6"


@pytest.fixture(scope="session")
def tables():
    """A log and its item table, as frames by file name."""
    market = make_market(MarketConfig(num_users=160, num_items=80, min_events=8, max_events=24), seed=3)
    # Times that are comparable between users, as in a shop.
    times = 1_700_000_000 + pl.col("timestamp") * 3600 + pl.col("user_id") * 60
    log = market.log.with_columns(times.alias("timestamp"), (pl.int_range(pl.len()) % 5 + 1).alias("rating"))
    names = ["shoes", "hats", "coats"]
    items = market.item_frame.select("item_id").with_columns(
        pl.Series("category", [names[place % 3] for place in range(80)]),
        pl.Series("price", [5 + place % 40 for place in range(80)]),
        pl.Series("brand", [("acme", "old oak", "pine", None)[place % 4] for place in range(80)]),
        pl.Series("sale", [place % 5 == 0 for place in range(80)]),
    )
    assert log.columns[:3] == ["user_id", "item_id", "timestamp"]
    return {"log.csv": log, "items.csv": items}


@pytest.fixture
def folder(tables, tmp_path, monkeypatch):
    for name, frame in tables.items():
        frame.write_csv(tmp_path / name)
    tables["log.csv"].select("user_id", "item_id", "timestamp").write_csv(tmp_path / "bare.csv", include_header=False)
    (tmp_path / "in-stock.txt").write_text("".join(f"{item}\n" for item in range(1, 30)))
    (tmp_path / "candidates.txt").write_text("3\n1\n8\n")
    (tmp_path / "users.txt").write_text("7\n9\n")
    (tmp_path / "histories.txt").write_text("5,9,2\n[11, 999999]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_next_log_has_each_event_of_an_export_once_and_repeats_of_the_log(tmp_path, monkeypatch):
    """An export holds those of an earlier one; an untyped event has no type in the log either."""
    monkeypatch.chdir(tmp_path)
    block = next(each for each in fenced((ROOT / "docs/how-to/histories.md").read_text()) if "next.csv" in each.text)
    Path("log.csv").write_text("user_id,item_id,timestamp,price\n" + "7,007,1700000000,5\n" * 2)
    Path("items.csv").write_text("item_id,title\n007,a\n")
    pl.DataFrame({"item": ["007", "8"]}).write_parquet("new.parquet")
    at = pl.from_epoch(pl.Series([1_700_000_000, 1_700_000_060, 1_700_000_060, 1_700_000_120]))
    events = pl.DataFrame({"user": [7] * 4, "item": ["007", "8", "8", "9"], "type": [None, None, None, "buy"]})
    events = events.with_columns(time=at)
    for count in (3, 4):
        events[:count].write_parquet("taken.parquet")
        exec(compile(block.text, "histories.md", "exec"), {})
        Path("next.csv").replace("log.csv")
        Path("next-items.csv").replace("items.csv")
    assert pl.read_csv("log.csv", infer_schema=False)["item_id"].to_list() == ["007", "007", "8", "8", "9"]
    assert pl.read_csv("items.csv", infer_schema=False)["item_id"].to_list() == ["007", "8"]


def commands(text):
    """The commands of a block, without the activation of an environment."""
    for line in text.splitlines():
        line = line.partition("  #")[0].strip()
        if line and not line.startswith((". ", "#")):
            yield line


def quick(words):
    """A command with fewer steps or a shorter limit; `serve` is only checked."""
    if words[0] == "serve":
        return [*dict.fromkeys([*words, "--check"])]
    if words[0] not in ("fit", "compare"):
        return words
    limit = words.index("--time-limit") if "--time-limit" in words else len(words)
    words = words[:limit] + words[limit + 2 :]
    if words[0] == "compare":
        return [*words, "--time-limit", LIMIT]
    if "--method" not in words:
        return [*words, "--time-limit", LIMIT]
    method = load_method(words[words.index("--method") + 1].split("+")[0])
    trains = method.needs.steps and "--ranker" not in words and "loop.max_steps=40" not in words
    return [*words, *STEPS] if trains else words


def run(command):
    program, *words = shlex.split(command)
    assert program == "beamwood", f"only beamwood is run: {command}"
    assert beamwood(*quick(words)) == 0, command


def parameters():
    for page in RUNNING:
        marks = () if page.name in SHORT else (pytest.mark.slow,)
        yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


class Serving:
    """A service of the last named folder, from its first request until it is stopped."""

    def __init__(self):
        self.name, self.clients = None, ExitStack()
        self.client = None

    def stop(self):
        """Stop it, so that another process can open its store."""
        self.clients.close()
        self.client = None

    def ask(self, text):
        """A request in the notation of a block: the first line, header lines, and the body."""
        client = self.client = self.client or self._started()
        head, brace, body = text.partition("{")
        first, *more = head.strip().splitlines()
        method, path = first.split()
        headers = dict(line.split(": ") for line in more)
        content = {"content": brace + body} if brace else {}
        answer = client.request(method, path, headers={"content-type": "application/json"} | headers, **content)
        assert answer.status_code == 200, f"{first}: {answer.text}"

    def _started(self):
        testclient = pytest.importorskip("starlette.testclient", reason="asking needs the extras serve and dev")
        from beamwood.serve.app import build_app
        from beamwood.serve.service import Service
        from beamwood.serve.settings import ServeSettings

        settings = ServeSettings(
            store=f"sqlite:{self.name}.events.db",
            items=Path("items.csv"),
            models_dir=Path("runs"),
            timeout=60,
            max_wait=60,
            log="none",
        )
        return self.clients.enter_context(testclient.TestClient(build_app(Service.open(self.name, settings))))


@pytest.mark.parametrize("page", list(parameters()))
def test_the_examples_of_a_page_run(page, folder):
    serving = Serving()
    try:
        run_blocks(page, folder, {"__name__": "__main__"}, serving)
    finally:
        serving.stop()


def run_blocks(page, folder, names, serving):
    for block in fenced(page.read_text()):
        named = re.match(r"# file: (\S+)\n", block.text)
        if block.language == "http":
            serving.ask(block.text)
        elif block.language == "sh":
            for command in commands(block.text):
                run_beside(command, serving)
        elif block.language == "python" and named:
            (folder / named[1]).write_text(block.text)
        elif block.language == "python":
            code = re.sub(r"time_limit=\d+", SECONDS, block.text)
            exec(compile(code, f"{page.name}:{block.line}", "exec"), names)


def run_beside(command, serving):
    """Run a command; one that reads the store stops the service first, and `serve` replaces it."""
    words = command.split()
    if words[1] in ("serve", "events", "explain"):
        serving.stop()
    run(command)
    if words[1] == "serve":
        serving.name = words[2]


# The demo has its own test; commands that read the store of a service run in pages, next to one.
@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(EXAMPLES.keys() - {"demo", "events", "explain"}))
def test_the_examples_of_help_run(command, folder):
    if command in ("evaluate", "refit", "recommend", "inspect", "similar", "score", "serve"):
        run("beamwood fit log.csv --items items.csv --method dtr --out runs/mine --time-limit 1m")
    elif command == "export":
        run("beamwood fit log.csv --method two_tower --out runs/mine --time-limit 1m")
    for example in EXAMPLES[command]:
        # The market has eighty items.
        run(example.replace("--item 318", "--item 18"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_do_not_run_are_marked_as_text(page):
    """For a block without a language it is unclear whether it should run."""
    for block in fenced(page.read_text()):
        known = ("sh", "python", "http", "text", "toml", "")
        assert block.language in known or block.language.startswith("{"), f"{page.name}:{block.line}"
        if block.language in ("", "text") and page.name not in ("install.md", "tests.md"):
            for line in commands(block.text):
                placeholder = re.search(r"\b[A-Z]{3,}\b", line)
                assert not line.startswith("beamwood ") or placeholder, f"{page.name}:{block.line} is not run"
