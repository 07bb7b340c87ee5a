"""`describe` predicts `fit`: the same refusals, the same counts, and commands that run."""

import json
import shlex
import time

import numpy as np
import polars as pl
import pytest

from beamwood.cli.commands.describe import advised
from beamwood.data import Dataset, describe_log, read_log
from beamwood.data.description.words import description_lines, lines_of_fit
from beamwood.data.splits import SPLITS
from beamwood.errors import InputError
from chromium import check_page, needs_chromium, rows_of
from cli_cases import beamwood

START = 1_650_000_000


def planted(users=40, per=9):
    """A log of user, item, rating and timestamp; the last user has one row, and every user has a tie."""
    rows = [
        (user, (user * 7 + place * place) % 30, place % 5 + 1, START + user * 900 + max(place, 1) * 3600)
        for user in range(users)
        for place in range(per if user < users - 1 else 1)
    ]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *arguments, code=0):
    """The JSON document of `describe`, and its stderr."""
    capsys.readouterr()
    assert beamwood("describe", *arguments, "--json") == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return json.loads(captured.out), captured.err


def run(command):
    """Run an advised command with a fast method."""
    program, *words = shlex.split(command)
    assert program == "beamwood"
    return beamwood(*words, "--method", "popularity")


def test_the_numbers_equal_those_of_a_fit(folder, capsys):
    frame = planted()
    frame.write_csv("log.csv")
    document, _ = said(capsys, "log.csv")
    log = read_log("log.csv")
    data = Dataset.from_log(log)
    assert document["rows"] == document["taken"] == len(frame) == 39 * 9 + 1
    assert document["users"]["number"] == len(data.users)
    assert document["items"]["number"] == len(data.items)
    assert document["ties"] == data.report["ties"] == 2 * 39
    assert document["notes"] == [*log.report.notes, *data.report["notes"]]
    assert document["lengths"]["quantiles"] == {
        "0": 1, "0.1": 9, "0.25": 9, "0.5": 9, "0.75": 9, "0.9": 9, "0.99": 9, "1": 9,
    }  # fmt: skip
    assert document["lengths"]["fewer_than_3"] == 1
    assert sum(group["users"] for group in document["lengths"]["groups"]) == 40
    counts = sorted(frame["item_id"].value_counts()["count"].to_list(), reverse=True)
    assert document["popularity"]["top"]["0.1"] == pytest.approx(sum(counts[: round(len(counts) / 10)]) / len(frame))
    assert document["weights"]["values"] == [
        {"value": float(value), "rows": count} for value, count in sorted(frame["rating"].value_counts().iter_rows())
    ]
    for name, left in document["splits"].items():
        split = SPLITS[name](data)
        assert left["train_rows"] == len(split.train.histories.items)
        assert [left["valid_users"], left["test_users"]] == [len(split.valid), len(split.test)]
        seen = [set(split.test.seen[row].tolist()) for row in range(len(split.test))]
        again = sum(item in seen[row] for row in range(len(split.test)) for item in split.test.labels[row].tolist())
        assert left["labels_seen_before"] == again
        new = np.isin(split.test.labels.items, split.train.histories.items, invert=True)
        assert left["labels_without_training_rows"] == new.sum()
    (command,) = document["commands"]
    assert command == "beamwood fit log.csv --out runs/log"
    assert run(command) == 0
    # An existing folder is not overwritten.
    assert said(capsys, "log.csv")[0]["commands"] == ["beamwood fit log.csv --out runs/log-2"]
    # Folder names do not contain wildcards.
    assert said(capsys, "lo*.csv")[0]["commands"] == ["beamwood fit 'lo*.csv' --out runs/log-2"]


