"""Processes killed at random: every acknowledged event is stored exactly once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from beamwood.errors import InputError
from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore, StoreUnavailable
from beamwood.serve.store.sqlite import SqliteStore
from bounded import ended, line_of
from store_servers import free_port, postgres_server, redis_server, stop, wait_until_unused

NOW = 1.7e9
# Sends events from a number on, a few at a time, and prints the acknowledged ones.
_WRITER = """
import sys
from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store

store, number = open_store(sys.argv[1]), int(sys.argv[2])
while True:
    waiting = []
    for size in (1, 3, 7):
        numbers = range(number, number + size)
        events = [Event(each % 5, each, 1.7e9 + each, key=str(each)) for each in numbers]
        waiting.append((numbers, store.append(events)))
        number += size
    for numbers, done in waiting:
        done.result(30)
        print(*numbers, flush=True)
"""


def _writing(address: str, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, address, str(first)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _killed(process: subprocess.Popen[str], draw: random.Random) -> list[int]:
    """The acknowledged events of a writer that is killed at a random time after its first acknowledgement."""
    assert process.stdout is not None
    said = line_of(process)
    time.sleep(draw.uniform(0, 0.15))
    process.send_signal(signal.SIGKILL)
    ended(process)
    # The last line may be truncated; its numbers except the last were acknowledged.
    whole = (said + process.stdout.read()).rpartition("\n")[0]
    return [int(word) for word in whole.split()]


def _check_writer(address: str, kills: int) -> None:
    draw, acknowledged = random.Random(kills), set[int]()
    for _ in range(kills):
        # Some events are sent again, as by clients that got no answer.
        first = max(acknowledged, default=-1) + 1
        acknowledged.update(_killed(_writing(address, max(first - 5, 0)), draw))
    store = open_store(address)
    try:
        counts = Counter(record.event.item for record in store.records())
        assert acknowledged
        assert acknowledged <= set(counts)
        assert set(counts.values()) == {1}
        for user in range(5):
            items = store.history(user).items
            assert list(items) == sorted(items)
    finally:
        store.close()


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_writer_of_sqlite_loses_no_acknowledged_event(kills: int, tmp_path: Path) -> None:
    _check_writer(f"sqlite:{tmp_path / 'events.db'}", kills)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_killed_writer_of_a_shared_store_loses_no_acknowledged_event(
    kind: str, request: pytest.FixtureRequest
) -> None:
    _check_writer(request.getfixturevalue(f"{kind}_address"), 30)


def _sent(store: HistoryStore, numbers: range) -> set[int]:
    """The acknowledged events."""
    waiting = {each: store.append([Event(each % 5, each, NOW + each, key=str(each))]) for each in numbers}
    done = set()
    for each, future in waiting.items():
        error = future.exception(30)
        assert error is None or isinstance(error, StoreUnavailable)
        if error is None:
            done.add(each)
    return done


_LONG = [pytest.param(kind, 20, marks=pytest.mark.slow) for kind in ("redis", "postgres")]


@pytest.mark.parametrize(("kind", "kills"), [("redis", 2), *_LONG])
def test_a_killed_server_loses_no_acknowledged_event(kind: str, kills: int) -> None:
    folder, port, draw = Path(tempfile.mkdtemp(prefix="beamwood-")), free_port(), random.Random(0)
    server = {"redis": redis_server, "postgres": postgres_server}[kind]
    acknowledged, store, number = set[int](), None, 0
    try:
        for _ in range(kills):
            with server(folder, port=port) as (address, process):
                store = store or open_store(address)
                acknowledged |= _sent(store, range(number, number + 20))
                number += 20
                killer = subprocess.Popen(["sh", "-c", f"sleep {draw.uniform(0, 0.05)}; kill -9 {process.pid}"])
                acknowledged |= _sent(store, range(number, number + 100))
                ended(killer)
                stop(process, signal.SIGKILL)
                with pytest.raises(StoreUnavailable):
                    store.history(1)
                with pytest.raises(StoreUnavailable):
                    store.append([Event(1, 1, NOW)]).result(30)
            # Two servers on the same files would corrupt them, so every process of the killed one must end first.
            wait_until_unused(folder / "data")
            (folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        with server(folder, port=port):
            assert store is not None
            for each in range(number + 100):
                acknowledged |= _sent(store, range(each, each + 1)) if each % 7 == 0 else set()
            counts = Counter(record.event.item for record in store.records())
            assert set(counts.values()) == {1}
            assert acknowledged <= set(counts)
            store.close()
    finally:
        if store is not None:
            store.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_second_process_is_refused_with_the_process_id(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'events.db'}"
    process = _writing(address, 0)
    try:
        assert process.stdout is not None
        line_of(process)
        with pytest.raises(ValueError, match=f"in use by process {process.pid}; stop it"):
            open_store(address)
        (tmp_path / "link.db").symlink_to(tmp_path / "events.db")
        with pytest.raises(ValueError, match="in use by process"):
            open_store(f"sqlite:{tmp_path / 'link.db'}")
        beside = open_store(address, read_only=True)
        assert beside.history(0).items[0] == 0
        with pytest.raises(StoreUnavailable):
            beside.append([Event(1, 1, NOW)]).result(10)
        beside.close()
    finally:
        process.send_signal(signal.SIGKILL)
        ended(process)
        process.stdout.close() if process.stdout else None
    open_store(address).close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("sqlite:{folder}/no/events.db", "does not exist; create it"),
        ("sqlite:{folder}/text.db", "cannot be opened as a store"),
        ("sqlite", "did you mean 'sqlite:'"),
        ("mysql://x", "is unknown"),
        ("sqlite:", "names no place; write sqlite:PATH"),
        ("postgresql://a b c", "is invalid"),
        ("redis://h:port/0", "the address of Redis is invalid"),
        ("redis://me:secret@h:port/0", "the address of Redis is invalid"),
        ("postgre://me:secret@h/db", r"'postgre://\.\.@h/db' is unknown"),
        ("postgresql:/me:secret@h/db", r"'postgresql://\.\.@h/db' is unknown"),
        ("me:secret@h/db", r"//\.\.@h/db' is unknown"),
        ("postgresql://me:%secret@h/db", "%25 for %"),
        ("postgresql://me:a@secret:b@h/db", "escape characters of a password: %40 for @"),
        ("postgresql://h/db?passwort=secret", "the address of PostgreSQL is invalid"),
        ("redis://me:secret/b@h/0", "escape characters of a password: %2F for /"),
        ("redis://h/0?word=secret", "the address of Redis is invalid"),
    ],
)
def test_invalid_addresses_are_refused(address: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be looked at" * 9)
    with pytest.raises(ValueError, match=said) as error:
        open_store(address.format(folder=tmp_path))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("address", ["redis://127.0.0.1:{port}/0", "postgresql://x@127.0.0.1:{port}/x"])
def test_an_absent_server_is_reported(address: str) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        open_store(address.format(port=free_port()))


def test_a_full_disk_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's page limit simulates a full disk."""
    store = open_store(f"sqlite:{tmp_path / 'events.db'}")
    try:
        store.append([Event(1, 1, NOW)]).result(10)
        store._connection.execute("pragma max_page_count = 12")
        outcomes = [store.append([Event(1, item, NOW + step) for step in range(10)]) for item in range(2, 99)]
        errors = [each.exception(10) for each in outcomes]
        refused = [each for each in errors if each is not None]
        assert refused
        assert all(isinstance(each, StoreUnavailable) and "full" in str(each) for each in refused)
        assert len(store.history(1).items) == 1 + 10 * errors.count(None)
        store._connection.execute("pragma max_page_count = 10000")
        assert store.append([Event(1, 0, NOW)]).result(10).accepted == 1
    finally:
        store.close()


