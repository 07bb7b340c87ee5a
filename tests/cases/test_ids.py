"""Suspicious ids are refused or reported, each with advice."""

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, read_log
from beamwood.errors import InputError


def items_of(values, dtype=None):
    return read_log(pl.DataFrame({"user": [1] * len(values), "item": pl.Series(values, dtype=dtype)}))


@pytest.mark.parametrize(("dtype", "bits"), [(pl.Float32, 24), (pl.Float64, 53)])
def test_floats_are_ids_only_if_exact(dtype, bits):
    assert items_of([2.0**bits - 1, -3.0], dtype).frame["item"].to_list() == [2**bits - 1, -3]
    for wrong in (2.0**bits, -(2.0 ** (bits + 3))):
        with pytest.raises(InputError, match=rf"1 of 2 item ids from 2\^{bits} on as floats, .* in row 2; export them"):
            items_of([1.0, wrong], dtype)


def test_snowflakes_as_floats_end_the_command(frame, tmp_path, say):
    large = frame.with_columns(user_id=(pl.col("user_id").cast(pl.Float64) + 9e17))
    large.write_parquet(tmp_path / "log.parquet")
    assert "different ids may have become equal" in say("fit", tmp_path / "log.parquet", code=2)


@pytest.mark.parametrize("wrong", ["1.7E+18", "13e+5", "2.5e10", "-1.0E+3"])
def test_an_exponent_is_refused(wrong):
    with pytest.raises(InputError, match=r"1 of 3 item ids written with an exponent, .* row 2; their last digits"):
        items_of(["5", wrong, "7"])


def test_hexadecimal_words_are_text():
    assert items_of(["12e4", "7f", "1e10"]).frame["item"].to_list() == ["12e4", "7f", "1e10"]


def test_typed_text_that_is_read_as_numbers_is_told(write, planted):
    note = 'text of whole numbers, read as numbers: requests give item ids as 7, not as "7"'
    log = items_of(["5", "6", "7"])
    assert log.frame["item"].to_list() == [5, 6, 7]
    assert any(note in line for line in log.report.lines())
    assert not any("text of whole numbers" in line for line in items_of(["5", "6", "x"]).report.lines())
    assert not any("text of whole numbers" in line for line in read_log(write(planted)).report.lines())


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["7", str(2**63 - 1), str(-(2**63))])])
def test_text_of_all_numbers_that_fit_is_read_as_numbers(dtype):
    assert items_of(["7", str(2**63 - 1), str(-(2**63))], dtype).frame["item"].to_list() == [7, 2**63 - 1, -(2**63)]


def test_parts_with_and_without_ids_above_2_63_are_one_log(tmp_path):
    """As two exports of a store may be."""
    for name, item, dtype in (("a", 7, pl.Int64), ("b", 2**64 - 1, pl.UInt64)):
        frame = pl.DataFrame({"user": [1, 2], "item": pl.Series([item] * 2, dtype=dtype)})
        frame.write_parquet(tmp_path / f"{name}.parquet")
    assert read_log(tmp_path).frame["item"].to_list() == [7, 7, 2**64 - 1, 2**64 - 1]


@pytest.mark.parametrize("large", [str(2**63), str(-(2**63) - 1), "1" * 25])
def test_text_of_a_number_that_does_not_fit_stays_text(large):
    log = items_of([*map(str, range(150)), large])
    assert log.frame["item"].to_list() == [*map(str, range(150)), large]
    assert any("no whole number below 2^63, the first" in line for line in log.report.lines())


def test_a_few_words_among_numbers_are_told():
    said = "1 item id is no whole number below 2^63, the first 'guest' in row 151, so all are text, such as \"7\""
    numbers = [str(number) for number in range(150)]
    assert any(said in line for line in items_of([*numbers, "guest"]).report.lines())
    assert not any("no whole number" in line for line in items_of([*numbers, "a", "b", "c"]).report.lines())


def test_a_point_and_zeros_change_no_whole_number(write, planted, say, tmp_path):
    path = write([(f"{user}.0" if user % 2 else user, f"{item}.00", *rest) for user, item, *rest in planted])
    log = read_log(path)
    assert log.frame["user"].to_list() == [row[0] for row in planted]
    assert log.frame["item"].to_list() == [row[1] for row in planted]
    said = "'item_id': 320 item ids are written as 7.0 and read as the whole number 7"
    assert said in log.report.notes
    table = write([(f"{item}.0", "a") for item in range(30)], "items.csv", header="item_id,category")
    assert "30 items" in say("fit", path, "--items", table)
    as_written, plain = (say("recommend", tmp_path / "out", "--user", user).split() for user in ("7.0", "7"))
    assert as_written[1:] == plain[1:]
    assert "id '7.5' is unknown" in say("recommend", tmp_path / "out", "--user", "7.5", code=2)
    mixed = Dataset.from_log(read_log(pl.DataFrame({"user": [1, 2, 2], "item": ["3", "3.0", "x"]})))
    assert "1 of 3 items differ from another one only by a '.0' at the end" in mixed.report["notes"][0]