def test_repeats_and_dropped_rows(folder, capsys):
    frame = planted()
    pl.concat([frame, frame.head(5), frame.tail(1).with_columns(timestamp=pl.lit(START, pl.Int64))]).write_parquet(
        "log.parquet"
    )
    document, _ = said(capsys, "log.parquet")
    assert document["duplicates"] == 5 == read_log("log.parquet").report.duplicates
    pairs = pl.read_parquet("log.parquet").select("user_id", "item_id")
    assert document["taken_again"] == len(pairs) - pairs.n_unique()
    document, _ = said(capsys, "log.parquet", "--drop-duplicates", "--min-weight", "3")
    report = read_log("log.parquet", drop_duplicates=True, min_weight=3).report
    assert document["left_out"] == report.left_out > 100
    assert document["duplicates"] == 0
    assert document["commands"] == ["beamwood fit log.parquet --min-weight 3 --drop-duplicates --out runs/log"]
    assert run(document["commands"][0]) == 0


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_weights_that_are_not_finite_are_no_numbers(folder, capsys, kind):
    odd = {1: float("nan"), 2: float("inf"), 3: float("-inf")}
    frame = planted().with_columns(pl.col("rating").replace_strict(odd, default=pl.col("rating").cast(pl.Float64)))
    getattr(frame, f"write_{kind}")(f"log.{kind}")
    weights = said(capsys, f"log.{kind}")[0]["weights"]
    counts = dict(planted()["rating"].value_counts().iter_rows())
    assert weights["values"] == [{"value": float(value), "rows": counts[value]} for value in (4, 5)]
    assert (weights["numbers"], weights["no_numbers"]) == (counts[4] + counts[5], counts[1] + counts[2] + counts[3])


def test_the_mean_of_huge_weights_is_a_number(folder, capsys):
    planted().with_columns(rating=pl.lit(1e308)).write_parquet("log.parquet")
    assert said(capsys, "log.parquet")[0]["weights"]["mean"] == pytest.approx(1e308)


@pytest.mark.parametrize("least", ["1234567.25", "1e-05", "12345678"])
def test_a_bound_of_weights_stays_exact_in_the_command(folder, capsys, least):
    planted().with_columns(rating=pl.col("rating") * float(least)).write_parquet("log.parquet")
    (command,) = said(capsys, "log.parquet", "--min-weight", least)[0]["commands"]
    words = shlex.split(command)
    assert float(words[words.index("--min-weight") + 1]) == float(least)


