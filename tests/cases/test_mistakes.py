"""Typical mistakes: one line names the correct command, and no existing file is lost."""

import errno
import io
import json
import os
from pathlib import Path

import polars as pl
import pytest

import beamwood as beamwood_api
from beamwood.artefact.manifest import check_outside
from beamwood.data import read_log
from beamwood.errors import InputError
from beamwood.evaluation.protocol import evaluate_split
from beamwood.retrieval.columns.where_text import parse_where
from cli_cases import beamwood

FORMS = {
    "csv": pl.DataFrame.write_csv,
    "parquet": pl.DataFrame.write_parquet,
    "jsonl": pl.DataFrame.write_ndjson,
    "arrow": pl.DataFrame.write_ipc,
    "ipc": pl.DataFrame.write_ipc_stream,
}


@pytest.fixture
def there(planted, write, tmp_path, monkeypatch, say):
    """A folder with a log, an item table, id lists and a fitted model, in which commands run."""
    write(planted)
    (tmp_path / "items.csv").write_text("item_id,category\n" + "".join(f"{item},odd\n" for item in range(30)))
    (tmp_path / "users.csv").write_text("user_id,age\n" + "".join(f"{user},{user + 20}\n" for user in range(40)))
    (tmp_path / "named.txt").write_text("user_id\n1\n2\n")
    (tmp_path / "users.txt").write_text("1\n2\n")
    (tmp_path / "quoted.txt").write_text('"1"\n2\n')
    (tmp_path / "rows.jsonl").write_text(
        '{"age": 20, "user_id": 1, "taken": [3, 4]}\n{"age": 21, "user_id": 2, "taken": [5]}'
    )
    (tmp_path / "pairs.jsonl").write_text('{"user_id": 1, "item_id": 3}\n')
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "one.csv").write_text("user_id,item_id\n" + "7,1\n7,2\n")
    monkeypatch.chdir(tmp_path)
    say("fit", "log.csv", "--items", "items.csv", "--method", "cooccurrence")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


