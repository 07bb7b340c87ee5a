"""The contract of all stores, and of the shared ones by several processes."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beamwood.serve.store.event import Event, Session
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import Answered, HistoryStore, Retention
from beamwood.serve.store.sql import SqlStore
from beamwood.testing import HistoryStoreContract
from served import wait_until
from store_servers import address_of, stop

NOW, DAY = 1.7e9, 86400
SHARED = ("redis", "postgres")
FILE = Path(__file__).parents[2] / "one_file" / "journal_store.py"


class TestMemory(HistoryStoreContract):
    outlives = False

    def opened(self, folder: Path) -> HistoryStore:
        return open_store("memory")


class TestSqlite(HistoryStoreContract):
    def opened(self, folder: Path) -> HistoryStore:
        return open_store(f"sqlite:{folder / 'events.db'}")


class TestRedis(HistoryStoreContract):
    has_clock = True

    @pytest.fixture(autouse=True)
    def server(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.address = address_of("redis", request, tmp_path)

    def opened(self, folder: Path) -> HistoryStore:
        return open_store(self.address)

    def test_a_key_expires_a_day_after_its_event_was_removed(self, store: HistoryStore) -> None:
        import redis

        store.append([Event(1, item, NOW + item, key=str(item)) for item in range(2)]).result(10)
        assert store.compact(Retention(keep_events=1), NOW) == 1
        client = redis.Redis.from_url(self.address)
        left = {client.ttl(name) for name in client.keys("beamwood:key:*")}
        assert -1 in left
        assert {DAY - 60 < each <= DAY for each in left - {-1}} == {True}
        assert DAY - 60 < client.ttl("beamwood:spent:n1") <= DAY

    def test_a_merge_expires_after_a_day(self, store: HistoryStore) -> None:
        import redis

        store.merge(Session("s"), 1, NOW)
        assert DAY - 60 < redis.Redis.from_url(self.address).ttl("beamwood:merged:ss") <= DAY

    def test_a_hit_expires_with_its_answer(self, store: HistoryStore) -> None:
        import redis

        store.note([Answered("r-1", 42, NOW, "e/a", (1,))], 60, NOW)
        assert store.hit(["r-1"])
        assert 0 < redis.Redis.from_url(self.address).ttl("beamwood:hit:r-1") <= 60

    @pytest.mark.parametrize("merges", [False, True])
    def test_an_owner_lists_only_answers_that_are_kept(self, merges: bool, store: HistoryStore) -> None:
        """Else the list of an owner who is active day after day would grow."""
        import redis

        owner, user = Session("s"), 42
        store.note([Answered("r-1", owner, NOW, "e/a", (1,)), Answered("r-2", user, NOW, "e/a", (1,))], 1, NOW)
        wait_until(lambda: not store.noted(["r-1", "r-2"]))
        store.note([Answered("r-3", owner, NOW, "e/a", (1,))], 60, NOW)
        if merges:
            store.merge(owner, user, NOW)
        client = redis.Redis.from_url(self.address)
        name = f"beamwood:answers:{'n42' if merges else 'ss'}"
        assert client.zrange(name, 0, -1) == [b"r-3"]
        assert 0 < client.ttl(name) <= 60


class TestPostgres(HistoryStoreContract):
    @pytest.fixture(autouse=True)
    def server(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.address = address_of("postgres", request, tmp_path)

    def opened(self, folder: Path) -> HistoryStore:
        return open_store(self.address)


class TestJournal(HistoryStoreContract):
    def opened(self, folder: Path) -> HistoryStore:
        return open_store(f"{FILE}:{folder / 'events.jsonl'}")


# Erases owners with its own clock.
_ERASER = """
import sys
from beamwood.serve.store.open import open_store

store = open_store(sys.argv[1])
for each in range(150):
    store.erase(f"{sys.argv[2]} {each}", float(sys.argv[2]) + each)