WORDS = ["NaN", "null", "None", "undefined", "N/A", " nat ", "<NA>", "\\N"]


@pytest.mark.parametrize("word", WORDS)
def test_null_words_are_counted_and_dropped_on_request(word, write, planted):
    path = write([(word if user == 5 else user, *rest) for user, *rest in planted])
    log = read_log(path)
    assert any(f"8 rows have a null word as their user ({word!r} 8)" in note for note in log.report.notes)
    assert log.frame["user"].n_unique() == 40
    kept = read_log(path, missing="drop")
    assert kept.frame["user"].to_list() == [row[0] for row in planted if row[0] != 5]
    assert kept.report.left_out == 8
    assert kept.report.notes == ("8 rows are left out: 8 without a user ('user_id')",)


@pytest.mark.parametrize("role", ["user_id", "item_id", "timestamp"])
def test_rows_with_missing_values_are_refused_or_dropped(role, frame):
    there = pl.int_range(pl.len()) % 50 != 7
    lacking = frame.with_columns(pl.when(there).then(pl.col(role)).alias(role))
    with pytest.raises(InputError, match=r"7 of 320 .*--missing drop"):
        read_log(lacking)
    assert len(read_log(lacking, missing="drop").frame) == 313
    with pytest.raises(InputError, match="missing='dorp' is unknown; did you mean 'drop'"):
        read_log(lacking, missing="dorp")


@pytest.mark.parametrize("word", ["", " ", *WORDS])
@pytest.mark.parametrize("written", ["%Y-%m-%d %H:%M:%S", "%s", "%d.%m.%Y %H:%M:%S"])
def test_missing_times_are_refused_dropped_or_disable_the_order(word, written, frame):
    """A missing time is a word or null, in few or in most cells."""
    format_ = written if written.startswith("%d") else None
    times = pl.from_epoch("timestamp").dt.strftime(written)
    for share in (7, 2):
        lacking = frame.with_columns(timestamp=pl.when(pl.int_range(pl.len()) % share != 1).then(times).fill_null(word))
        with pytest.raises(InputError, match=r"times that are missing, the first in row 2; .*--missing drop"):
            read_log(lacking, time_format=format_)
        kept = read_log(lacking, missing="drop", time_format=format_)
        assert len(kept.frame) == sum(place % share != 1 for place in range(len(frame)))
    log = read_log(frame.with_columns(timestamp=pl.lit(word)))
    assert "time: 'timestamp' is empty" in "\n".join(log.report.lines())


def test_row_numbers_in_errors_are_those_of_the_file(frame):
    wrong = frame.cast(pl.String).with_columns(
        item_id=pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise(pl.col("item_id")),
        timestamp=pl.when(pl.int_range(pl.len()) == 9).then(pl.lit("soon")).otherwise(pl.col("timestamp")),
    )
    with pytest.raises(InputError, match="the first 'soon' in row 10"):
        read_log(wrong, missing="drop")


def test_a_log_without_a_complete_row_is_refused():
    with pytest.raises(InputError, match=r"each of its 2 rows lacks something: 1 without a user .*, 1 without an item"):
        read_log(pl.DataFrame({"user": [None, 2], "item": ["a", "nan"]}), missing="drop")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda item, odd: f"SKU{item} " if odd else f"SKU{item}", "blanks"),
        (lambda item, odd: f"\u200bSKU {item}" if odd else f"SKU\u00a0{item}", "blanks"),
        (lambda item, odd: f"sku{item}" if odd else f"Sku{item}", "upper and lower case"),
        (lambda item, odd: f"u\u0308{item}" if odd else f"\u00fc{item}", "Unicode form"),
        (lambda item, odd: f"\uff21{item}" if odd else f"A{item}", "Unicode form"),
    ],
)
def test_similar_ids_are_reported(change, what, write, planted, say):
    path = write([(user, change(item, user % 2), *rest) for user, item, *rest in planted])
    assert f"30 of 60 items differ from another one only by {what}, such as" in say("fit", path)


def test_different_ids_are_not_reported(write, planted, say):
    path = write([(user, f"SKU {item}", *rest) for user, item, *rest in planted])
    assert "differ from another" not in say("fit", path)


def test_items_similar_to_those_of_the_table_are_reported(write, planted, say):
    path = write([(user, f"Sku{item}", *rest) for user, item, *rest in planted])
    table = write([(f"SKU{item} ", "a") for item in range(25)], "items.csv", header="item_id,category")
    assert "(25 of them are, but for blanks, case, Unicode form or zeros" in say("fit", path, "--items", table, code=2)


