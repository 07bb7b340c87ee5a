"""Rows, ids, times and column names are read exactly as written, or an error names the fix."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from beamwood.data import ColumnNames, Dataset, read_log
from beamwood.data.digest import column_digest
from beamwood.errors import InputError

NS = 1_706_700_000_123_456_000


def ids_of(values, dtype=None):
    return read_log(pl.DataFrame({"user": [1] * len(values), "item": pl.Series(values, dtype=dtype)})).frame["item"]


def times_of(values, dtype=None):
    same = [1] * len(values)
    return read_log(pl.DataFrame({"user": same, "item": same, "time": pl.Series(values, dtype=dtype)}))


def test_a_quote_in_an_inter_file_is_part_of_the_id(tmp_path):
    items = [f'"{row}' if row % 10 == 3 else f'{row}" x' if row % 10 == 7 else f"i{row}" for row in range(300)]
    lines = [f"u{row % 5}\t{item}\t{row}\n" for row, item in enumerate(items)]
    (tmp_path / "log.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n" + "".join(lines))
    assert read_log(tmp_path / "log.inter").frame["item"].to_list() == items


def test_cells_of_several_lines_are_reported(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('user,item,title,x\n1,2,"one, two",3\n1,3,"The ""X""",3\n')
    assert read_log(path).report.notes == ()
    path.write_text('user,item,title\n1,2,"Bad\n2,3,good\n3,4,"\n4,5,good\n')
    log = read_log(path)
    assert log.report.rows == 2
    assert log.report.lines()[-1].startswith("'title' has 1 cell of several lines; if not texts, an unmatched quote")


@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_an_id_that_swallowed_lines_is_refused(tmp_path, suffix, mark):
    rows = ["user,item,x", '1,"a,2', "2,b,3", '3,c",4', "4,d,5", ""]
    path = tmp_path / f"log{suffix}"
    path.write_text("\n".join(rows).replace(",", mark))
    with pytest.raises(
        InputError, match=r"'item' has 1 of 2 item ids with a line break, the first 'a.*; a quote with.* Parquet"
    ):
        read_log(path)
    path.write_text("\n".join(['user,item,"x\ny"', '1,"a b","2\n3"', '2,"c ""d""",4', ""]).replace(",", mark))
    assert read_log(path).frame["item"].to_list() == ["a b", 'c "d"']


def test_a_line_break_in_memory_is_part_of_the_id():
    assert ids_of(["a\nb", "c"]).to_list() == ["a\nb", "c"]


@pytest.mark.parametrize("step", [1, Decimal("0.001")])
def test_large_decimal_times_keep_their_order(step):
    values = [NS // 1000 + step * late for late in np.random.default_rng(0).permutation(600).tolist()]
    for given in (pl.Series(values, dtype=pl.Decimal(38, 4)), [f"{value:.3f}" for value in values]):
        times = times_of(given).frame["time"]
        assert times.n_unique() == 600
        assert times.arg_sort().to_list() == np.argsort(values).tolist()


@pytest.mark.parametrize(
    ("values", "dtype", "expected", "kind"),
    [
        ([Decimal(NS + 1), Decimal(3)], pl.Decimal(38, 0), [NS + 1, 3], "whole numbers"),
        ([Decimal("3.00"), Decimal("-1.00")], pl.Decimal(10, 2), [3, -1], "whole numbers"),
        ([Decimal("-3.25"), Decimal("1.5")], pl.Decimal(10, 2), [-3_250_000, 1_500_000], "numbers"),
        ([f"{NS + 1}.0", f" {NS}. ", "7"], None, [NS + 1, NS, 7], "whole numbers"),
        (["+3.5", ".25", "-0.0000001", "2."], None, [3_500_000, 250_000, 0, 2_000_000], "numbers"),
        ([f"{NS}.5", "1.25"], None, [NS + 1, 1], "numbers"),
        ([float(2**53), 1.0], None, [2**53, 1], "whole numbers"),
    ],
)
def test_times_are_exact(values, dtype, expected, kind):
    log = times_of(values, dtype)
    assert log.report.time == f"'time', {kind}"
    rounding = 1 if kind == "numbers" else 0
    assert all(abs(a - b) <= rounding for a, b in zip(log.frame["time"], expected, strict=True))


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([1.0, float(NS)], None, r"1 times above 2\^53 as floats.*in row 2; write them as whole numbers"),
        (["1", "1.7067e18"], None, r"1 times above 2\^53 as floats.*'1\.7067e18' in row 2; write them as whole"),
        ([1.0, 1e300], None, r"1 of 2 times that cannot be read, the first 1e\+300 in row 2"),
        ([Decimal(1), Decimal(10**25)], pl.Decimal(38, 0), r"1 of 2 times that cannot be read.* in row 2"),
        (["1.5", "inf", "2.5"], None, r"1 of 3 times that cannot be read, the first 'inf' in row 2"),
        (["1.5", "x", "2.5"], None, r"1 of 3 times that cannot be read, the first 'x' in row 2"),
    ],
)
def test_inexact_times_are_refused(values, dtype, message):
    with pytest.raises(InputError, match=message):
        times_of(values, dtype)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([Decimal(2**62), Decimal(3)], pl.Decimal(20, 0), [2**62, 3]),
        ([Decimal("4.00"), Decimal("5.00")], pl.Decimal(10, 2), [4, 5]),
        ([b"4", b"5"], pl.Binary, [4, 5]),
        ([b"007", "ä".encode()], pl.Binary, ["007", "ä"]),
        (["a", "b"], pl.Categorical, ["a", "b"]),
    ],
)
def test_ids_of_other_types(values, dtype, expected):
    assert ids_of(values, dtype).to_list() == expected