MISTAKES = {
    # Paths
    "describe -": "stdin is not read: save it as a file first",
    "describe empty.csv": "it is empty; give a file with a line for each row",
    "describe one.csv": "give more, or name another column than 'user_id' with --user-column",
    "describe out": "out is a folder that `beamwood fit` saved, and no table",
    "describe log.csv --items out": "out is a folder that `beamwood fit` saved, and no table",
    "describe <>": "LOG is empty, as of a variable without a value; write the path",
    "fit log.csv --out <>": "--out is empty, as of a variable without a value; write the path, or leave it out",
    "fit log.csv --method own.py --out new": "own.py does not exist; check the path",
    "recommend out --users user.txt": "--users user.txt does not exist; did you mean 'users.txt'",
    "recommend out --users out": "--users out is a folder; name a file in it",
    "recommend out --users 1": "--users 1 does not exist; give a file, or --user 1",
    "recommend out --histories 5,9": "--histories 5,9 does not exist; give a file, or --history 5,9",
    "recommend out --user 1 --allowed-items 7": "--allowed-items 7 does not exist; give a file with an id a line",
    "evaluate log.csv": "log.csv is a file, not an artefact; give the folder that",
    "serve otu": "otu does not exist; did you mean",
    "describe s3://bucket/log.csv": "s3:/bucket/log.csv does not exist; addresses are not read: download it, and give",
    "describe s3://bucket/*.csv": "addresses are not read: download it, and give the file or folder",
    "fit log.csv --items https://a.bc/items.csv": "addresses are not read: download it, and give the file or folder",
    "recommend s3://bucket/new --user 1": "addresses are not read: download it, and give the file or folder",
    "fit log.csv --method ease --out s3://bucket/new": "is an address, which is not written to; name a path of this",
    "recommend out --all-users --out gs://bucket/a.csv": "is an address, which is not written to; name a path of this",
    "describe log.csv --html s3://bucket/page.html": "is an address, which is not written to; name a path of this",
    # Existing files are kept
    "fit log.csv --method popularity --out out/in": "which is a saved folder and holds nothing else; name another",
    "fit log.csv --method popularity --out new --html new/page.html": "--html new/page.html is in --out new",
    "evaluate out --html out/page.html": "which is a saved folder and holds nothing else; name another",
    "recommend out --all-users --out out/all.csv": "which is a saved folder and holds nothing else; name another",
    "fit log.csv --method sasrec --out new --tensorboard out": "which is a saved folder and holds nothing else; name",
    "serve out --store sqlite:out/events.db": "which is a saved folder and holds nothing else; name another",
    "recommend out --all-users --out log.csv --overwrite": "is no earlier output of this command, so it is not",
    "recommend out --users users.txt --out users.csv --overwrite": "is no earlier output of this command, so it is not",
    "fit log.csv --method two_stage --retriever out --ranker ease --out out --overwrite": "is the folder of",
    # Lists of ids
    "recommend out --users users.csv": "is a table, its columns between ',', such as 'user_id,age'; write one",
    "recommend out --users named.txt": "begins with 'user_id', which seems a column name, not an id; delete it",
    "recommend out --users quoted.txt": 'has an id in quotes, "1"; write ids as they are, one a line',
    "recommend out --users rows.jsonl": (
        """--users rows.jsonl holds rows of JSON, such as '{"age": 20, "user_id": 1, "taken": [3, 4]}'; write an """
        """id a line, as with: jq -r '.["user_id"]' rows.jsonl > rows.ids.txt"""
    ),
    "recommend out --histories rows.jsonl --on-unknown ignore": (
        """write a history a line, as 5,9,2, as with: jq -c '.["taken"]' rows.jsonl > rows.ids.txt"""
    ),
    "recommend out --histories pairs.jsonl": """'{"user_id": 1, "item_id": 3}'; write a history a line, as 5,9,2""",
    "recommend out --user 1 --allowed-items pairs.jsonl": """as with: jq -r '.["item_id"]' pairs.jsonl > pairs.ids""",
    "score out --user 1 --items items.csv": "is a table, its columns between ',', such as 'item_id,category'",
    "recommend out --history <>": "--history is empty, as of a variable without a value; write ids, or [] for an",
    "recommend out --history [1,null]": "'[1,null]' is JSON of other values than ids; write text and whole numbers",
    "recommend out --history [1,true]": "'[1,true]' is JSON of other values than ids",
    "recommend out --user 1 --effort 0.5 --beam-width 20": "--effort 0.5 and --beam-width 20 contradict each other",
    "compare log.csv --methods ease popularity": "'popularity' is unexpected; give methods as --methods ease,dtr",
    "recommend out --history 1,,2": "--history '1,,2' has a comma without an id beside it; write the ids as 5,9,2",
    # Input that would be dropped
    "fit log.csv --method ease --method popularity": "--method is given twice and takes one value; give it once",
    "recommend out --user 1 -k 3 --k 4": "--k is given twice and takes one value; give it once",
    "fit log.csv --method ease --out new --set model.decay=1 --set model.decay=.9": "--set model.decay is given twice",
    "fit log.csv --method ease+ --out new": "has a '+' without a method on one side; write a sum as dtr+ease",
    "evaluate out --tail-of items": "--tail-of says what --tail is a share of; give --tail too, as --tail 0.2",
    "evaluate out --method ease": "out was fitted with cooccurrence and not with ease; leave the method out",
    "recommend out --user 1 --overwrite": "are about a file; name it with --out recs.parquet",
    # Options of other commands, and missing arguments
    "describe log.csv --time-limit 3": (
        "No such option: --time-limit (of `beamwood fit`, `beamwood refit`, `beamwood compare`)"
    ),
    "inspect out --item 1": "No such option: --item (of `beamwood similar`)",
    "describe": "Missing argument 'LOG'; `beamwood describe --help-all` says what there is",
    "describe log.csv --min-weight nan": "--min-weight nan is not a finite number",
    "similar out --item 1 --by tree": "this model has no tree; ask by 'model'",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_gives_one_line_with_the_fix(there, say, capsys, typed):
    words = ["" if word == "<>" else word for word in typed.split()]
    before = contents(there)
    assert beamwood(*words) == 2
    said = capsys.readouterr().err
    assert MISTAKES[typed] in said.strip().splitlines()[-1]
    assert "Traceback" not in said
    assert contents(there) == before
    assert not (there / "new").exists()


@pytest.mark.parametrize("option", ["--items", "--user-table"])
def test_a_missing_table_is_named_before_the_log_is_read(there, capsys, option):
    """A large log takes minutes."""
    assert beamwood("fit", "log.csv", option, "itmes.csv", "--method", "ease", "--out", "new") == 2
    said = capsys.readouterr().err
    assert said.endswith("beamwood: itmes.csv does not exist; did you mean 'items.csv'?\n")
    assert "rows (user=" not in said


def test_a_refused_job_leaves_no_files(there, capsys):
    (there / "typo.txt").write_text("1\n999\n")
    assert beamwood("recommend", "out", "--users", "typo.txt", "--out", "all.csv") == 2
    assert not [path.name for path in there.iterdir() if path.name.startswith("all.csv")]
    assert beamwood("recommend", "out", "--users", "users.txt", "--out", "all.csv") == 0
    assert beamwood("recommend", "out", "--users", "users.txt", "--out", "all.csv", "--overwrite") == 0
    assert beamwood("recommend", "out", "--users", "users.txt", "--out", "all.parquet") == 0
    assert beamwood("recommend", "out", "--users", "users.txt", "--out", "all.parquet", "--overwrite") == 0
    assert "Traceback" not in capsys.readouterr().err
    assert pl.read_csv("all.csv")["query"].unique().sort().to_list() == [1, 2]


def test_an_unexpanded_tilde_is_the_home_folder(there, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(there / "home"))
    (there / "home").mkdir()
    (there / "home" / "log.csv").write_bytes((there / "log.csv").read_bytes())
    assert beamwood("fit", "~/log.csv", "--method", "popularity", "--out=~/fitted") == 0
    assert (there / "home" / "fitted" / "manifest.json").exists()
    assert not (there / "~").exists()
    assert beamwood("evaluate", "~/fitted", "--k", 3, "--json") == 0
    assert json.loads(capsys.readouterr().out.split("saved")[1].split("\n", 1)[1])["method"] == "popularity"


def test_paths_with_blanks_special_characters_and_links(there, say, capsys):
    place = there / "été & 日 [1]"
    place.mkdir()
    os.replace(there / "log.csv", place / "mon log.csv")
    say("describe", place / "mon log.csv")
    model = place / "mon modèle"
    assert beamwood("fit", place / "mon log.csv", "--method", "ease", "--out", model) == 0
    (there / "linked").symlink_to(model, target_is_directory=True)
    for folder in (model, there / "linked", f"{there / 'linked'}/"):
        assert beamwood("evaluate", folder, "--k", 3) == 0
        assert beamwood("recommend", folder, "--user", 3) == 0
    recs = place / "tous.csv"
    assert beamwood("recommend", model, "--all-users", "--out", recs) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMS)
