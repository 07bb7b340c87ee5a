"""Rows of a text file with more cells than columns: no cell may be read into the wrong column."""

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
def test_a_row_with_too_many_cells_is_named(tmp_path, at, title):
    rows = _rows(200)
    rows[at] = f"u1,{title},i1,{1000 + at}"
    with pytest.raises(InputError, match=rf"row {at + 1} has more than the 4 cells .*put quotes around"):
        beamwood.read_log(_log(tmp_path, rows))


def test_the_same_row_in_quotes_is_read(tmp_path):
    rows = _rows(200)
    rows[150] = 'u1,"Pride, and Prejudice",i1,1150'
    assert beamwood.read_log(_log(tmp_path, rows)).frame.height == 200


def test_the_number_of_such_rows_is_reported(tmp_path):
    rows = _rows(200)
    rows[7], rows[150] = "u1,a,b,i1,1", "u1,a,b,c,i1,1"
    with pytest.raises(InputError, match=r"row 8 has .*, as 2 rows have, '1' is one too many"):
        beamwood.read_log(_log(tmp_path, rows))


@pytest.mark.parametrize("end", [",", ",,,"])
def test_empty_cells_at_the_end_of_every_line_are_ignored(tmp_path, end):
    assert beamwood.read_log(_log(tmp_path, _rows(120, end=end))).frame.height == 120


@pytest.mark.parametrize("name", ["log.csv", "log.dat"])
def test_a_separator_at_the_end_of_every_line_is_ignored(tmp_path, name):
    rows = [row.replace(",", ";") for row in _rows(120, end=",")]
    log = beamwood.read_log(_log(tmp_path, rows, name=name, names=NAMES.replace(",", ";")))
    assert log.frame.height == 120
    assert log.frame["item"].to_list()[:2] == ["i0", "i1"]


def test_longer_rows_are_reported_for_an_unknown_file_ending_too(tmp_path):
    rows = [row.replace(",", "\t") for row in _rows(50)]
    rows[9] += "\tmore"
    with pytest.raises(InputError, match=r"row 10 has more than the 4 cells"):
        beamwood.read_log(_log(tmp_path, rows, name="log.dat", names=NAMES.replace(",", "\t")))


def test_rows_are_numbered_in_the_same_way_with_and_without_a_header(tmp_path):
    rows = _rows(20)
    rows[4] = "u1,a,b,i1,1"
    with pytest.raises(InputError, match="row 5 has more"):
        beamwood.read_log(_log(tmp_path, [NAMES, *rows], names="sep=,"))
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match="row 5 has more"):
        beamwood.read_log(bare, header=["user", "-", "item", "time"])