"""


@pytest.mark.parametrize("kind", SHARED)
def test_erasures_of_processes_with_other_clocks_are_all_followed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = address_of(kind, request, tmp_path)
    store, known, until = open_store(address), dict[Any, float](), -math.inf
    commands = [[sys.executable, "-c", _ERASER, address, repr(clock)] for clock in (NOW, NOW + 86400)]
    erasers = [subprocess.Popen(command) for command in commands]
    try:
        running = True
        while running:
            running = any(each.poll() is None for each in erasers)
            found = store.erased(until)
            assert all(time > until for time in found.values())
            known |= found
            until = max(found.values(), default=until)
        assert [each.returncode for each in erasers] == [0, 0]
        assert len(known) == len(set(known.values())) == 300
        assert known == store.erased()
    finally:
        for each in erasers:
            stop(each)
        store.close()


@pytest.mark.parametrize("kind", SHARED)
def test_two_processes_read_each_others_writes(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    address = address_of(kind, request, tmp_path)
    one, other = open_store(address), open_store(address)
    try:
        for item in range(50):
            (one if item % 2 else other).append([Event(1, item, NOW)]).result(10)
            mine, theirs = one.history(1), other.history(1)
            assert mine == theirs
            assert mine.items == tuple(range(item + 1))
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_process_whose_clock_is_ahead_deletes_no_answers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with closing(open_store(address_of(kind, request, tmp_path))) as store:
        now = time.time()
        store.note([Answered("r-1", 1, now, "e/a", (1,))], 60, now)
        store.note([Answered("r-2", 1, now + 1e6, "e/a", (1,))], 60, now + 1e6)
        assert store.noted(["r-1"])


def test_each_schema_of_a_postgres_database_holds_a_store(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    import psycopg

    address = address_of("postgres", request, tmp_path)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create schema apart")
        try:
            with closing(open_store(address)) as store:
                store.append([Event(1, item, NOW) for item in range(3)]).result(10)
                with closing(open_store(f"{address}?options=-csearch_path%3Dapart")) as other:
                    assert other.append([Event(1, 7, NOW)]).result(10).seq == 1
                    assert other.history(1).items == (7,)
                assert store.append([Event(1, 3, NOW)]).result(10).seq == 4
                assert store.history(1).items == (0, 1, 2, 3)
        finally:
            connection.execute("drop schema apart cascade")


class Counted:
    """A cursor that notes how often it is asked."""

    def __init__(self, cursor: Any, asked: list[str]) -> None:
        self.cursor, self.asked = cursor, asked

    def __getattr__(self, name: str) -> Any:
        if name.startswith("execute"):
            self.asked.append(name)
        return getattr(self.cursor, name)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_many_answers_are_noted_in_as_few_calls_as_one(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet waits for each: that of PostgreSQL is a way to the server and back."""
    asked: list[str] = []
    with closing(open_store(address_of(kind, request, tmp_path))) as store:
        assert isinstance(store, SqlStore)
        run = store._transaction
        monkeypatch.setattr(store, "_transaction", lambda work: run(lambda cursor: work(Counted(cursor, asked))))
        counts = []
        for some in (range(1), range(50), range(40, 100)):
            asked.clear()
            store.note([Answered(str(each), None, NOW, "e/a", (each,)) for each in some], 60, NOW)
            counts.append(len(asked))
        assert len(set(counts)) == 1
        # Those that were noted before do not count.
        assert store.tallies() == {("e/a", "answers"): 100}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_many_answers_are_read_in_as_few_calls_as_one(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcomes of a busy service are read within one limit of seconds, also where a read is slow."""
    import redis

    asked: list[object] = []
    with closing(open_store(address_of(kind, request, tmp_path))) as store:
        names = [f"r-{n}" for n in range(400)]
        store.note([Answered(each, None, NOW, "e/a", (1,)) for each in names], 60, NOW)
        assert store.hit(names[:1])
        place: Any = store if isinstance(store, SqlStore) else redis.Redis
        way = "_read" if isinstance(store, SqlStore) else "execute_command"
        run = getattr(place, way)
        monkeypatch.setattr(place, way, lambda *given, **more: asked.append(given) or run(*given, **more))
        counts = []
        for some in (names[1:2], names):
            for call in (store.noted, store.hit):
                asked.clear()
                assert len(call(some)) >= len(some) - 2
                counts.append(len(asked))
        assert counts[:2] == counts[2:]
        assert counts[0] == 1


class Silent(Counted):
    """A cursor of a driver that sums up nothing."""

    rowcount = -1


def test_a_driver_that_does_not_say_how_many_rows_are_new_takes_none_off_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store(f"sqlite:{tmp_path / 'events.db'}")) as store:
        assert isinstance(store, SqlStore)
        store.note([Answered("r-1", None, NOW, "e/a", (1,))], 60, NOW)
        run = store._transaction
        monkeypatch.setattr(store, "_transaction", lambda work: run(lambda cursor: work(Silent(cursor, []))))
        store.note([Answered("r-2", None, NOW, "e/a", (1,))], 60, NOW)
        assert store.tallies() == {("e/a", "answers"): 1}
