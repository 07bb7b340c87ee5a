"""Unusual logs: nested rows, decimal commas, lists in a line or a cell, names in another language."""

import json

import polars as pl
import pytest

from beamwood.data import ColumnNames, Dataset, read_log
from beamwood.data.header import header_hint
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError, UnknownIdError


def fingerprint(source, **options):
    return Dataset.from_log(read_log(source, **options)).fingerprint()


# Nested rows


def nested(row):
    user, item, rating, time = row
    return {"user": {"id": user, "of": {"kind": "x"}}, "item": {"id": item}, "rating": rating, "timestamp": time}


def test_fields_of_nested_rows_are_columns(planted, frame, tmp_path, say):
    rows = [nested(row) for row in planted]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    for source in (tmp_path / "log.jsonl", tmp_path / "log.parquet", rows, pl.DataFrame(rows).lazy()):
        assert fingerprint(source) == fingerprint(frame)
    log = read_log(tmp_path / "log.jsonl")
    assert log.report.columns == {"user": "user.id", "item": "item.id", "time": "timestamp", "weight": "rating"}
    said = say("fit", tmp_path / "log.jsonl", "--user-column", "user.id")
    assert "user=user.id, item=item.id" in said
    assert "40 users, 30 items" in say("evaluate", tmp_path / "out")
    refused = say("describe", tmp_path / "log.jsonl", "--user-column", "user.ids", code=2)
    assert "it has: user.id, user.of.kind, item.id, rating, timestamp; did you mean --user-column 'user.id'" in refused


def test_values_within_their_types_are_columns(planted, frame, tmp_path):
    rows = [
        {"_id": {"$oid": f"{at:024x}"}, "userId": {"$numberLong": str(user)}, "itemId": item}
        | {"time": {"$date": {"$numberLong": str(1000 * time)}}}
        for at, (user, item, _, time) in enumerate(planted)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    log = read_log(tmp_path / "log.jsonl")
    assert log.report.columns == {"user": "userId", "item": "itemId", "time": "time"}
    assert log.frame["user"].to_list() == frame["user_id"].to_list()
    assert log.frame["time"].to_list() == (1000 * frame["timestamp"]).to_list()


def test_times_with_an_offset_are_read_from_json(planted, frame, tmp_path):
    times = pl.from_epoch(frame["timestamp"]).dt.strftime("%Y-%m-%dT%H:%M:%S+00:00")
    frame.with_columns(times).write_ndjson(tmp_path / "log.jsonl")
    assert read_log(tmp_path / "log.jsonl").frame["time"].to_list() == (1_000_000 * frame["timestamp"]).to_list()


def test_a_nested_row_is_not_flattened_if_its_path_is_a_column():
    rows = pl.DataFrame({"user": [1, 2], "item": [3, 4], "a.b": [5, 6], "a": [{"b": 7}, {"b": 8}]})
    assert read_log(rows).frame.columns == ["user", "item"]
    with pytest.raises(InputError, match=r"column 'a' of type Struct.* holds no item ids"):
        read_log(rows.drop("item"), columns=ColumnNames(item="a"))


# Decimal commas


def commas(planted, cells):
    return [(u, i, cells[r], t) for u, i, r, t in planted]


def test_weights_with_decimal_commas_are_read_and_reported(write, planted, say):
    path = write(
        commas(planted, {2: "2", 4: "4,5", 5: "5,0"}), header="user_id;item_id;rating;timestamp", separator=";"
    )
    kept = sum(rating >= 4 for _, _, rating, _ in planted)
    log = read_log(path, min_weight=4.2)
    assert len(log.frame) == kept
    assert f"'rating', read with decimal commas, of at least 4.2: {kept:,} rows kept" in log.report.weight
    assert "weights: from 2 to 5" in say("describe", path)


@pytest.mark.parametrize("cells", [{2: "2,000", 4: "4,000", 5: "5,123"}, {2: "2.5", 4: "4,5", 5: "5"}])
def test_ambiguous_commas_are_refused(write, planted, say, cells):
    path = write(commas(planted, cells), header="user_id;item_id;rating;timestamp", separator=";")
    assert "weights with commas, for decimals or for thousands" in say("fit", path, "--min-weight", "3", code=2)


def test_kept_numbers_with_decimal_commas_are_read(write, planted, say, tmp_path):
    path = write(planted)
    items = write([(i, f"{i},5") for i in range(30)], "items.csv", "item_id;price", ";")
    said = say("fit", path, "--items", items, "--keep-columns", "price")
    assert "price:number" in said
    say("fit", path, "--items", items, "--keep-columns", "price:number")
    ids = say("recommend", tmp_path / "out", "--history", "29", "-k", "3", "--where", "price<4.6").split()
    assert {int(word) for word in ids[2::3]} <= {0, 1, 2, 3, 4}


def test_a_kept_column_is_checked_before_the_fit(write, planted, say):
    path, items = write(planted), write([(i, "cheap") for i in range(30)], "items.csv", "item_id,price")
    said = say("fit", path, "--items", items, "--keep-columns", "price:number", "--method", "ease", code=2)
    assert "30 cells are not of kind number, the first 'cheap' of item 0" in said
    assert "split:" not in said


# Lists


def test_lines_that_are_lists_are_refused(planted, tmp_path):
    users = {}
    for place, (user, item, _, _) in enumerate(planted):
        if place % (user + 2):
            users.setdefault(user, []).append(item)
    for mark, name in ((" ", "train.txt"), (",", "train.csv"), ("\t", "train.tsv")):
        text = "\n".join(mark.join(map(str, [user, *items])) for user, items in users.items())
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="as if each were a user and the items taken; write a line for each user"):
            read_log(tmp_path / name)


