"""Options that do not fit the method, the data or each other are refused before training, with a fix."""

import json

import polars as pl
import pytest

from beamwood.cli.method_settings import make_config
from beamwood.data import read_log
from beamwood.methods import METHODS, Method, load_method
from beamwood.retrieval.retriever import Retriever
from beamwood.tree import Shape
from cli_cases import beamwood


def write_log(path, num_users, *, num_items=40, num_rows=12):
    """Every user has item 0 first and last; user u has the items u + 1, u + 2, .. in between."""
    ends = [(user, 0) for user in range(num_users)]
    between = [(user, (user + step) % num_items) for user in range(num_users) for step in range(1, num_rows + 1)]
    rows = [*ends, *between, *ends]
    users, items = zip(*rows, strict=True)
    pl.DataFrame({"user_id": users, "item_id": items, "timestamp": range(len(rows))}).write_csv(path)
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("options") / "log.csv", 30)


@pytest.fixture(scope="module")
def fitted(log):
    """Leave-one-out: every label is item 0, which is never a tail item."""
    out = log.parent / "fitted"
    assert beamwood("fit", log, "--method", "popularity", "--split", "leave-one-out", "--out", out) == 0
    return out


@pytest.fixture
def untrained(monkeypatch):
    """Make every training fail."""

    def fitted(*arguments, **options):
        raise AssertionError("a method was trained")

    monkeypatch.setattr(Method, "fitted", fitted)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("popularity,ranker", "use --split leave-one-out, time or boundary, or leave ranker out"),
        ("popularity,two_stage", "fit it by `beamwood fit LOG --method two_stage --retriever FOLDER`"),
        ("popularity,melt", "fit it by `beamwood fit LOG --method melt --from FOLDER`"),
        ("popularity,cities", "fit it by `beamwood fit LOG --method cities --from FOLDER`"),
    ],
)
def test_compare_refuses_before_training(log, untrained, capsys, methods, message):
    assert beamwood("compare", log, "--methods", methods) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("fit LOG --budget-ms 0", "--budget-ms 0.0 is not a number above 0; leave it out for none"),
        ("fit LOG --budget-mb nan", "--budget-mb nan is not a number above 0; leave it out for none"),
        ("fit LOG --split user", "--split 'user' is unknown; did you mean 'users'?"),
        ("fit LOG --method ease --split user", "--split 'user' is unknown; did you mean 'users'?"),
        ("fit LOG --method dtr --set loop.device=gpu", "give 'cpu' or 'cuda'; did you mean 'cuda'?"),
        ("compare LOG --split last", "--split 'last' is unknown"),
        ("compare LOG --k ten", "--k 'ten' is not a list of numbers; write --k 20,40"),
    ],
)
def test_mistyped_options_are_refused_before_the_log_is_read(log, tmp_path, monkeypatch, capsys, typed, message):
    def read(*arguments, **options):
        raise AssertionError("the log was read")

    monkeypatch.setattr("beamwood.data.log.open_source", read)
    out = ["--out", tmp_path / "out"] if typed.startswith("fit") else []
    assert beamwood(*(log if word == "LOG" else word for word in typed.split()), *out) == 2
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_compare_needs_two_test_users(tmp_path, untrained, capsys):
    small = write_log(tmp_path / "small.csv", 10)
    assert beamwood("compare", small, "--methods", "popularity,transitions", "--k", "5") == 2
    assert "leaves 1 test user, too few for a test; give more users" in capsys.readouterr().err


def test_other_metrics_are_kept_without_a_tail_label(log, fitted, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert beamwood("evaluate", fitted, "--k", "5", "--tail", "0.2", "--json", "--html", page) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["views"]["kept"]["metrics"]["hit_rate@5"] == 1
    assert (document["tail"]["queries"], document["tail"]["views"]) == (0, {})
    assert "no test user has a tail label" in page.read_text()
    assert beamwood("evaluate", fitted, "--k", "5", "--tail", "0.2") == 0
    assert "no test user has a tail label: raise --tail; " in capsys.readouterr().out
    by_last = ["compare", log, "--split", "leave-one-out", "--methods", "popularity,transitions", "--k", "5"]
    assert beamwood(*by_last, "--tail", "0.2", "--json") == 0
    said = capsys.readouterr()
    assert "--tail is left out: 0 test users have a tail label" in said.err
    assert "tail" not in json.loads(said.out)


def test_wrong_options(log, fitted, tmp_path, capsys):
    fit = ["fit", log, "--method", "popularity", "--out", tmp_path / "out"]
    (tmp_path / "file.run").write_text("mine")
    (tmp_path / "torn.run").mkdir()
    (tmp_path / "torn.run" / "config.json").write_text('{"beamw')
    tree = ["fit", log, "--method", "dtr", "--out"]
    cases = [
        ([*fit, "--seed", "99999999999999999999"], "is above 9223372036854775807; give at most"),
        ([*fit, "--seed", "-1"], "--seed -1 is below 0; give at least 0"),
        ([*fit, "--items-column", "x"], "--items-column is for the item table; give one with --items"),
        ([*fit, "--unlisted-items", "keep"], "--unlisted-items keep is for the item table"),
        (["compare", log, "--items-column", "x"], "--items-column is for the item table"),
        (["recommend", fitted, "--user", "99"], "pass --on-unknown ignore"),
        ([*tree, tmp_path / "file"], "cannot hold a run"),
        ([*tree, tmp_path / "file", "--resume"], "cannot hold a run"),
        ([*tree, tmp_path / "torn", "--resume"], "config.json is damaged or not of a run"),
    ]
    for arguments, message in cases:
        assert beamwood(*arguments) == 2, arguments
        error = capsys.readouterr().err
        assert message in error, (arguments, error)
        assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "torn.run" / "config.json").read_text() == '{"beamw'


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--tail", "0.005", "the tail has 0 of 40 items, so there is no gap to others; raise --tail"),
        ("--sampled", "39", "ask for at most 27 (--sampled 27)"),
        ("--sampled", "3", "--k 5 is above 4, the items that --sampled 3 ranks; lower --k, or draw at least 4"),
    ],
)
def test_evaluate_refuses_before_measuring(fitted, monkeypatch, capsys, option, value, message):
    def measure(*arguments, **options):
        raise AssertionError("the retriever was measured")

    monkeypatch.setattr("beamwood.evaluation.protocol.evaluate_split", measure)
    assert beamwood("evaluate", fitted, "--k", "5", option, value) == 2
    assert message in capsys.readouterr().err


