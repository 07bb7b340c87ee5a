"""A damaged log gives one line and exit code 2, or is read if the damage cannot be detected."""

import errno
import gzip
import os
import random
import subprocess
import sys
from contextlib import suppress

import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from beamwood.data import read_log
from beamwood.errors import InputError


@pytest.fixture
def small():
    return pl.DataFrame(
        {"user_id": [10**18 + user // 4 for user in range(80)], "item_id": [f"i{n % 9}" for n in range(80)]}
    )


def with_offsets(frame, path):
    times = pa.array([0] * len(frame), pa.timestamp("us", "+05:30"))
    table = frame.to_arrow().append_column("time", times)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)


def matrix(frame, path):
    users = (frame["user_id"] - 10**18).to_numpy()
    sparse.save_npz(path, sparse.csr_matrix((users + 1, (users, frame["item_id"].str.slice(1).cast(int).to_numpy()))))


WRITERS = {
    "log.parquet": pl.DataFrame.write_parquet,
    "log.arrow": pl.DataFrame.write_ipc,
    "log.feather": pl.DataFrame.write_ipc_stream,
    "log.csv.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_csv().encode())),
    "log.csv.zst": lambda frame, path: frame.write_csv(path, compression="zstd"),
    "log.jsonl": pl.DataFrame.write_ndjson,
    "log.jsonl.zst": lambda frame, path: frame.write_ndjson(path, compression="zstd"),
    "log.jsonl.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_ndjson().encode())),
    "log.json.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_json().encode())),
    "log.npz": matrix,
    "log.offsets.arrow": with_offsets,
}


def attempt(path):
    """Whether the file was read. Anything but an `InputError` fails the test."""
    with suppress(InputError):
        read_log(path)
        return True
    return False


@pytest.mark.parametrize("name", WRITERS)
def test_flipped_bytes_are_an_error_or_another_log(name, small, tmp_path):
    path, chance = tmp_path / name, random.Random(name)
    WRITERS[name](small, path)
    whole = path.read_bytes()
    assert attempt(path)
    for place in chance.sample(range(len(whole)), min(60, len(whole))):
        cut = bytearray(whole)
        cut[place] ^= chance.randrange(1, 256)
        path.write_bytes(cut)
        attempt(path)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "log.jsonl"])
def test_a_file_that_ends_early_is_refused(name, small, tmp_path):
    path, chance = tmp_path / name, random.Random(name)
    WRITERS[name](small, path)
    whole = path.read_bytes()
    # In an Arrow stream the end marker may be missing.
    last = len(whole) - 9 if name == "log.feather" else len(whole)
    for length in chance.sample(range(last), 40):
        path.write_bytes(whole[:length])
        assert not attempt(path), length


def test_the_command_prints_one_line_despite_output_of_a_library():
    """Damage may cause panics in threads of the library, which print their own messages."""
    code = """
import os, sys, polars as pl
from beamwood.cli.native_words import held_back
from beamwood.data.files.source import reading
try:
    with held_back(), reading("log.parquet"):
        os.write(2, b"thread panicked")
        raise pl.exceptions.PanicException("unwrap")
except Exception as error:
    print(error, file=sys.stderr)
with held_back():
    os.write(2, b"kept")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = ended.stderr.splitlines()
    assert first == "log.parquet cannot be read: its parts are inconsistent; is the file whole and of that format?"
    assert second == "kept"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to its address space")
def test_the_last_words_of_a_library_without_memory_are_printed():
    code = """
import os, resource
from beamwood.cli.native_words import held_back
resource.setrlimit(resource.RLIMIT_AS, (2**45, resource.RLIM_INFINITY))
with held_back():
    os.write(2, b"memory allocation failed")
    os._exit(134)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (134, "memory allocation failed")


@pytest.mark.parametrize(
    ("name", "at", "error"),
    [
        ("log.npz", (sparse, "load_npz"), MemoryError("no room")),
        ("log.offsets.arrow", (pa.ipc, "open_file"), pa.ArrowMemoryError("no room")),
        ("log.offsets.arrow", (pa, "memory_map"), OSError(errno.ENOMEM, "no room")),
        ("", (pl, "from_pandas"), MemoryError("no room")),
        # Polars gives no number of the error.
        ("log.parquet", (pl.LazyFrame, "collect_schema"), OSError("Cannot allocate memory: no room (os error 12)")),
    ],
)
def test_a_lack_of_memory_is_no_damage(name, at, error, small, tmp_path, monkeypatch):
    def fails(*_):
        raise error

    source = tmp_path / name if name else small.to_pandas()
    if name:
        WRITERS[name](small, source)
    monkeypatch.setattr(*at, fails)
    with pytest.raises(type(error), match="no room"):
        read_log(source)


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.arrow", "log.csv.gz", "log.jsonl"])
def test_a_pipe_or_a_device_is_refused_at_once(name, tmp_path):
    path = tmp_path / name
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        make(path)
        with pytest.raises(InputError, match=f"{name} is a pipe, a socket or a device"):
            read_log(path)
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_every_byte_and_every_length(name, small, tmp_path):
    """The exhaustive form of the random test above."""
    path = tmp_path / name
    WRITERS[name](small, path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        attempt(path)
        path.write_bytes(whole[:place])
        read = attempt(path)
        if name != "log.jsonl" and (name != "log.feather" or place < len(whole) - 8):
            assert not read, place
