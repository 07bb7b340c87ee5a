"""Parts of a log behind links and patterns: none is left out silently, and none counts twice."""

import os
import re

import polars as pl
import pytest

from beamwood.data import ColumnNames, read_log
from beamwood.errors import InputError

ROWS = pl.DataFrame({"user_id": range(6), "item_id": range(6)})
READ = "3 files are read as one, in the order of their names"
AGAIN = "left out beside them: {} (a second way to a folder)"


@pytest.fixture
def folder(tmp_path):
    """A log of two files, and a third below a link to a folder elsewhere."""
    for name in ("log/a.csv", "log/b.csv", "elsewhere/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        ROWS.write_csv(tmp_path / name)
    (tmp_path / "log/more").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "log"


def sources(folder):
    return folder, folder / "**/*.csv"


def test_linked_files_and_folders_are_read(folder):
    for source in sources(folder):
        log = read_log(source)
        assert len(log.frame) == 18
        assert log.report.notes == (READ,)


def test_a_second_name_of_a_file_is_told_and_not_read(folder):
    """A link beside its file, which comes first in the order of names, and two ways to a file elsewhere."""
    (folder / "0.csv").symlink_to("b.csv")
    (folder / "d.csv").symlink_to(folder.parent / "elsewhere/c.csv")
    for source in sources(folder):
        log = read_log(source)
        assert len(log.frame) == 18
        assert log.report.notes[1] == "left out beside them: " + ", ".join(
            f"{name} (a second name of a file)" for name in ("0.csv", "c.csv")
        )
    (folder / "d.csv").unlink()
    for source, rows in ((folder, 18), (folder / "*.csv", 12)):
        log = read_log(source)
        assert len(log.frame) == rows
        assert log.report.notes[1] == "left out beside them: 0.csv (a second name of a file)"


def test_a_file_of_a_known_ending_counts_before_one_of_none(tmp_path):
    """As in a cache that keeps contents under their checksums."""
    ROWS.write_csv(tmp_path / "3b2c")
    (tmp_path / "log.csv").symlink_to("3b2c")
    assert len(read_log(tmp_path).frame) == 6


def test_a_link_to_nothing_is_refused(folder):
    (folder / "d.csv").symlink_to("gone.csv")
    for source in (*sources(folder), folder / "d.csv"):
        with pytest.raises(InputError, match=r"d\.csv is a link to gone\.csv, where no file is; mend the link, or"):
            read_log(source)


def test_parts_without_a_byte_are_told_and_left_out(folder):
    """Spark writes such parts of text where a partition has no rows; no Parquet file is one."""
    (folder / "d.csv").touch()
    for source in sources(folder):
        log = read_log(source)
        assert len(log.frame) == 18
        assert log.report.notes == (READ, "left out beside them: d.csv (empty)")
    for file in folder.glob("*.csv"):
        file.write_text("")
    with pytest.raises(InputError, match="it is empty"):
        read_log(folder / "*.csv")
    ROWS.write_parquet(folder / "a.parquet")
    (folder / "b.parquet").touch()
    with pytest.raises(InputError, match=r"b\.parquet cannot be read: it is empty"):
        read_log(folder / "*.parquet")


@pytest.mark.parametrize("without_values", [0, 2])
def test_numbers_of_parts_of_json_lines_are_one_type(without_values, tmp_path):
    """JSON lines have no types: 5 here, 4.5 there, and in a part without values nothing."""
    ratings = ["5", "4.5"]
    ratings.insert(without_values, "4")
    for number, rating in enumerate(ratings):
        note = "null" if number == without_values else '"good"'
        row = f'"item": {number}, "rating": {rating}, "note": {note}}}\n'
        (tmp_path / f"{number}.jsonl").write_text(f'{{"user": 1, {row}{{"user": 2, {row}')
    items = read_log(tmp_path, min_weight=4.5).frame["item"]
    assert sorted(items) == [number for number in range(3) if number != without_values for _ in range(2)]
    (tmp_path / "3.jsonl").write_text('{"user": 3, "item": 1, "rating": 4, "note": 7}\n')
    with pytest.raises(InputError, match=r"column 'note' is of type Int64 in 3\.jsonl and String in \d\.jsonl"):
        read_log(tmp_path, min_weight=4.5)


def test_a_part_that_is_a_pipe_is_refused(folder):
    os.mkfifo(folder / "d.csv")
    for source in sources(folder):
        with pytest.raises(InputError, match=r"d\.csv is a pipe, a socket or a device"):
            read_log(source)


@pytest.mark.parametrize("target", [".", "..", "more"])
def test_a_folder_with_two_ways_is_read_once(folder, target):
    """A loop, a loop from above, and a second name, which comes first in the order of names."""
    (folder / "latest").symlink_to(target)
    source = folder if target != ".." else folder.parent / "log"
    for each in (source, folder / "**/*.csv"):
        log = read_log(each)
        assert len(log.frame) == 18
        assert log.report.notes[0] == READ


def test_two_links_that_lead_back_end(folder):
    """Each file has a trillion paths by them."""
    for name in ("one", "two"):
        (folder / name).symlink_to(".")
    for pattern in ("**/*.csv", "**", "**/**/*.csv"):
        assert len(read_log(folder / pattern).frame) == 18
    with pytest.raises(InputError, match="names no files of a known ending"):
        read_log(folder / "**/*.parquet")


def test_a_second_name_of_a_part_is_told(tmp_path):
    for day in (1, 2):
        (tmp_path / f"log/zone={day}").mkdir(parents=True)
        ROWS.write_csv(tmp_path / f"log/zone={day}/x.csv")
    (tmp_path / "log/latest").symlink_to("zone=2")
    for source in (tmp_path / "log", tmp_path / "log/*/*.csv", tmp_path / "log/**/*.csv"):
        log = read_log(source)
        assert len(log.frame) == 12
        assert log.report.notes[1] == AGAIN.format("latest")


@pytest.mark.parametrize("pattern", ["**/*.csv", "*/*.csv", "zone=*/x.csv", "zone=*/*"])
def test_a_pattern_keeps_the_keys_of_folders(tmp_path, monkeypatch, pattern):
    """As a folder does; below a folder with a wildcard's character in its name, and with a relative pattern."""
    for zone in (1, 2):
        (tmp_path / f"lo[g]/zone={zone}").mkdir(parents=True)
        ROWS.write_csv(tmp_path / f"lo[g]/zone={zone}/x.csv")
    monkeypatch.chdir(tmp_path / "lo[g]")
    for source in (tmp_path / "lo[[]g]" / pattern, pattern):
        log = read_log(source, columns=ColumnNames(context=("zone",)))
        assert log.frame["context.zone"].to_list() == ["1"] * 6 + ["2"] * 6


def test_the_advised_pattern_keeps_the_keys_of_folders(tmp_path):
    for zone in (1, 2):
        (tmp_path / f"zone={zone}").mkdir()
        ROWS.write_parquet(tmp_path / f"zone={zone}/x.parquet")
    ROWS.write_csv(tmp_path / "notes.csv")
    with pytest.raises(InputError, match="files of several kinds") as caught:
        read_log(tmp_path)
    advised = re.search("such as '(.*)'", str(caught.value))[1]
    assert read_log(advised, columns=ColumnNames(context=("zone",))).frame["context.zone"].n_unique() == 2


def test_names_with_an_underscore_are_skipped_unless_asked_for(tmp_path):
    for name in ("us/a.csv", "us/_tmp.csv", "_old/b.csv", "us/_more/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        ROWS.write_csv(tmp_path / name)
    for pattern in ("us/*.csv", "**/*.csv", "us/_*.csv", "_old/*.csv", "*/_*/*.csv"):
        assert len(read_log(tmp_path / pattern).frame) == 6


@pytest.mark.parametrize("content", ['{"format": "webpack", "files": {}}', '{"format": 1}', "[1]", "{", "[" * 100_000])
def test_a_manifest_of_another_program_is_no_saved_model(folder, content):
    (folder / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"several kinds \(3 of \.csv, 1 of \.json\)"):
        read_log(folder)
    assert len(read_log(folder / "**/*.csv").frame) == 18
