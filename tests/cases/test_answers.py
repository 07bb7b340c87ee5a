"""Empty answers give the reason in terms of the command's options, and advice works when followed."""

import json
import re

import polars as pl
import pytest

import beamwood
from beamwood.cli.registry import commands_by_name
from beamwood.data import Dataset, by_time, disjoint_users, leave_one_out, read_log
from beamwood.data.splits import SPLITS
from beamwood.errors import InputError, UnknownIdError


@pytest.fixture
def folder(write, planted, say, tmp_path):
    """A folder fitted on the planted log, in which user 777 has all items."""
    rows = planted + [(777, item, 5, 1_900_000_000 + item) for item in range(30)]
    items = write([(item, "xyz"[item % 3]) for item in range(30)], "items.csv", "item_id,category")
    say("fit", write(rows), "--items", items)
    return tmp_path / "out"


# Labels that were seen


def test_leave_one_out_reports_seen_labels(write, planted, say):
    twice = [row for row in planted for _ in range(2)]
    said = say("fit", write(twice), "--split", "leave-one-out")
    assert "40 of 40 test labels are items that their user had taken before; with seen items removed no" in said
    advised = re.search(r"find them: (--[a-z-]+)", said)[1]
    assert "test labels" not in say("fit", write(twice), "--split", "leave-one-out", advised)


def test_few_test_users_are_reported(write, planted, say):
    said = "4 users choose settings and 4 test, which is few: a fit with --split leave-one-out has 40 of each"
    assert said in say("fit", write(planted))
    assert "is few" not in say("fit", write(planted), "--split", "leave-one-out")


def test_other_repeats_get_no_advice_to_drop_them(write, planted, say):
    later = planted + [(user, item, rating, time + 10**8) for user, item, rating, time in planted]
    said = say("fit", write(later), "--split", "leave-one-out")
    assert "find them: read the view with seen items kept" in said
    assert "test labels" not in say("fit", write(planted), "--split", "leave-one-out")


