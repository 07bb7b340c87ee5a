"""Files by their ending: compressed files, RecBole tables, and unsupported files with advice."""

import bz2
import gzip
import zipfile

import polars as pl
import pytest

from beamwood.data import Dataset, read_log
from beamwood.errors import InputError
from refusals import refused, typed, written


def test_recbole_tables_and_packed_lines_are_read(frame, tmp_path):
    whole = Dataset.from_log(read_log(frame)).fingerprint()
    frame.write_ndjson(tmp_path / "log.jsonl.zst", compression="zstd")
    items = written(
        tmp_path / "x.item", ["item_id:token\ttitle:token_seq", *(f'{i}\tThe "Story {i}' for i in range(30))]
    )
    dataset = Dataset.from_log(read_log(tmp_path / "log.jsonl.zst"), items)
    assert dataset.fingerprint() == whole
    assert dataset.item_table.frame["title"][3] == 'The "Story 3'


def test_archives_are_refused_with_the_unpacking_command(write, planted, tmp_path):
    whole = write(planted, "r.csv").read_bytes()
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("set/README", "x")
        archive.writestr("set/r.csv", whole)
    message = refused(tmp_path / "log.zip")
    assert message.endswith(f"unzip {tmp_path}/log.zip, and give the log in it, such as set/r.csv")
    (tmp_path / "s.csv.bz2").write_bytes(bz2.compress(whole))
    typed(refused(tmp_path / "s.csv.bz2"), tmp_path)
    assert (tmp_path / "s.csv").read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "log.rating",
            "7\t3\t5\t978300760\n8\t4\t5\t978300761\n",
            "say what separates its columns, as --separator tab;",
        ),
        ("log", '{"user": 7, "item": 3}\n', "it begins as .jsonl files do, so call it log.jsonl"),
        ("log.sql", "INSERT INTO log", "is a dump of a database; load it there, and export the table as CSV"),
        ("log.pkl", "x", "is a pickle, which may run code and is not read"),
        ("log.sqlite", "x", "sqlite3 -header -csv {folder}/log.sqlite 'SELECT * FROM ratings' > log.csv"),
        ("log.zip", "x", "is not a whole archive; fetch it again"),
    ],
)
def test_unsupported_files_are_identified(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    assert message.format(folder=tmp_path) in refused(tmp_path / name)


def test_binary_files_with_the_name_of_text_are_refused_with_their_own(frame, planted, write, tmp_path):
    whole = Dataset.from_log(read_log(frame)).fingerprint()
    frame.write_parquet(tmp_path / "log.csv")
    packed = gzip.compress(write(planted, "r.csv").read_bytes())
    (tmp_path / "r.csv").write_bytes(packed)
    for name, right in (("log.csv", "log.parquet"), ("r.csv", "r.csv.gz")):
        assert refused(tmp_path / name).endswith(f"files do; call it {right}")
        (tmp_path / name).rename(tmp_path / right)
        assert Dataset.from_log(read_log(tmp_path / right)).fingerprint() == whole


@pytest.mark.parametrize(("byte", "encoding"), [(b"\xe9", "WINDOWS-1252"), (b"\x81", "LATIN1")])
def test_other_encodings_are_refused_with_the_command(planted, tmp_path, byte, encoding):
    lines = [b"user,item,time", *(f"u{u},i{i}".encode() + byte + f",{t}".encode() for u, i, _, t in planted)]
    (tmp_path / "log.csv").write_bytes(b"\n".join(lines))
    message = refused(tmp_path / "log.csv")
    assert f"iconv -f {encoding} -t UTF-8 {tmp_path}/log.csv > {tmp_path}/utf8.log.csv" in message
    made = typed(message, tmp_path)
    assert read_log(made).frame["item"].to_list() == [f"i{i}{byte.decode('latin-1')}" for _, i, *_ in planted]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"user": 1, "item": 2}\n\n{"user": 2,\n', "line 3 is no row of JSON: '{\"user\": 2,'; each line"),
        (
            '[{"user": 1, "item": 2}, {"user": 2, "item": 2}]',
            r"write a row a line, as with: zstdcat .* jq -c '\.\[\]' >",
        ),
        (
            '{"rows": [\n{"user": 1}]}',
            r"rows are in 'rows'; write a row a line, as with: zstdcat .* jq -c '\.rows\[\]' >",
        ),
    ],
)
def test_packed_lines_that_are_no_rows_are_named_as_plain_ones(tmp_path, text, message):
    """Polars packs them by writing one column of text without quotes."""
    path = tmp_path / "log.jsonl.zst"
    lines = pl.DataFrame({"line": text.splitlines()})
    lines.write_csv(path, include_header=False, quote_style="never", separator="\x0e", compression="zstd")
    with pytest.raises(InputError, match=message):
        read_log(path)


def test_packed_lines_that_end_early_are_said_to(frame, tmp_path):
    path = tmp_path / "log.jsonl.zst"
    frame.write_ndjson(path, compression="zstd")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"incomplete frame.*; is the file whole and of that format\?"):
        read_log(path)