REFUSED = {
    "missing": (pl.when(pl.int_range(pl.len()) % 50 != 7).then("timestamp"), ["--missing drop", "--time-column none"]),
    "day first": (pl.from_epoch("timestamp").dt.strftime("%d.%m.%Y %H:%M"), ["--time-format '%d.%m.%Y %H:%M'"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_those_of_fit_and_the_advice_runs(name, folder, capsys):
    column, options = REFUSED[name]
    planted().with_columns(timestamp=column).write_csv("log.csv")
    with pytest.raises(InputError) as refusal:
        read_log("log.csv")
    document, errors = said(capsys, "log.csv", code=2)
    assert document["error"] == str(refusal.value)
    assert document["exit"] == 2
    assert errors.strip().splitlines()[-1] == f"beamwood: {refusal.value}"
    assert document["commands"] == [f"beamwood fit log.csv {option} --out runs/log" for option in options]
    for command in document["commands"]:
        assert run(f"{command} --overwrite") == 0
    assert beamwood("describe", "log.csv") == 2
    shown = capsys.readouterr().out
    assert "as it is, this log is refused" in shown
    assert all(command in shown for command in document["commands"])


def test_the_first_way_reads_the_times(folder, capsys):
    column = pl.from_epoch("timestamp").dt.strftime("%d.%m.%Y %H:%M")
    planted().select(Kunde="user_id", Artikel="item_id", Zeit=column).write_csv("log.csv")
    document, _ = said(capsys, "log.csv", code=2)
    assert ["--time-format" in command for command in document["commands"]] == [True, False]
    assert document["times"] is not None


def test_several_columns_and_a_table_that_lacks_items(folder, capsys):
    planted().with_columns(user=pl.col("user_id") % 20).write_csv("log.csv")
    pl.DataFrame({"item_id": range(25), "category": ["a", None, "b", "a", "a"] * 5}).write_csv("items.csv")
    document, _ = said(capsys, "log.csv", "--items", "items.csv", code=2)
    # In two steps: first the column, then the unlisted items.
    tail = "--unlisted-items keep --out runs/log"
    assert document["commands"] == [
        f"beamwood fit log.csv --items items.csv --user-column {name} {tail}" for name in ("user_id", "user")
    ]
    for command in document["commands"]:
        assert run(f"{command} --overwrite") == 0
    table = document["item_table"]
    assert table["items_not_in_table"] == document["items"]["number"] - table_items_taken()
    assert table["columns"] == [{"name": "category", "type": "String", "filled": pytest.approx(20 / 30)}]
    assert table["categories"]["most"][0] == {"name": "a", "count": 15}


def table_items_taken():
    return planted().filter(pl.col("item_id") < 25)["item_id"].n_unique()


def test_a_log_that_cannot_be_fitted_still_gets_a_summary(folder, capsys):
    pl.DataFrame({"who": [1, 2], "what": [3, 4]}).write_csv("log.csv")
    document, _ = said(capsys, "log.csv", code=2)
    assert [column["name"] for column in document["columns"]] == ["who", "what"]
    assert document["commands"] == []
    assert "has no user column" in document["error"]
    document, errors = said(capsys, "absent.csv", code=2)
    assert document == {"commands": [], "error": "absent.csv does not exist; check the path", "exit": 2}
    assert errors == "beamwood: absent.csv does not exist; check the path\n"
    assert beamwood("describe", "absent.csv", "--quiet") == 2
    assert capsys.readouterr().err == errors


def test_a_log_without_a_possible_split_is_reported(folder, capsys):
    pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"]}).write_csv("log.csv")
    document, _ = said(capsys, "log.csv")
    assert document["commands"] == []
    assert all("error" in split for split in document["splits"].values())
    assert beamwood("describe", "log.csv") == 0
    assert "no split leaves users" in capsys.readouterr().out


def test_a_large_log_is_described_by_a_sample_of_users():
    """Counts of rows stay exact; other figures use whole histories of the sample."""
    rows = [(user, (user * 3 + place) % 50, START + place) for user in range(3000) for place in range(4)]
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    items = pl.DataFrame({"item_id": range(60), "price": [1.5] * 60})
    whole, part = (describe_log(frame, items, most_rows=most) for most in (10**6, 4000))
    assert part["measured_on"]["one_user_in"] == 3
    assert part["measured_on"]["rows"] == 4 * part["measured_on"]["users"]
    assert 700 < part["measured_on"]["users"] < 1300
    different = {"measured_on", "splits", "notes", "source"}
    assert {key: value for key, value in part.items() if key not in different} == {
        key: value for key, value in whole.items() if key not in different
    }
    assert part["item_table"]["items_without_rows"] == 10
    assert part["splits"]["leave-one-out"]["test_users"] == part["measured_on"]["users"]
    new = [each["splits"]["users"]["labels_without_training_rows"] for each in (whole, part)]
    assert new == [0, None]
    assert "0 are items without a training row" in "\n".join(description_lines(whole))
    assert "training row" not in "\n".join(description_lines(part))


@pytest.mark.parametrize(
    ("times", "unit", "zone", "first"),
    [
        ([START, START + 90_000], "seconds", "none written, taken as UTC", "2022-04-15 05:20:00"),
        ([START * 1000, START * 1000 + 5], "milliseconds", "none written, taken as UTC", "2022-04-15 05:20:00"),
        ([START + 0.25, START + 0.5], "seconds", "none written, taken as UTC", "2022-04-15 05:20:00.250000"),
        ([3, 4], "numbers that only order", "none written, taken as UTC", "3"),
        ([44_074.25, 44_075.5], "numbers that only order", "none written, taken as UTC", "44074.25"),
        (["Fri Apr 15 10:50:00 +0530 2022", "Fri Apr 15 05:30:00 UTC 2022"], "dates", "written in each", None),
        (["2022-04-15 06:20:00+0100 (CET)", "2022-04-15 07:20:00+01:00 (BST)"], "dates", "written in each", None),
        (["15 MAY 2022", "16 MAY 2022"], "dates", "none written, taken as UTC", "2022-05-15 00:00:00"),
        (["2022-04-15T05:20:00Z", "2022-04-15T07:00"], "dates", "written in 1 of 2, the others taken as UTC", None),
        (["1922-04-15 05:20", "2022-04-15 07:00"], "dates", "none written, taken as UTC", "1922-04-15 05:20:00"),
    ],
)
def test_times(times, unit, zone, first):
    told = describe_log(pl.DataFrame({"user": [1, 2], "item": [1, 2], "time": times}))["times"]
    assert [told["unit"], told["zone"], told["first"]] == [unit, zone, first or "2022-04-15 05:20:00"]
    assert ("days" in told) == (unit != "numbers that only order")


def test_invalid_weights_are_counted():
    halves = [f"{half / 2:g}" for half in range(1, 11)]
    ratings = [*halves, "4½", "", None, "good"]
    log = pl.DataFrame({"user": range(14), "item": range(14), "rating": ratings})
    document = describe_log(log)
    told = document["weights"]
    assert (told["numbers"], told["no_numbers"]) == (10, 2)
    assert [each["value"] for each in told["values"]] == [half / 2 for half in range(1, 11)]
    assert "; 2 cells hold no number;" in next(
        line for line in description_lines(document) if line.startswith("weights")
    )


@pytest.mark.parametrize(("days", "ahead"), [(-9, False), (0, False), (9, True), (90_000, True)])
def test_a_last_time_in_the_future_is_pointed_out(days, ahead):
    times = [START, START + 1, START + 2, int(time.time()) + days * 86_400]
    log = pl.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 2, 1], "time": times})
    lines = [*description_lines(describe_log(log)), *lines_of_fit(Dataset.from_log(read_log(log)))]
    assert [", which is in the future: check" in line for line in lines if line.startswith("times: ")] == [ahead] * 2