def test_a_disk_that_is_full_at_the_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SqliteStore._connected

    def full(self: SqliteStore, mode: str) -> sqlite3.Connection:
        connection = real(self, mode)
        connection.execute("pragma max_page_count = 2")
        return connection

    monkeypatch.setattr(SqliteStore, "_connected", full)
    with pytest.raises(InputError, match=r"disk is full\); free some space on its disk$"):
        open_store(f"sqlite:{tmp_path / 'events.db'}")
    monkeypatch.setattr(SqliteStore, "_connected", real)
    open_store(f"sqlite:{tmp_path / 'events.db'}").close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It contains histories; a file that exists keeps its mode."""
    before = os.umask(0o022)
    try:
        for mode in (0o600, 0o640):
            with closing(open_store(f"sqlite:{tmp_path / 'events.db'}")) as store:
                store.append([Event(1, 1, NOW)]).result(10)
                modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
                assert modes == dict.fromkeys(("events.db", "events.db-wal", "events.db-shm"), mode) | {
                    "events.db.lock": 0o600
                }
            (tmp_path / "events.db").chmod(0o640)
    finally:
        os.umask(before)


def test_another_user_is_told_whose_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(f"sqlite:{tmp_path / 'events.db'}").close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="as the service's user"):
        open_store(f"sqlite:{tmp_path / 'events.db'}", read_only=True)


def test_space_is_reused(tmp_path: Path) -> None:
    from beamwood.serve.store.protocol import Retention

    path = tmp_path / "events.db"
    store = open_store(f"sqlite:{path}")
    try:
        sizes = []
        for turn in range(6):
            store.append(
                [Event(user, turn * 100 + item, NOW + turn) for user in range(20) for item in range(40)]
            ).result(10)
            while store.compact(Retention(keep_events=40), NOW):
                pass
            sizes.append(os.path.getsize(path))
        assert len(list(store.records())) == 800
        assert sizes[-1] <= 1.5 * sizes[1]
    finally:
        store.close()
