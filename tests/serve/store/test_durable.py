"""Stores that may lose acknowledged events say so: in `durable`, which follows the settings, and at the start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore
from beamwood.serve.store.sqlite import SqliteStore
from served import Server, saved, wait_until
from store_servers import address_of

Changed = Callable[[str], Any]
LOSES = {
    "redis": "set appendonly yes, appendfsync always and maxmemory-policy noeviction",
    "postgres": "set fsync and synchronous_commit to on",
}


@contextmanager
def redis_settings(address: str) -> Iterator[Changed]:
    """A function that sets "name value" pairs of a running Redis, which are set back."""
    import redis

    client: Any = redis.Redis.from_url(address)
    before = {name: client.config_get(name)[name] for name in ("appendfsync", "maxmemory", "maxmemory-policy")}

    def changed(words: str) -> None:
        parts = words.split()
        for name, value in zip(parts[::2], parts[1::2], strict=True):
            client.config_set(name, value)

    try:
        yield changed
    finally:
        for name, value in before.items():
            client.config_set(name, value)
        client.close()


@contextmanager
def postgres_settings(address: str) -> Iterator[Changed]:
    """A function that sets "name value" pairs of a running PostgreSQL, which are set back."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:

        def changed(words: str) -> None:
            parts: Any = words.split()
            for name, value in zip(parts[::2], parts[1::2], strict=True):
                connection.execute(f"alter system set {name} = {value}")
            connection.execute("select pg_reload_conf()")

        try:
            yield changed
        finally:
            connection.execute("alter system reset all")
            connection.execute("select pg_reload_conf()")


SETTINGS = {"redis": redis_settings, "postgres": postgres_settings}
CASES = [
    ("redis", "appendfsync everysec", False),
    ("redis", "maxmemory 100mb maxmemory-policy allkeys-lru", False),
    ("redis", "maxmemory 0 maxmemory-policy allkeys-lru", True),
    ("redis", "maxmemory 100mb maxmemory-policy noeviction", True),
    # Only stored answers expire.
    ("redis", "maxmemory 100mb maxmemory-policy volatile-lru", True),
    ("postgres", "synchronous_commit off", False),
    ("postgres", "synchronous_commit local", True),
]


def _is_durable_after_a_write(store: HistoryStore, item: int) -> bool:
    assert store.append([Event(1, item, 1.7e9)]).result(20).seq > 0
    return store.durable


@pytest.mark.parametrize(("kind", "words", "durable"), CASES)
def test_durable_follows_the_settings_of_the_server(
    kind: str, words: str, durable: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = address_of(kind, request, tmp_path)
    with SETTINGS[kind](address) as changed, closing(open_store(address)) as before:
        assert before.durable
        changed(words)
        # PostgreSQL reads its settings again a little later.
        wait_until(lambda: _is_durable_after_a_write(before, 1) is durable)
        with closing(open_store(address)) as after:
            assert after.durable is durable
            assert _is_durable_after_a_write(after, 2) is durable


def test_sqlite_syncs_each_commit(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "events.db")) as store:
        # "full"; with "normal" a power loss takes the latest commits.
        assert store._connection.execute("pragma synchronous").fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("kind", "words", "durable"), [CASES[0], CASES[1], CASES[3], CASES[5], ("postgres", "synchronous_commit on", True)]
)
def test_a_store_that_may_lose_events_is_named_at_the_start(
    kind: str, words: str, durable: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address, log = address_of(kind, request, tmp_path), tmp_path / "log"
    folder, _ = saved(tmp_path / "model")
    with SETTINGS[kind](address) as changed:
        changed(words)
        with Server(folder, "--store", address, log=log) as server:
            wait_until(lambda: log.read_text().endswith("\n"))
            told = server.ask("/v1/events", {"events": [{"user": 1, "item": 1}]})[1]["durable"]
    assert json.loads(log.read_text().splitlines()[0])["durable"] is durable
    assert told is durable
    assert [LOSES[kind] in line for line in server.said[:-1]] == [True] * (not durable), os.linesep.join(server.said)