@pytest.mark.parametrize("width", [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32])
def test_the_width_of_integer_ids_is_not_kept(width, tmp_path):
    """So that a copy in text is the same log, and an item table may list larger ids."""
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [3, 4, 5]}, {"user": width, "item": width})
    frame.write_csv(tmp_path / "log.csv")
    log = read_log(frame)
    assert log.frame.schema == {"user": pl.Int64, "item": pl.Int64}
    assert Dataset.from_log(log).fingerprint() == Dataset.from_log(read_log(tmp_path / "log.csv")).fingerprint()
    assert Dataset.from_log(log, pl.DataFrame({"item": [3, 4, 5, 2**40]})).items.ids.to_list() == [3, 4, 5, 2**40]


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (
            [Decimal(1), Decimal(2**64)],
            pl.Decimal(20, 0),
            r"1 of 2 item ids beyond 64 bits,.* row 2; write them as text",
        ),
        ([Decimal("1.5")], pl.Decimal(10, 2), "item ids with fractions"),
        ([1.0, 1e300], None, r"1 of 2 item ids from 2\^53 on as floats, .* the first 1e\+300 in row 2"),
        (
            [b"4", b"\xff"],
            pl.Binary,
            "'item' holds item ids of bytes that are not UTF-8; write them, or UUIDs, as text",
        ),
        ([b"4", b""], pl.Binary, r"1 of 2 rows with no item id, the first b'' in row 2"),
        (["a", ""], pl.Categorical, r"1 of 2 rows with no item id, the first '' in row 2"),
        (["a", " "], pl.Enum(["a", " "]), r"1 of 2 rows with no item id, the first ' ' in row 2"),
        ([1000, 2001], pl.Datetime("ns"), r"1 of 2 item ids finer than a microsecond,.* row 2; write them as text"),
        ([1000, 2001], pl.Time, r"1 of 2 item ids finer than a microsecond,.* row 2; write them as text"),
    ],
)
def test_ids_that_cannot_be_kept_are_refused(values, dtype, message):
    given = pl.Series(values).cast(dtype) if dtype in (pl.Datetime, pl.Time) else values
    with pytest.raises(InputError, match=message):
        ids_of(given, None if given is not values else dtype)


def test_times_of_32_bits_are_reported_as_rounded():
    assert "whole numbers of 32 bits, rounded above 2^24" in times_of([16_777_217.0], pl.Float32).report.time
    assert "rounded" not in times_of([16_777_217.0], pl.Float64).report.time


def test_times_of_whole_microseconds_are_accepted_as_ids():
    assert ids_of(pl.Series([1000, 2000]).cast(pl.Datetime("ns")))[1] == dt.datetime(1970, 1, 1, 0, 0, 0, 2)


@pytest.mark.parametrize("name", ["*", "^t$"])
def test_times_in_lists_under_any_name(name):
    """Polars takes some names for patterns, also where it makes a column of dates and times."""
    users, items, times = ["a", "b"], [1, 2], [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)]
    for source, header in (
        ([*zip(users, items, times, strict=True)], ["user", "item", name]),
        ({"user": users, "item": items, name: times}, None),
    ):
        log = read_log(source, header=header, columns=ColumnNames(time=name))
        assert log.frame["time"].to_list() == [1_577_836_800_000_000, 1_577_923_200_000_000]


NAMES = ["*", "^.*$", "^u.*$", "row", "__row", "len", "user", "item"]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name(name):
    others = {f"u{other}": [other] * 3 for other in range(3)}

    def read(column, values, **more):
        given = {"user_id": [5, 6, 7], "item_id": [1, 2, 3], **more, **others}
        columns = ColumnNames(
            **{"user": "user_id", "item": "item_id", column: (name,) if column == "context" else name}
        )
        return read_log(pl.DataFrame({**given, name: values}), columns=columns, min_weight=2 if "w" in column else None)

    for role in ("user", "item"):
        assert read(role, [9, 8, 9]).frame[role].to_list() == [9, 8, 9]
        with pytest.raises(InputError, match=r"1 of 3 rows with no .* id, the first None in row 2"):
            read(role, [9, None, 9])
    assert read("time", [3, 1, 2]).frame["time"].to_list() == [3, 1, 2]
    with pytest.raises(InputError, match=r"1 of 3 times that are missing, the first in row 2"):
        read("time", [3, None, 2])
    with pytest.raises(InputError, match=r"1 of 3 times that cannot be read, the first 'x' in row 2"):
        read("time", ["3", "x", "2"])
    assert read("boundary", ["train", "test", "test"]).frame["history"].to_list() == [True, False, False]
    assert read("weight", [1, 2, 3]).frame["user"].to_list() == [6, 7]
    assert Dataset.from_log(read("context", ["a", "b", "c"])).context[name].to_list() == ["a", "b", "c"]