def test_a_few_short_lines_are_not_lists(write, planted):
    rows = [row[:3] if place in (5, 9) else row for place, row in enumerate(planted)]
    path = write(rows, header="user_id,item_id,timestamp,note")
    assert len(read_log(path).frame) == len(planted)


@pytest.mark.parametrize("cell", ["N7 N{}", "[{}, 9]", "{},12", "a_1|b_{}"])
def test_ids_that_look_like_lists_are_reported(planted, cell):
    frame = pl.DataFrame({"user": [row[0] for row in planted], "item": [cell.format(row[1]) for row in planted]})
    (note,) = read_log(frame).report.notes
    assert f"{len(planted):,} item ids seem to be lists, the first {cell.format(planted[0][1])!r} in row 1" in note


@pytest.mark.parametrize("cell", ["Toy Story {}", "B-{}-07", "{}a", "7.5.{}", "item {} b"])
def test_ids_that_are_not_lists_are_not_reported(planted, cell):
    frame = pl.DataFrame({"user": [row[0] for row in planted], "item": [cell.format(row[1]) for row in planted]})
    assert read_log(frame).report.notes == ()


def test_a_column_of_lists_is_refused_with_advice(planted):
    frame = pl.DataFrame({"user": [1, 2], "item": [[3, 4], [5]]})
    said = r"type List\(Int64\) holds no item ids; write a row for each item of a list, .* by \.explode\('item'\)$"
    with pytest.raises(InputError, match=said):
        read_log(frame)
    read_log(frame.explode("item"))
    several = frame.with_columns(pl.Series("time", [[6, 7], [8]]), pl.Series("tags", [[1], [2, 3]]))
    with pytest.raises(InputError, match=r"as Polars does by \.explode\('item', 'time'\)$"):
        read_log(several)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ('[{"user_id": 1, "item_id": 2}]', "log.jsonl", "it is one list of rows, not a row a line; call it log.json"),
        ("[[1, 2], [3, 4]]", "log.json", "its rows are lists, without names; write each as an object"),
        (
            '{"user_id": {"0": 1, "1": 3}, "item_id": {"0": 2, "1": 4}}',
            "log.json",
            r'write it by rows, as with: python3 -c .*log.json", orient="columns", .*lines=True\)',
        ),
        (
            '{"columns": ["user_id", "item_id"], "index": [0, 1], "data": [[1, 2], [3, 4]]}',
            "log.json",
            r'as with: python3 -c .*log.json", orient="split", .*lines=True\)',
        ),
        (
            json.dumps({str(user): [1, 2, 3] for user in range(30)}),
            "log.json",
            r'If each is a user with a list of items, .*unpivot\(variable_name="user_id", value_name="item_id"\)'
            r'\.explode\("item_id"\)',
        ),
    ],
)
def test_json_in_another_form_names_the_fix(tmp_path, content, name, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_log(tmp_path / name)


# Names


def test_all_missing_columns_are_named_at_once(write, planted, say):
    path = write(planted, header="Kunde;Artikel;Note;Zeitpunkt", separator=";")
    said = say("fit", path, code=2)
    assert "has no user column and no item column; it has: Kunde, Artikel, Note, Zeitpunkt. Name them with" in said
    said = say("fit", path, "--item-column", "Artikel", code=2)
    assert "has no user column; it has" in said
    assert "--item-column" not in said


def test_the_ids_of_an_item_table_are_found_by_the_log(write, planted, say):
    path = write(planted)
    items = write([(f"N{i}", i, "x") for i in range(28)], "items.csv", "label,nr,group")
    said = say("fit", path, "--items", items, code=2)
    assert "Name it with --items-column 'nr', which has 28 of the log's 30 items" in said
    # describe follows the advice of the message.
    assert "--items-column nr --unlisted-items keep" in say("describe", path, "--items", items, code=2)
    none = write([(f"N{i}", "x") for i in range(28)], "none.csv", "label,group")
    assert say("fit", path, "--items", none, code=2).strip().endswith("Name it with --items-column")


def test_a_log_with_one_item_is_reported(planted, write, say):
    path = write([(user, 5, item, time) for user, item, _, time in planted], header="user_id,product_id,sku2,timestamp")
    assert "'product_id': all rows have the same item, 5, so nothing else can be learned" in say("fit", path)
    assert "100 % of the rows" in say("describe", path)


@pytest.mark.parametrize(
    "cells", [["1", "U7", "11/13/2019 8:36:57 AM"], ["U7", "N5", "13.11.2019"], ["a", "2019-11-13"]]
)
def test_a_date_in_the_first_line_is_a_value(cells):
    assert "its first line seems to hold values" in header_hint(cells)


def test_a_line_with_very_many_values_gets_no_names():
    assert header_hint([str(place) for place in range(100)]) == ""


# Suggestions for ids


@pytest.mark.parametrize(
    ("ids", "typed", "meant"),
    [
        (["000001", "000020"], "1", "000001"),
        (["tt0012", "tt7"], "TT12", "tt0012"),
        (["\u00e9clair"], "e\u0301clair", "\u00e9clair"),
        (["U0", "U10"], "u10", "U10"),
    ],
)
def test_an_unknown_id_gets_a_suggestion(ids, typed, meant):
    vocabulary = Vocabulary.of(pl.Series(ids))
    with pytest.raises(UnknownIdError) as error:
        vocabulary.parse_all([ids[0], typed])
    assert f"id {typed!r} is unknown; did you mean {meant!r}?" in str(error.value)
    assert vocabulary.parse_all([ids[0], typed], on_unknown="ignore") == [ids[0], typed]
    assert vocabulary.parse_all(["other"]) == ["other"]