def test_wildcard_characters_in_a_file_name(frame, tmp_path, form):
    """For example in the name of a second download; a pattern that is not a file name is still a pattern."""
    place = tmp_path / "{a} [x] *?"
    place.mkdir()
    for name, rows in (("log[1]", frame.head(9)), ("log*", frame.head(8)), ("log", frame.head(7))):
        FORMS[form](rows, place / f"{name}.{form}")
        assert len(read_log(place / f"{name}.{form}").frame) == len(rows)
    FORMS[form](frame.head(6), tmp_path / f"other1.{form}")
    FORMS[form](frame.head(5), tmp_path / f"other2.{form}")
    assert len(read_log(tmp_path / f"other*.{form}").frame) == 11


def test_a_model_whose_first_user_has_seen_every_item_can_be_served(tmp_path, write, say):
    every = [(0, item, 5, item) for item in range(6)]
    say("fit", write([*every, *((user, user % 6, 5, time) for user in range(1, 30) for time in range(3))]))
    assert "answered 6" in say("serve", tmp_path / "out", "--check")


def test_a_sum_has_the_name_as_typed(there, say):
    assert "saved popularity+cooccurrence in" in say("fit", "log.csv", "--method", "popularity+cooccurrence")
    assert "popularity+cooccurrence" in say("evaluate", "out", "--k", 3)
    assert "model popularity+cooccurrence@" in say("serve", "out", "--check")
    assert "popularity+cooccurrence" in say("inspect", "out")


