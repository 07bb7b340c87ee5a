"""Histories in PostgreSQL: durable, shared by a fleet, beside the user's own tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from beamwood.errors import InputError
from beamwood.serve.store.protocol import StoreUnavailable
from beamwood.serve.store.sql import Cursor, SqlStore

__all__ = ["PostgresStore"]

_Result = TypeVar("_Result")
# "beamwood" as a number: one writer at a time, so that numbers grow in the order of commits.
_LOCK = "select pg_advisory_xact_lock(7092161519)"
_SCHEMA = """
create table if not exists beamwood_events (
  seq bigserial primary key, owner text not null, time double precision not null, item text not null,
  type text not null, weight double precision not null, request_id text, identity bytea not null,
  content bytea not null);
create unique index if not exists beamwood_events_identity on beamwood_events (identity);
create index if not exists beamwood_events_owner on beamwood_events (owner collate "C", time, seq);
create table if not exists beamwood_erased (owner text primary key, time double precision not null);
create table if not exists beamwood_documents (name text primary key, value text not null);
create table if not exists beamwood_answers (
  request_id text primary key, owner text, time double precision not null, category text not null, body text not null,
  hit integer not null default 0);
create index if not exists beamwood_answers_owner on beamwood_answers (owner);
create index if not exists beamwood_answers_time on beamwood_answers (time);
create table if not exists beamwood_tallies (
  category text, name text, count bigint not null, primary key (category, name));
"""


class PostgresStore(SqlStore):
    """The durable store of a fleet; makes its tables where they are missing.

    Errors: `InputError` on an address that cannot be read; a server that is down is `StoreUnavailable`, at the opening
    too.
    """

    kind, durable = "postgres", True
    last_seq = "select last_value from pg_sequences where sequencename = 'beamwood_events_seq_seq'"

    def __init__(self, url: str, *, seconds: float = 2.0) -> None:
        self._url, self._seconds = url, seconds
        self._local, self._readers, self._guard = _Local(), list[psycopg.Connection](), threading.Lock()
        self._open = True
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            hint = "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            raise InputError(f"the address of PostgreSQL cannot be read ({error}); {hint}") from error
        try:
            self._connection = self._connected()
            self._transaction(lambda cursor: cursor.execute(_SCHEMA))
        except psycopg.Error as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        super().__init__("postgres")

    def _connected(self, *, autocommit: bool = False) -> psycopg.Connection:
        wait = int(self._seconds * 1000)
        return psycopg.connect(
            self._url,
            autocommit=autocommit,
            connect_timeout=max(2, round(self._seconds)),
            tcp_user_timeout=2 * wait,
            options=f"-c statement_timeout={wait if autocommit else 5 * wait}",
        )

    def _read(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        for attempt in (1, 2):
            try:
                return self._reader().execute(_in_words(statement), arguments).fetchall()
            except psycopg.Error as error:
                # A connection that broke while nobody used it says nothing of the server.
                lost = isinstance(error, psycopg.OperationalError) and not isinstance(
                    error, psycopg.errors.QueryCanceled
                )
                self._drop_reader()
                if not lost or attempt == 2:
                    raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        raise AssertionError

    def _reader(self) -> psycopg.Connection:
        own = self._local.connection
        if own is None:
            own = self._local.connection = self._connected(autocommit=True)
            with self._guard:
                self._readers.append(own)
        return own

    def _drop_reader(self) -> None:
        own = self._local.connection
        if own is not None:
            self._local.connection = None
            with self._guard:
                self._readers.remove(own)
            own.close()

    def _transaction(self, work: Callable[[Cursor], _Result]) -> _Result:
        try:
            cursor = self._begun()
            try:
                result = work(_Translated(cursor))
                self._connection.commit()
            except BaseException:
                if not self._connection.closed:
                    self._connection.rollback()
                raise
        except psycopg.Error as error:
            raise StoreUnavailable(f"PostgreSQL did not keep it: {error}") from error
        return result

    def _begun(self) -> psycopg.Cursor[Any]:
        """A cursor in a transaction that holds the lock; a connection that broke while idle is made anew."""
        try:
            if not self._connection.closed:
                return self._connection.cursor().execute(_LOCK)
        except psycopg.OperationalError:
            self._connection.close()
        self._connection = self._connected()
        return self._connection.cursor().execute(_LOCK)

    def _contents(self, cursor: Cursor, identities: list[bytes]) -> dict[bytes, bytes]:
        cursor.execute("select identity, content from beamwood_events where identity = any(?)", (identities,))
        return {bytes(identity): bytes(content) for identity, content in cursor.fetchall()}

    def close(self) -> None:
        if not self._open:
            return
        self._writer.close()
        self._open = False
        with self._guard:
            for connection in (self._connection, *self._readers):
                connection.close()


class _Local(threading.local):
    """The connection of each thread that reads."""

    connection: psycopg.Connection | None = None


class _Translated:
    """A cursor that takes `?` as placeholder."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, statement: str, arguments: Sequence[Any] = ()) -> None:
        self._cursor.execute(_in_words(statement), arguments or None)

    def executemany(self, statement: str, arguments: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(_in_words(statement), arguments)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._cursor.fetchall()


def _in_words(statement: str) -> Any:
    return statement.replace("?", "%s")
