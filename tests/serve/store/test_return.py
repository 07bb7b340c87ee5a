"""Store servers that return in another state: empty, elsewhere, or in the middle of a commit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore, StoreUnavailable
from store_servers import address_of, free_port, redis_server

NOW = 1.7e9


class Between:
    """A proxy to a server; it can be redirected, and cut or muted once a client has sent a given word."""

    def __init__(self, address: str) -> None:
        self.parts = urlsplit(address)
        self.port, self.cut_at, self.mute_at = self.parts.port, b"", b""
        self.muted: list[socket.socket] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        who = f"{self.parts.username}@" if self.parts.username else ""
        place = f"{who}127.0.0.1:{self.listening.getsockname()[1]}"
        return urlunsplit((self.parts.scheme, place, self.parts.path, "", ""))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self.listening.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.port))
                for one, other, sends in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._carry, args=(one, other, sends), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, sends: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                is_last = sends and self.cut_at and self.cut_at in data
                if is_last:
                    # The server has received everything, but the client gets no answer.
                    self.cut_at = b""
                    one.shutdown(socket.SHUT_RDWR)
                if sends and self.mute_at and self.mute_at in data:
                    # The client waits, and may connect again.
                    self.mute_at = b""
                    self.muted.append(one)
                if other not in self.muted:
                    other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_WR)


def kept(store: HistoryStore, *items: int) -> tuple[int, int]:
    done = store.append([Event(1, item, NOW + item, key=str(item)) for item in items]).result(20)
    return done.accepted, done.duplicates


def refused(store: HistoryStore, item: int) -> str:
    with pytest.raises(StoreUnavailable) as error:
        kept(store, item)
    return str(error.value)


@pytest.mark.parametrize(("kind", "word"), [("redis", b"EVALSHA"), ("postgres", b"COMMIT")])
def test_a_commit_without_an_answer_counts_once(
    kind: str, word: bytes, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    way = Between(address_of(kind, request, tmp_path))
    with closing(open_store(way.address)) as store:
        assert kept(store, 1) == (1, 0)
        way.cut_at = word
        sent = store.append([Event(1, 2, NOW + 2, key="2")])
        assert sent.exception(20) is None or isinstance(sent.exception(), StoreUnavailable)
        assert way.cut_at == b"", "it was cut"
        assert kept(store, 2, 3) == (1, 1)
        assert store.history(1).items == (1, 2, 3)
    way.listening.close()


def test_a_write_that_redis_does_not_answer_in_time_is_not_sent_again(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    way = Between(address_of("redis", request, tmp_path))
    with closing(open_store(way.address)) as store:
        way.mute_at = b"HINCRBY"
        with pytest.raises(StoreUnavailable):
            store.tally("group", "hits")
        assert way.mute_at == b"", "it was muted"
        store.tally("group", "hits")
        assert store.tallies() == {("group", "hits"): 2}
    way.listening.close()


def test_the_network_is_asked_whether_an_idle_connection_to_redis_is_there(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router that forgets it in silence would cost a read, as what is late is not sent again."""
    import redis

    opened, given = redis.Redis.from_url, {}
    monkeypatch.setattr(redis.Redis, "from_url", lambda url, **more: given.update(more) or opened(url, **more))
    open_store(address_of("redis", request, tmp_path)).close()
    assert given["socket_keepalive"] is True
    assert given["socket_keepalive_options"][socket.TCP_KEEPIDLE] <= 60
    # The path of a socket is no network.
    with pytest.raises(StoreUnavailable, match="does not answer"):
        open_store(f"unix://{tmp_path / 'no-server'}")


def test_a_moved_or_replaced_file_accepts_no_events(tmp_path: Path) -> None:
    path, away = tmp_path / "events.db", tmp_path / "away.db"
    with closing(open_store(f"sqlite:{path}")) as store:
        kept(store, 1)
        with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(tmp_path / "backup.db")) as copy:
            live.backup(copy)
        path.rename(away)
        assert "restore it" in refused(store, 2)
        with pytest.raises(StoreUnavailable, match="replaced"):
            store.history(1)
        shutil.copy(tmp_path / "backup.db", path)
        assert "stop the service" in refused(store, 2)
        os.replace(away, path)
        assert kept(store, 2) == (1, 0)
    with closing(open_store(f"sqlite:{path}")) as store:
        assert store.history(1).items == (1, 2)


@pytest.mark.parametrize("first", ["history", "append"])
def test_postgres_that_comes_back_empty(first: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    import psycopg

    with closing(open_store(address_of("postgres", request, tmp_path))) as store:
        kept(store, 1)
        assert store.history(1).items == (1,)
        with psycopg.connect(address_of("postgres", request, tmp_path)) as connection:
            # As in a restart.
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
                "and backend_type = 'client backend'"
            )
        if first == "history":
            assert store.history(1).items == ()
        assert kept(store, 2) == (1, 0)
        assert store.history(1).items == (2,)


def test_a_postgres_that_was_read_only_for_a_while(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """As a standby before it is promoted: connections are made to it meanwhile."""
    import psycopg

    address = address_of("postgres", request, tmp_path)
    with closing(open_store(address)) as store, psycopg.connect(address, autocommit=True) as other:
        kept(store, 1)
        other.execute("alter role current_user set default_transaction_read_only = on")
        # The setting is for new connections, which replace lost ones.
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and backend_type = 'client backend'"
        )
        try:
            assert "read-only" in refused(store, 2)
            assert "read-only" in refused(store, 2)
            assert store.history(1).items == (1,)
        finally:
            other.execute("alter role current_user reset default_transaction_read_only")
        assert kept(store, 2) == (1, 0)
        assert store.history(1).items == (1, 2)


def test_redis_that_comes_back_empty_and_less_durable(tmp_path: Path) -> None:
    port = free_port()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with redis_server(tmp_path / "one", port=port) as (address, _):
        store = open_store(address)
        kept(store, 1)
        assert store.durable
    with closing(store), redis_server(tmp_path / "other", port=port, sync="everysec"):
        assert kept(store, 2) == (1, 0)
        assert not store.durable
        assert store.history(1).items == (2,)


def test_a_primary_that_became_a_replica_is_abandoned(tmp_path: Path) -> None:
    import redis

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with redis_server(tmp_path / "one") as (first, _), redis_server(tmp_path / "other") as (second, _):
        way = Between(first)
        with closing(open_store(way.address)) as store:
            kept(store, 1)
            old: Any = redis.Redis.from_url(first)
            old.replicaof("127.0.0.1", free_port())
            way.port = urlsplit(second).port
            assert "read only" in refused(store, 2)
            assert kept(store, 2) == (1, 0)
            assert store.history(1).items == (2,)
        way.listening.close()


def test_a_postgres_that_stands_still_is_given_up(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a lost machine: no timeout of the server ends its statements, and a shutdown would wait for them."""
    from beamwood.serve.store.postgres import PostgresStore

    monkeypatch.setattr("beamwood.serve.store.postgres._SECONDS", 1)
    with closing(PostgresStore(address_of("postgres", request, tmp_path))) as store:
        kept(store, 1)
        own = [store._connection.info.backend_pid, store._readers.use(lambda own: own.info.backend_pid)]
        for each in own:
            os.kill(each, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="no answer within 2 s"):
                store.history(1)
            assert store.history(1).items == (1,)
            assert kept(store, 2) == (1, 0)
        finally:
            for each in own:
                os.kill(each, signal.SIGCONT)