def test_outputs_inside_a_saved_folder_are_refused(there):
    with pytest.raises(InputError, match="is a saved folder and holds nothing else"):
        check_outside(there / "out" / "a" / "b")
    (there / "other").mkdir()
    (there / "other" / "manifest.json").write_text("{}")
    check_outside(there / "other" / "a")


# From an unusual log to the fit


def test_following_describe_leads_to_the_fit(planted, write, say, tmp_path):
    """Names in another language, dates with the day first, and a file name that needs quotes."""
    rows = [(user, item, f"{1 + time % 28:02}.{1 + time % 9:02}.2024 10:00") for user, item, _, time in planted]
    write([*rows, (1, 1, "31.01.2024 10:00")], "mon log (1).csv", "Benutzer;Artikel;Zeitpunkt", ";")
    said = say("describe", tmp_path / "mon log (1).csv", code=2)
    wanted = "--user-column Benutzer --item-column Artikel --time-column Zeitpunkt --time-format '%d.%m.%Y %H:%M' --out"
    assert wanted in said
    assert said.index(wanted) < said.index("--time-column none")


def test_the_suggested_next_command_is_quoted(there, capsys):
    assert beamwood("fit", "log.csv", "--method", "popularity", "--out", "a b") == 0
    assert "next: beamwood evaluate 'a b'" in capsys.readouterr().err


def test_the_next_command_does_not_read_a_path_as_an_option(there, capsys):
    Path("log.csv").rename("-log.csv")
    assert beamwood("describe", "--", "-log.csv") == 0
    assert "next: beamwood fit ./-log.csv --out" in capsys.readouterr().out
    assert beamwood("fit", "--method", "popularity", "--out", "-fitted", "--", "-log.csv") == 0
    assert "next: beamwood evaluate ./-fitted" in capsys.readouterr().err
    assert beamwood("evaluate", "./-fitted", "--json") == 0


def test_many_unreadable_times_are_refused_at_once(tmp_path, say):
    frame = pl.DataFrame({"user": [*range(1200)], "item": 1, "time": [f"13.{1 + n % 12}.2024" for n in range(1200)]})
    frame.write_csv(tmp_path / "log.csv")
    said = say("fit", tmp_path / "log.csv", code=2)
    assert "is text of which none of the first 1,000 times can be read, such as '13.1.2024' in row 1" in said
    assert "they are dates with the day first" in said
    frame.head(999).write_csv(tmp_path / "log.csv")
    assert "has 999 of 999 times that cannot be read" in say("fit", tmp_path / "log.csv", code=2)


def test_the_item_table_column_with_the_ids_is_suggested(planted, write, say, tmp_path):
    path = write([(user, f"00{item}", rating, time) for user, item, rating, time in planted])
    items = tmp_path / "items.csv"
    items.write_text("item_id,code,kind\n" + "".join(f"{item},00{item},x\n" for item in range(30)))
    assert "its column 'code' has 30 of them, so say --items-column 'code'" in say(
        "fit", path, "--items", items, code=2
    )
    say("fit", path, "--items", items, "--items-column", "code", "--keep-columns", "kind")


@pytest.mark.parametrize(("kinds", "said"), [(("view", "buy"), True), (("film", "book"), False)])
def test_a_column_called_type_may_hold_kinds_of_events(planted, write, say, kinds, said):
    rows = [(*row, kinds[row[0] % 2]) for row in planted]
    path = write(rows, header="user_id,item_id,rating,timestamp,type")
    assert ("'type' has kinds of events" in say("fit", path)) == said