def test_the_largest_number_of_negatives_is_accepted(fitted):
    assert beamwood("evaluate", fitted, "--k", "5", "--sampled", "27") == 0


def test_a_counting_method_reports_options_without_effect(log, tmp_path, capsys):
    assert beamwood("fit", log, "--method", "popularity", "--out", tmp_path / "out", "--resume") == 0
    assert "popularity is a counting method: --resume has no effect" in capsys.readouterr().err


def test_a_user_table_without_columns_in_use_is_reported(log, tmp_path, capsys):
    users = tmp_path / "users.parquet"
    read_log(log).frame.select(user_id="user").unique().with_columns(age=pl.lit(30)).write_parquet(users)
    given = ("--method", "popularity", "--out", tmp_path / "out", "--user-table", users)
    assert beamwood("fit", log, *given) == 0
    assert "--user-table has no effect without columns of it in model.user_columns" in capsys.readouterr().err


def test_the_run_is_next_to_a_folder_given_with_a_slash(log, tmp_path, capsys):
    few = [
        "loop.max_steps=1",
        "model.width=4",
        "model.attention_hidden=4",
        "model.windows=[4,2]",
        "model.mlp=[4]",
        "examples.min_history=2",
    ]
    settings = [part for setting in few for part in ("--set", setting)]
    assert beamwood("fit", log, "--method", "dtr", "--out", f"{tmp_path}/mine/", *settings) == 0, (
        capsys.readouterr().err
    )
    assert Retriever.load(tmp_path / "mine").metadata["method"] == "dtr"
    assert (tmp_path / "mine.run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evaluate", "runs/a", "--tail", "x"), "--tail x is not a number; give one; `beamwood evaluate --help-all`"),
        (("evaluate", "runs/a", "--tail=1.2"), "--tail 1.2 is above 0.999; give at most 0.999; "),
        (("fit", "log.csv", "--seed", "-1"), "--seed -1 is below 0; give at least 0; "),
        (("recommend", "runs/a", "-k1e3", "--user", "7"), "--k 1e3 is not a whole number; give one; "),
    ],
)
def test_a_wrong_value_is_shown_in_our_words(capsys, arguments, said):
    """The parser's own words are of another package, and without the value."""
    assert beamwood(*arguments) == 2
    assert f"beamwood: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("null", None), ("0.5", 0.5)])