@pytest.mark.parametrize("header", ["Item ID,asin,category", "asin,item.id,category"])
def test_a_table_with_two_id_columns_uses_the_logs_name(header, write, planted, say):
    path = write(planted)
    places = [name in ("Item ID", "item.id") for name in header.split(",")]
    cells = [(item if places[0] else f"B{item}", item if places[1] else f"B{item}", "a") for item in range(30)]
    assert "40 users, 30 items" in say("fit", path, "--items", write(cells, "items.csv", header=header))


def test_categories_are_stripped_and_null_words_reported(write, planted, say):
    path = write(planted)
    names = [" a", "a ", "b| c", "b|", "", "None", "  ", "NaN"]
    table = write([(item, names[item % 8]) for item in range(30)], "items.csv", header="item_id,category")
    said = say("fit", path, "--items", table)
    assert "null words as categories ('None' of 4 items, 'NaN' of 3 items)" in said
    out = path.parent / "out"
    assert "known: 'NaN', 'None', 'a', 'b', 'c'" in say("recommend", out, "--user", 1, "--category", "zz", code=2)
    data = Dataset.from_log(read_log(path), table)
    assert data.item_table.category_labels.to_list()[:7] == ["a", "a", "b|c", "b", None, "None", None]
    assert np.flatnonzero(data.item_table.categories < 0).tolist() == [4, 6, 12, 14, 20, 22, 28]


@pytest.mark.parametrize("written", ["['a', 'b']", '["a", "b"]'])
def test_lists_of_categories_as_text_are_reported(written, write, planted, tmp_path):
    """As pandas writes them to a text file; in Parquet they are lists."""
    log = read_log(write(planted))
    rows = pl.DataFrame({"item_id": range(30), "category": [written, "[new]", "x", None, "y"] * 6})
    rows.write_csv(tmp_path / "items.csv")
    notes = Dataset.from_log(log, tmp_path / "items.csv").report["notes"]
    said = f"categories in brackets (12 items, such as {written!r}), each read as one; if they are lists, write them as"
    assert [note for note in notes if "brackets" in note] == [f"the item table has {said} shoes|summer"]
    lists = rows.with_columns(category=pl.lit(["a", "b"]))
    assert not [note for note in Dataset.from_log(log, lists).report["notes"] if "brackets" in note]


@pytest.mark.parametrize("name", ["Category", "CATEGORY ", "category"])
def test_categories_are_found_whatever_the_case_of_their_column(name, write, planted, say):
    path = write(planted)
    table = write([(item, f"c{item % 3}") for item in range(30)], "items.csv", header=f"item_id,{name}")
    assert "rename it" not in say("fit", path, "--items", table)
    data = Dataset.from_log(read_log(path), table)
    assert data.item_table.category_labels.to_list()[:4] == ["c0", "c1", "c2", "c0"]
    assert "known: 'c0', 'c1', 'c2'" in say("recommend", path.parent / "out", "--user", 1, "--category", "zz", code=2)


def test_a_column_that_seems_to_hold_categories_is_named(write, planted, say):
    table = write([(item, "a|b") for item in range(30)], "items.csv", header="item_id,Genres")
    said = say("fit", write(planted), "--items", table)
    assert "the item table has no column 'category', so no categories; if 'Genres' has them, rename it" in said


def test_repeated_rows_are_dropped_on_request(write, planted, say):
    path = write([row for row in planted for _ in range(3)])
    assert "640 rows repeat another one exactly; kept (--drop-duplicates leaves them out)" in say("fit", path)
    assert "640 rows repeat another one exactly; left out" in say("fit", path, "--drop-duplicates")
    assert read_log(path, drop_duplicates=True).frame.equals(read_log(write(planted, "once.csv")).frame)
    assert "ndcg" in say("evaluate", path.parent / "out")


def test_an_id_with_control_characters_is_listed_on_one_line(frame, say, tmp_path):
    frame = frame.with_columns(item_id="a\n\x1b[2J\u2028日本" + pl.col("item_id").cast(pl.String))
    frame.write_parquet(tmp_path / "log.parquet")
    say("fit", tmp_path / "log.parquet", "--method", "ease")
    for command in (("recommend", "--user", 3), ("similar", "--item", frame["item_id"][0])):
        listed = say(command[0], tmp_path / "out", *command[1:], "-k", 4).splitlines()
        assert [line.split()[0] for line in listed[-4:]] == ["1", "2", "3", "4"]
        assert all(r"a\n\x1b[2J\u2028日本" in line for line in listed[-4:])


@pytest.mark.parametrize(
    ("names", "such"),
    [
        ("Benutzer,Artikel,Zeit", "such as --user-column 'Benutzer' --item-column 'Artikel' "),
        ("usuario,articulo,fecha", "such as --user-column 'usuario' --item-column 'articulo' "),
    ],
)
def test_the_column_most_similar_to_a_known_name_is_suggested(planted, write, say, names, such):
    path = write([(user, item, time) for user, item, _, time in planted], header=names)
    assert such in say("fit", path, code=2)