def test_in_a_folder_with_one_file_that_file_is_named(planted, write, say, tmp_path):
    (tmp_path / "logs").mkdir()
    write(planted, "logs/part.csv")
    assert "part.csv is read of it" in say("fit", tmp_path / "logs")


# The same in Python


@pytest.fixture(scope="module")
def inferred():
    rows = [(f"u{user}", f"item-{item:03}", item) for user in range(20) for item in range(user % 3, 12 + user % 3)]
    log = beamwood_api.read_log(pl.DataFrame(rows, ["user", "item", "time"], orient="row"))
    split = beamwood_api.splits.leave_one_out(beamwood_api.Dataset.from_log(log))
    return split, beamwood_api.fit(split, "popularity")


CALLS = {
    "read_log has no argument 'colums'; did you mean 'columns'": lambda s, r: beamwood_api.read_log("l", colums=1),
    "the source is an open file; give its path": lambda s, r: beamwood_api.read_log(io.StringIO("user,item")),
    "the source is bytes; give its path": lambda s, r: beamwood_api.read_log(b"log.csv"),
    r"only a shell expands ~: write os\.path\.expanduser": lambda s, r: beamwood_api.read_log("~/log.csv"),
    "path='~/a' begins with ~, which a shell knows": lambda s, r: r.save("~/a"),
    "methods='ease' is a string; give a list": lambda s, r: beamwood_api.compare(s, "ease"),
    r"methods='ease' must name at least two": lambda s, r: beamwood_api.compare(s, ["ease"]),
    "methods='ease,popularity,ease' must name at least two methods, each once": lambda s, r: beamwood_api.compare(
        s, ["ease", "popularity", "ease"]
    ),
    "ks is empty; give at least one cut": lambda s, r: beamwood_api.compare(s, ["ease", "popularity"], ks=[]),
    "id 'item-3' is unknown; did you mean 'item-003'. Else leave it out$": lambda s, r: r.similar(["item-3"]),
    "id 'Item-003' is unknown; did you mean 'item-003'": lambda s, r: r.recommend([["Item-003"]]),
    "1 of 1 ids are unknown, such as 'x'; leave them out$": lambda s, r: r.without_items(["x"]),
    "evaluate has no argument 'k'; did you mean 'ks'": lambda s, r: beamwood_api.evaluate(r, s, k=3),
    "recommend has no argument 'user'; did you mean 'users'": lambda s, r: r.recommend(user=4),
    "monitor=5 does not fit": lambda s, r: beamwood_api.fit(s, time_limit=1, monitor=5),
    "say=None does not fit": lambda s, r: beamwood_api.fit(s, time_limit=1, say=None),
    r"members=\['dtr'\] does not fit": lambda s, r: beamwood_api.fit(s, time_limit=1, members=["dtr"]),
    "rule=0.2 does not fit": lambda s, r: evaluate_split(r.searcher, s, rule=0.2),
    "text=5 does not fit": lambda s, r: parse_where(5, r.columns),
    "recommend has no argument 'excluded'; did you mean 'exclude'": lambda s, r: r.recommend(users=[4], excluded=[1]),
}


@pytest.mark.parametrize("message", CALLS)
def test_an_invalid_call_names_the_fix(inferred, tmp_path, monkeypatch, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        CALLS[message](*inferred)
    assert not [*tmp_path.iterdir()]


def test_too_many_arguments_are_not_reported_as_an_unknown_option(inferred):
    # `progress` is one of the forwarded options.
    with pytest.raises(TypeError, match="positional arguments"):
        beamwood_api.compare(inferred[0], "ease", "popularity", progress=False)


def test_an_unwritable_page_is_refused_before_measuring(there, say, monkeypatch):
    (there / "locked").mkdir()
    touch = Path.touch

    def refuse(self, **options):
        if self.parent.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        touch(self, **options)

    monkeypatch.setattr(Path, "touch", refuse)
    for command in ("compare log.csv --methods popularity,ease", "describe log.csv", "fit log.csv", "evaluate out"):
        told = say(*command.split(), "--html", "locked/page.html", code=2)
        assert "--html locked/page.html cannot be written ([Errno 13] Permission denied: " in told
        assert "split" not in told
