"""PostgreSQL as a fleet of writers uses it: a writer that is lost, and the isolation that a server is set to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from beamwood.errors import InputError
from beamwood.serve.store.event import Event
from beamwood.serve.store.postgres import PostgresStore
from beamwood.serve.store.protocol import StoreUnavailable
from served import wait_until
from store_servers import address_of

NOW = 1.7e9
_LOCK = "select pg_advisory_xact_lock(7092161519)"
_WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


def test_a_writer_lost_between_its_lock_and_its_commit_blocks_no_other(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a power failure: its session stays, and sends nothing."""
    monkeypatch.setattr("beamwood.serve.store.postgres._SECONDS", 1)
    address, has_begun, may_end = address_of("postgres", request, tmp_path), threading.Event(), threading.Event()

    def stuck(cursor: Any) -> None:
        cursor.execute("select 1")
        has_begun.set()
        may_end.wait(60)

    with (
        closing(PostgresStore(address)) as lost,
        closing(PostgresStore(address)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        writing = pool.submit(lost._writer.call, lambda: lost._transaction(stuck))
        try:
            assert has_begun.wait(30)
            assert other.append([Event(1, 1, NOW)]).result(30).accepted == 1
        finally:
            may_end.set()
        assert isinstance(writing.exception(30), StoreUnavailable)
        assert lost.append([Event(1, 2, NOW)]).result(30).accepted == 1


@contextmanager
def _encoded(address: str, encoding: str) -> Iterator[str]:
    """The address of a database with that encoding."""
    name = f"in_{encoding.lower()}"
    with psycopg.connect(address, autocommit=True) as connection:
        how = f"encoding '{encoding}' lc_collate 'C' lc_ctype 'C' template template0"
        connection.execute(f"create database {name} {how}")
        try:
            yield address.replace("/postgres", f"/{name}")
        finally:
            connection.execute(f"drop database {name} with (force)")


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_any_text_is_an_id_whatever_the_client_and_the_database_are_set_to(
    encoding: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with (
        _encoded(address_of("postgres", request, tmp_path), encoding) as address,
        closing(PostgresStore(address)) as store,
    ):
        assert store.append([Event("Zoë", "猫", NOW)]).result(30).accepted == 1
        assert store.history("Zoë").items == ("猫",)
        assert list(store.owners()) == ["Zoë"]


def test_a_database_whose_encoding_lacks_characters_is_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with (
        _encoded(address_of("postgres", request, tmp_path), "LATIN1") as address,
        pytest.raises(InputError, match=r"encoding LATIN1.*encoding 'UTF8' template template0"),
    ):
        PostgresStore(address)


@contextmanager
def _level(address: str, level: str, *, of_role: bool) -> Iterator[str]:
    """The address of a server with that default isolation, of the role or of the address."""
    if not of_role:
        escaped = level.replace(" ", "%5C%20")
        yield f"{address}?options=-cdefault_transaction_isolation%3D{escaped}"
        return
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"alter role current_user set default_transaction_isolation = '{level}'")
        try:
            yield address
        finally:
            connection.execute("alter role current_user reset default_transaction_isolation")


@pytest.mark.parametrize(
    ("level", "of_role"), [("repeatable read", True), ("repeatable read", False), ("serializable", True)]
)
def test_a_write_that_waited_sees_the_one_that_it_waited_for(
    level: str, of_role: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = address_of("postgres", request, tmp_path)
    with (
        _level(address, level, of_role=of_role) as set_so,
        closing(PostgresStore(set_so)) as store,
        psycopg.connect(address) as other,
        psycopg.connect(address, autocommit=True) as looks,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute(_LOCK)
        erasing = pool.submit(store.erase, "mine", NOW)
        wait_until(lambda: looks.execute(_WAITING).fetchall() == [(1,)])
        other.execute("insert into beamwood_erased values ('sother', %s)", (NOW + 5,))
        other.commit()
        assert erasing.result(30)[1] > NOW + 5