@pytest.mark.parametrize("name", NAMES[:-2])
def test_item_tables_may_have_these_column_names(name):
    log = read_log(pl.DataFrame({"user": [1, 2], "item": [1, 2]}))
    items = pl.DataFrame({name: [2, 1], "category": ["a", "b"], "u": [3, 4]})
    data = Dataset.from_log(log, items, item_column=name)
    assert data.item_table.frame.rows() == [(1, "b", 4), (2, "a", 3)]
    users = pl.DataFrame({"user": [1, 2], name: [3, 4], "u": [5, 6]})
    assert Dataset.from_log(log, user_table=users).user_table.columns == ["user", name, "u"]


def test_wrong_arguments():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [3, 4]})
    with pytest.raises(InputError, match="min_weight='4' is not a finite number; give one, such as 4, or leave it out"):
        read_log(frame, min_weight="4")
    for columns in ({"user": "user"}, {}):
        with pytest.raises(InputError, match=r"columns=\{.*\} is not a ColumnNames; write ColumnNames\(user="):
            read_log(frame, columns=columns)
    assert len(read_log(frame, min_weight=np.float32(4)).frame) == 1
    with pytest.raises(InputError, match="unlisted='kep' is unknown; did you mean 'keep'"):
        Dataset.from_log(read_log(frame), unlisted="kep")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "1,10,5\n2,11,4\n",
            r"its first line seems to hold values \(1, 10, 5\): .*such as --columns user,item,rating for user '1'",
        ),
        ("1,1,5\n2,11,4\n", r"first line seems to hold values \(1, 1, 5\)"),
        ("user,item\n1,2\n".encode("utf-16"), "seems to be UTF-16: save it as UTF-8"),
        ("user,item\n1,2\n".encode("utf-16-le"), "seems to be UTF-16: save it as UTF-8"),
        (b"user\0,item\n1,2\n", "has NUL bytes in its first line, so it may be damaged; delete them, as with: tr -d"),
        (b"user,item\n1,2\0\n", "'item' has 1 of 1 item ids with NUL bytes, the first '2\\\\x00' in row 1; the file"),
        ("user,item\n1,é\n".encode("latin-1"), "save it as UTF-8"),
        ("who,what\n1,2\n", r"\(known by themselves: [a-z_,; ]*\)$"),
    ],
)
def test_a_text_file_in_another_form_names_the_fix(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        Dataset.from_log(read_log(path))


def test_a_damaged_parquet_file_does_not_suggest_utf8(tmp_path):
    pl.DataFrame({"user": ["ab", "cd"] * 50, "item": ["x", "y"] * 50}).write_parquet(
        tmp_path / "log.parquet", compression="uncompressed"
    )
    content = bytearray((tmp_path / "log.parquet").read_bytes())
    content[content.index(b"ab")] = 0xFF
    (tmp_path / "log.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"(?i)utf-8.*is the file whole"):
        Dataset.from_log(read_log(tmp_path / "log.parquet"))


def test_a_file_of_another_kind_names_the_option(tmp_path):
    (tmp_path / "u.log").write_text("1\t2\n")
    with pytest.raises(InputError, match=r"unknown ending; .*as --separator tab; else write it as Parquet"):
        read_log(tmp_path / "u.log")


@pytest.mark.parametrize("names", [("User ID", "Item.ID", "event-time"), (" USERID ", "itemId", "Ts")])
def test_column_names_are_recognised_in_any_spelling(names):
    report = read_log(pl.DataFrame({name: [1, 2] for name in names})).report
    assert report.columns == dict(zip(("user", "item", "time"), names, strict=True))


def test_no_source_is_refused():
    with pytest.raises(InputError, match="there is no source to read: it is None"):
        read_log(None)


def test_types_of_json_lines_come_from_all_lines(tmp_path):
    lines = [{"user": 2**60 + row, "item": row, "time": row} for row in range(300)]
    lines.append({"user": 1, "item": "B01", "time": 3.5})
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    log = read_log(path)
    assert log.frame["user"][:2].to_list() == [2**60, 2**60 + 1]
    assert log.frame["item"][-2:].to_list() == ["299", "B01"]
    assert log.frame["time"][-1] == 3_500_000
    path.write_text(path.read_text() + '{"user": 3, broken')
    with pytest.raises(InputError, match=r"log\.jsonl cannot be read: line 302 is no row of JSON"):
        read_log(path)


def test_numbers_that_a_float_does_not_tell_apart_have_digests_of_their_own():
    for dtype in (pl.Int64, pl.UInt64):
        far, near = (column_digest(pl.Series(values, dtype=dtype)) for values in ([2**60, 1], [2**60 + 1, 1]))
        assert far != near
    assert column_digest(pl.Series([7, 2**53])) == column_digest(pl.Series([7.0, 2.0**53]))