def test_a_setting_can_be_null(text, value):
    """The papers' initialisation of attention; TOML has no null."""
    assert make_config(load_method("dtr"), None, [f"start.attention={text}"]).start.attention == value


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_a_method(method, capsys):
    """Each that may be changed is listed with its default in the notation of `--set`."""
    assert beamwood("settings", method, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    config = load_method(method).Config
    assert config.fixed.isdisjoint(rows)
    assert list(rows) == [name for name in config.names() if not config.fixed or name in rows]
    defaults = {name: row["default"] for name, row in rows.items()}
    assert config(**defaults) == config()
    assert beamwood("settings", method) == 0
    said = capsys.readouterr().out
    assert all(f"{name} = " in said for name in rows) if rows else "has no settings" in said


def test_presets_by_name(log, tmp_path, capsys):
    """`--set` overrides a preset; `settings` lists the values of a preset."""
    few = ["loop.max_steps=1", "examples.min_history=2", "tree.updates=0", "choose.validation_users=5"]
    given = ["--method", "tdm", "--preset", "paper", *(part for setting in few for part in ("--set", setting))]
    assert beamwood("fit", log, *given, "--out", tmp_path / "tdm") == 0, capsys.readouterr().err
    fitted = Retriever.load(tmp_path / "tdm")
    assert fitted.metadata["preset"] == "paper"
    settings = fitted.metadata["config"]
    assert (settings["loop"]["max_steps"], settings["loop"]["batch_size"], settings["model"]["width"]) == (1, 100, 24)
    assert fitted.searcher.tree.shape == Shape(2, 2, 6)
    capsys.readouterr()
    assert beamwood("fit", log, "--method", "tdm", "--preset", "papr", "--out", tmp_path / "no") == 2
    assert "the method tdm has no preset 'papr'; did you mean 'paper'?" in capsys.readouterr().err
    assert beamwood("settings", "dtr") == 0
    said = capsys.readouterr().out
    assert 'loss.negatives = "uniform" (uniform | tree)' in said
    assert '    --preset paper | paper-t | program: "tree"\n' in said
    assert said.endswith("presets: paper, paper-t, paper-u, program\n")
    assert beamwood("settings", "popularity") == 0
    assert "preset" not in capsys.readouterr().out


def test_compare_accepts_a_preset(log, monkeypatch, capsys):
    """It applies to each method that has it; whether a method needs known users depends on its preset."""
    asked = {}

    fitted = Method.fitted

    def noted(method, data, *, preset, **options):
        asked[method.name] = (preset, method.configured(None, preset).given)
        return fitted(load_method("popularity"), data)

    monkeypatch.setattr(Method, "fitted", noted)
    one = ["compare", log, "--k", "5", "--methods"]
    assert beamwood(*one, "popularity,sasrec", "--preset", "paper") == 0
    assert "without a preset paper, so with their defaults: popularity" in capsys.readouterr().err
    assert asked == {
        "popularity": (None, frozenset()),
        "sasrec": ("paper", set(load_method("sasrec").presets["paper"])),
    }
    assert beamwood(*one, "popularity,two_tower") == 0
    assert beamwood(*one, "popularity,two_tower", "--preset", "paper") == 2
    assert "two_tower recommends to users of the training data only" in capsys.readouterr().err
    assert beamwood(*one, "popularity,dtr", "--preset", "papr") == 2
    assert "--preset papr: no method here has it; did you mean 'paper'?" in capsys.readouterr().err
    assert beamwood(*one, "popularity,transitions", "--preset", "paper") == 2
    assert "--preset paper: no method here has it\n" in capsys.readouterr().err


def test_the_allowed_words_of_a_setting(capsys):
    assert beamwood("settings", "dtr") == 0
    assert 'loss.negatives = "uniform" (uniform | tree)\n    sampler of the softmax' in capsys.readouterr().out
    assert beamwood("settings", "dtrr") == 2
    assert "did you mean 'dtr'" in capsys.readouterr().err


def test_a_settings_file_may_start_with_a_byte_order_mark(tmp_path):
    """Some editors write one."""
    (tmp_path / "mine.toml").write_text("[model]\nwidth = 7\n", encoding="utf-8-sig")
    assert make_config(load_method("dtr"), str(tmp_path / "mine.toml"), []).model.width == 7


def test_a_settings_file_has_tables_and_options_override_it(tmp_path, capsys):
    """A key outside its table is an error that names the table."""
    path = tmp_path / "mine.toml"
    path.write_text("tree.branching = 4\n[loop]\nmax_steps = 5\nbatch_size = 7\n")
    config = make_config(load_method("dtr"), str(path), ["loop.max_steps=8"])
    assert (config.tree.branching, config.loop.max_steps, config.loop.batch_size) == (4, 8, 7)
    assert config.given == {"tree.branching", "loop.max_steps", "loop.batch_size"}
    path.write_text("max_steps = 5\n")
    assert beamwood("fit", "log.csv", "--method", "dtr", "--out", tmp_path / "out", "--config", path) == 2
    assert "max_steps belongs to a group: write loop.max_steps" in capsys.readouterr().err
    assert beamwood("fit", "log.csv", "--method", "dtr", "--out", tmp_path / "out", "--set", "embeddings=item") == 2
    assert "write tree.embeddings or optimiser.embeddings" in capsys.readouterr().err


def test_settings_without_a_method_lists_the_methods(capsys):
    assert beamwood("settings", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == list(METHODS)
    assert beamwood("settings") == 0
    said = capsys.readouterr().out
    assert all(f"{name}\n    {load_method(name).summary}\n" in said for name in METHODS)


def test_a_pattern_that_the_shell_expanded_belongs_in_quotes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv", "c.csv"):
        write_log(name, 12)
    assert beamwood("fit", "a.csv", "b.csv", "c.csv", "--method", "popularity") == 2
    said = capsys.readouterr().err
    assert "one path is read, and 2 more were given, the first b.csv; write a pattern of files in quotes" in said
    assert beamwood("fit", "a.csv", "popularity") == 2
    assert "unexpected extra argument(s) (popularity); `beamwood fit --help-all` says" in capsys.readouterr().err
    assert beamwood("fit", "*.csv", "--method", "popularity", "--out", "out") == 0