def test_positions_are_not_in_the_future():
    log = pl.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 2, 1], "time": [1, 2, 3, 9_000]})
    assert not any("future" in line for line in description_lines(describe_log(log)))


def test_gaps_in_days():
    days = [0, 1, 5, 6, 6]
    moments = [START // 86_400 * 86_400 + day * 86_400 for day in days]
    told = describe_log(pl.DataFrame({"user": [1, 1, 2, 2, 2], "item": [1, 2, 3, 4, 5], "time": moments}))["times"]
    assert [told["days"], told["days_without_rows"], told["longest_gap"]["days"]] == [7, 3, 4]
    assert sum(each["rows"] for each in told["rows_by_time"]) == 5
    log = pl.DataFrame({"user": [1, 2, 1, 2], "item": [1, 2, 3, 4], "time": [*moments[:2], *moments[:2]]})
    told = describe_log(log)["times"]
    assert [told["days"], told["days_without_rows"], told["longest_gap"]] == [2, 0, None]


def test_similar_ids_and_null_words(folder, capsys):
    frame = planted().with_columns(
        user_id=pl.format("u{}", "user_id").replace({"u3": "U4", "u5": " u6", "u7": "nan"}), item_id=pl.col("item_id")
    )
    frame.write_csv("log.csv")
    document, _ = said(capsys, "log.csv")
    assert document["users"]["differ_only_by_looks"]
    assert not document["items"]["differ_only_by_looks"]
    assert document["missing"]["user"] == {"empty": 0, "words": 9}
    notes = " ".join(document["notes"])
    assert all(words in notes for words in ("only by upper and lower case", "only by blanks", "null word"))


def test_advice_is_found_in_messages():
    message = "say --time-format '%d.%m' or --missing drop; see --set a=b, or choose with --time-column"
    assert advised(message, {"time_format", "missing"}) == [("--time-format", "%d.%m"), ("--missing", "drop")]


def test_a_fit_prints_three_lines_of_it(folder, capsys):
    planted().write_csv("log.csv")
    assert run("beamwood fit log.csv --out runs/log") == 0
    said_lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("histories: 40 users, the median has 9 rows") for line in said_lines)
    assert any(line.startswith("items: ") and "taken, " in line for line in said_lines)
    assert "times: from 2022-04-15 06:20:00 UTC to 2022-04-15 22:50:00 UTC" in said_lines
    assert beamwood("describe", "log.csv") == 0
    shown = capsys.readouterr().out.splitlines()
    assert any(line.endswith("; from 2022-04-15 06:20:00 to 2022-04-15 22:50:00 UTC") for line in shown)
    assert set(shown) >= {line for line in said_lines if line.startswith(("histories: ", "items: "))}


@needs_chromium
@pytest.mark.slow
def test_its_html_page(folder, capsys, tmp_path):
    attack = "<script>document.title = 1</script>"
    frame = planted().with_columns(user_id=pl.format("{}" + attack, "user_id"))
    frame.with_columns(timestamp=REFUSED["missing"][0]).write_csv("log.csv")
    pl.DataFrame({"item_id": range(30), attack: [1.5] * 30, "category": [attack] * 30}).write_csv("items.csv")
    page = tmp_path / "page.html"
    document, _ = said(capsys, "log.csv", "--items", "items.csv", "--html", page, code=2)
    charts = check_page(page, document, tmp_path)
    groups = document["lengths"]["groups"]
    drawn = [row["y"] for row in rows_of(charts["lengths"])]
    assert drawn == pytest.approx([group["users"] / document["users"]["number"] for group in groups])
    assert [row["y"] for row in rows_of(charts["popularity"])] == pytest.approx(
        [100 * point["rows"] for point in document["popularity"]["curve"]]
    )
    assert len(rows_of(charts["times"])) == len(document["times"]["rows_by_time"])
