"""Rows of a text file with more cells than its columns: none may be read at the wrong places."""

import pytest

import beamwood
from beamwood.errors import InputError

NAMES = "user,title,item,time"


def _log(folder, rows, *, name="log.csv", names=NAMES):
    path = folder / name
    path.write_text("\n".join([names, *rows]) + "\n")
    return path


def _rows(number, end=""):
    return [f"u{at % 7},Emma,i{at % 5},{1000 + at}{end}" for at in range(number)]


@pytest.mark.parametrize("at", [0, 3, 150])
@pytest.mark.parametrize("title", ["Pride, and Prejudice", "Sense, and, of course, Sensibility"])
def test_a_row_that_would_shift_is_named(tmp_path, at, title):
    rows = _rows(200)
    rows[at] = f"u1,{title},i1,{1000 + at}"
    with pytest.raises(InputError, match=rf"row {at + 1} has more than the 4 cells .*put quotes around"):
        beamwood.read_log(_log(tmp_path, rows))


def test_the_same_in_quotes_is_read(tmp_path):
    rows = _rows(200)
    rows[150] = 'u1,"Pride, and Prejudice",i1,1150'
    assert beamwood.read_log(_log(tmp_path, rows)).frame.height == 200


def test_how_many_rows_are_so_is_said(tmp_path):
    rows = _rows(200)
    rows[7], rows[150] = "u1,a,b,i1,1", "u1,a,b,c,i1,1"
    with pytest.raises(InputError, match=r"row 8 has .*, as 2 rows have, '1' is one too many"):
        beamwood.read_log(_log(tmp_path, rows))


@pytest.mark.parametrize("end", [",", ",,,"])
def test_empty_cells_that_end_every_line_are_none(tmp_path, end):
    assert beamwood.read_log(_log(tmp_path, _rows(120, end=end))).frame.height == 120


@pytest.mark.parametrize("name", ["log.csv", "log.dat"])
def test_a_separator_that_ends_every_line_is_none(tmp_path, name):
    rows = [row.replace(",", ";") for row in _rows(120, end=",")]
    log = beamwood.read_log(_log(tmp_path, rows, name=name, names=NAMES.replace(",", ";")))
    assert log.frame.height == 120
    assert log.frame["item"].to_list()[:2] == ["i0", "i1"]


def test_lines_that_most_others_are_unlike_are_told_of_an_unknown_ending_too(tmp_path):
    rows = [row.replace(",", "\t") for row in _rows(50)]
    rows[9] += "\tmore"
    with pytest.raises(InputError, match=r"row 10 has more than the 4 cells"):
        beamwood.read_log(_log(tmp_path, rows, name="log.dat", names=NAMES.replace(",", "\t")))


def test_rows_of_a_spreadsheet_and_without_names_are_counted_alike(tmp_path):
    rows = _rows(20)
    rows[4] = "u1,a,b,i1,1"
    with pytest.raises(InputError, match="row 5 has more"):
        beamwood.read_log(_log(tmp_path, [NAMES, *rows], names="sep=,"))
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match="row 5 has more"):
        beamwood.read_log(bare, header=["user", "-", "item", "time"])