def test_labels_without_a_training_row_are_reported(write, say):
    times = [(user, day) for user in range(40) for day in range(30)]
    rows = [(user, 100 * (day // 24) + (user + day) % 7, 5, 10**9 + 86400 * day) for user, day in times]
    said = say("fit", write(rows), "--split", "time")
    assert "120 of 120 test labels are items without a training row, and hardly any method finds those" in said
    assert "training row" not in say("fit", write(rows))


def test_seen_labels_are_counted():
    frame = pl.DataFrame({"user": [1, 1, 1, 2, 2, 2], "item": [5, 6, 5, 5, 6, 7], "time": range(6)})
    split = leave_one_out(Dataset.from_log(read_log(frame)))
    assert (split.test.labels_seen, split.valid.labels_seen) == (1, 0)


# Advice


def data(lengths, times=None):
    rows = [(user, item) for user, length in enumerate(lengths) for item in range(length)]
    frame = pl.DataFrame(rows, ["user", "item"], orient="row")
    return Dataset.from_log(read_log(frame if times is None else frame.with_columns(time=pl.Series(times(len(rows))))))


@pytest.mark.parametrize(
    ("dataset", "split"),
    [
        (data([2] * 30), leave_one_out),
        (data([4] * 5), disjoint_users),
        (data([4] * 30, lambda rows: [place // 4 for place in range(rows)]), by_time),
        (data([4] * 30, lambda rows: [place % 4 for place in range(rows)]), by_time),
    ],
)
def test_the_advised_split_works(dataset, split):
    with pytest.raises(InputError) as error:
        split(dataset)
    advised = str(error.value).split("choose --split ")[1].split(" or ")
    for name in advised:
        assert len(SPLITS[name](dataset).test)


def test_no_split_is_advised_if_none_works(write, say):
    path = write([(user, user % 7, 5, 1000 + user) for user in range(60)])
    for split in ("users", "leave-one-out", "time"):
        said = say("fit", path, "--split", split, code=2)
        assert "no split does" in said
        assert "choose --split" not in said


def test_a_time_split_of_sessions_advises_whole_ones(write, say):
    rows = [(user, (user + n) % 9, 5, 1_600_000_000 + 8 * user + n) for user in range(400) for n in range(10)]
    path = write(rows)
    said = "which is few: a fit with --split sessions has 40 of each"
    assert said in say("fit", path, "--split", "time")
    assert "is few" not in say("fit", path, "--split", "sessions")
    assert "users by their first event" in say("evaluate", path.parent / "out", "--k", 3)


# Empty answers


def test_an_empty_answer_gives_the_reason(folder, say):
    said = say("recommend", folder, "--user", "777", "-k", "5")
    assert "777: no items, as every one of the 30 items of the catalogue was seen; --include-seen has them" in said
    assert len(say("recommend", folder, "--user", "777", "-k", "5", "--include-seen").splitlines()) == 6
    some = say("recommend", folder, "--user", "777", "--category", "x")
    assert "every one of the 10 items passing the filter was seen" in some
    assert '"why": "every one of' in say("recommend", folder, "--user", "777", "--json")
    assert "why" not in say("recommend", folder, "--user", "1", "--json")


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_short_and_empty_lists_in_a_file_are_counted(folder, say, tmp_path, ending):
    out = tmp_path / f"recs.{ending}"
    said = say("recommend", folder, "--all-users", "-k", "30", "--out", out, "--category", "x", "--json")
    counts = {"rows": 41, "answered": 41, "short": 40, "empty": 1}
    assert json.loads(said.partition("}")[0] + "}") == {"out": str(out)} | counts
    said = say("recommend", folder, "--all-users", "-k", "5", "--out", out, "--overwrite")
    assert "lists for 41 users, 41 of them answered now" in said
    assert "0 of the lists are shorter than 5, and 1 are empty, as no more items may be shown there" in said
    (tmp_path / "users.txt").write_text("777")
    say("recommend", folder, "--users", tmp_path / "users.txt", "--out", out, "--overwrite", "-k", "5")
    assert "are empty" not in say("recommend", folder, "--all-users", "--out", out, "--overwrite", "--include-seen")


def test_reasons_are_those_of_each_row(folder):
    retriever = beamwood.load(folder)
    found = retriever.recommend(users=[1, 777], k=3)
    assert list(found.empty) == [1]
    assert len(found.item_ids[0]) == 3
    nothing = retriever.recommend([[1], [2]], k=3, allowed=[])
    assert nothing.empty == {0: "no item passes the filter", 1: "no item passes the filter"}
    left = retriever.recommend([list(range(29))], k=3, exclude=[29])
    assert "was seen or excluded" in left.empty[0]
    banned = retriever.recommend([[0]], k=3, exclude=list(range(30)))
    assert banned.empty == {0: "every one of the 30 items of the catalogue is excluded"}
    assert retriever.recommend([[0]], k=3).empty == {}


def test_a_column_of_empty_categories_has_no_categories(write, planted, say, tmp_path):
    items = write([(item, "") for item in range(30)], "items.csv", "item_id,category")
    say("fit", write(planted), "--items", items)
    said = say("recommend", tmp_path / "out", "--user", "1", "--category", "x", code=2)
    assert "category 'x' is unknown; no item has one, as each cell of the column is empty" in said


# Unknown ids


@pytest.mark.parametrize("user", ["newguy", "99999"])
def test_an_unknown_user_is_not_reported_as_a_wrong_type(folder, say, user):
    said = say("recommend", folder, "--user", user, code=2)
    assert f"{user}" in said
    assert "unknown" in said
    assert "pass --on-unknown ignore" in said
    assert "say what a new user took with --history" in said
    assert "ignored" not in said
    lines = say("recommend", folder, "--user", user, "--on-unknown", "ignore", "-k", "3").splitlines()
    assert len(lines) == 5
    assert f"unknown and ignored: 1 of 1 user id, such as '{user}'" in lines


def test_ignored_allowed_items_are_told(folder, say, tmp_path):
    (tmp_path / "stock.txt").write_text("1\n4242\nabc\n")
    asked = ("recommend", folder, "--history", "2", "--allowed-items", tmp_path / "stock.txt")
    assert "unknown and ignored: 2 of 3 item ids, such as '4242'" in say(*asked, "--on-unknown", "ignore")


def test_unknown_ids_have_an_error_of_their_own(folder):
    retriever = beamwood.load(folder)
    with pytest.raises(UnknownIdError, match=r"users: 1 of 1 ids are unknown.*give the histories of new users"):
        retriever.recommend(users=[99999])
    with pytest.raises(UnknownIdError, match="1 of 2 ids are unknown, such as 99"):
        retriever.recommend([[1, 99]])
    with pytest.raises(InputError, match="is not of type") as error:
        retriever.recommend(users=["newguy"])
    assert not isinstance(error.value, UnknownIdError)


# Words


@pytest.mark.parametrize(
    "arguments",
    [
        ("recommend", "--user", "99999"),
        ("recommend", "--history", "abc"),
        ("recommend", "--user", "1", "--allowed-items", "users.txt"),
        ("similar", "--item", "9999"),
        ("similar", "--item", "abc"),
        ("score", "--items", "users.txt", "--user", "1"),
        ("score", "--items", "items.txt", "--user", "newguy"),
        ("score", "--items", "items.txt", "--history", "999"),
        ("evaluate", "--log", "other.csv"),
    ],
)
def test_errors_name_only_options_of_their_command(folder, say, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users.txt").write_text("1\n4242\n")
    (tmp_path / "items.txt").write_text("1\n2\n")
    (tmp_path / "other.csv").write_text("who,what\n1,2\n")
    command, *rest = arguments
    said = say(command, folder, *rest, code=2).strip().splitlines()[-1]
    assert "on_unknown=" not in said
    known = {word for one in commands_by_name()[command].options for word in one.typed.replace(",", " ").split()}
    said = said.partition(" (--user-column, --item-column: of `beamwood fit`)")[0]
    others = {"--user-column", "--item-column"} if command == "evaluate" else set()
    for option in re.findall(r"(?<!\w)--[a-z-]+", said):
        assert option in known | others


# Outputs


def test_an_output_makes_its_folder(folder, say, tmp_path):
    say("recommend", folder, "--user", "1", "--out", tmp_path / "new" / "deep" / "recs.csv")
    assert (tmp_path / "new" / "deep" / "recs.csv").exists()
    (tmp_path / "file").write_text("")
    said = say("recommend", folder, "--user", "1", "--out", tmp_path / "file" / "recs.csv", code=2)
    assert "recs.csv cannot be written ([Errno" in said


# Weights


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("3 stars", "weights that are not numbers, the first '3 stars' in row 1; mend them"),
        ('"3,500"', "weights with commas, for decimals or for thousands, the first '3,500' in row 1; write them with"),
        ("inf", "weights that are missing or not finite"),
        ("", "weights that are missing or not finite"),
    ],
)
def test_invalid_weights_are_refused(write, planted, say, word, message):
    path = write([(user, item, word, time) for user, item, _, time in planted])
    assert message in say("fit", path, "--min-weight", "4", code=2)
