"""Histories in PostgreSQL: durable, and shared by several servers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from beamwood.errors import InputError
from beamwood.serve.store.protocol import StoreUnavailable
from beamwood.serve.store.readers import Readers
from beamwood.serve.store.sql import TABLES, Cursor, SqlStore

__all__ = ["PostgresStore"]

_Result = TypeVar("_Result")
# "beamwood" as a number. One writer holds the lock at a time, so that sequence numbers grow in commit order. Beside it:
# whether the commit waits for the disk, which is set for a server, a database or a user.
_LOCK = """
select pg_advisory_xact_lock(7092161519),
  current_setting('fsync') = 'on' and current_setting('synchronous_commit') <> 'off'
"""
# Timeout of the server in seconds.
_SECONDS = 2
# Whatever a server, a database or a user is set to: statements after the lock see all writes before it, and the lock of
# a lost writer is released while others still wait for it.
_SESSION = "-c default_transaction_isolation=read\\ committed -c idle_in_transaction_session_timeout={idle}"
# An index serves a condition of its own collation alone, so the column names it: "C" compares bytes, as SQLite does.
_SCHEMA = """
create table if not exists beamwood_events (
  seq bigserial primary key, owner text collate "C" not null, time double precision not null, item text not null,
  type text not null, weight double precision not null, request_id text, identity bytea not null,
  content bytea not null);
create unique index if not exists beamwood_events_identity on beamwood_events (identity);
create index if not exists beamwood_events_owner on beamwood_events (owner, time, seq);
create index if not exists beamwood_events_number on beamwood_events (owner, seq);
create table if not exists beamwood_spent (
  identity bytea primary key, content bytea not null, owner text not null, time double precision not null);
create index if not exists beamwood_spent_owner on beamwood_spent (owner);
create index if not exists beamwood_spent_time on beamwood_spent (time);
"""


# Encodings that keep all text; the second one keeps bytes as they come.
_WHOLE = ("UTF8", "SQL_ASCII")
_COLLATION = """
select collname from pg_attribute join pg_collation on pg_collation.oid = attcollation
where attrelid = 'beamwood_events'::regclass and attname = 'owner'
"""


class PostgresStore(SqlStore):
    """A store for several servers, `durable` unless commits do not wait for the disk; creates missing tables.

    Errors: `InputError` on an invalid address, a database whose encoding lacks characters, and tables of an earlier
    version; `StoreUnavailable` if the server is down, also when the store is opened.
    """

    kind = "postgres"
    durable: bool
    last_seq = "select last_value from beamwood_events_seq_seq where is_called"
    clock = "select extract(epoch from now())::float8"

    def __init__(self, url: str) -> None:
        self._url = url
        self._readers = Readers(lambda: self._connected(autocommit=True))
        self._options = _options_of(url)
        try:
            self._connection = self._connected()
            self._transaction(_made)
        except psycopg.Error as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        super().__init__("postgres")

    def _connected(self, *, autocommit: bool = False) -> psycopg.Connection:
        limit = _SECONDS if autocommit else 5 * _SECONDS
        made = _Connection.connect(
            self._url,
            autocommit=autocommit,
            client_encoding="utf8",
            connect_timeout=_SECONDS,
            tcp_user_timeout=2000 * _SECONDS,
            options=f"{self._options} {_SESSION.format(idle=2000 * _SECONDS)} -c statement_timeout={1000 * limit}",
        )
        made.silence = limit + _SECONDS
        return made

    def _read(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        for attempt in range(3):
            try:
                return self._readers.use(lambda own: own.execute(_in_words(statement), arguments).fetchall())
            except psycopg.Error as error:
                # A lost idle connection does not mean that the server is down.
                lost = isinstance(error, psycopg.OperationalError) and not isinstance(
                    error, psycopg.errors.QueryCanceled
                )
                empty = isinstance(error, psycopg.errors.UndefinedTable)
                self._readers.drop()
                if attempt == 2 or not (lost or empty):
                    raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
                if empty:
                    # The server restarted without its tables.
                    self._writer.call(lambda: self._transaction(_made))
        raise AssertionError

    def _transaction(self, work: Callable[[Cursor], _Result]) -> _Result:
        try:
            try:
                result = work(_Translated(self._begun()))
                self._connection.commit()
            except BaseException:
                # The connection may be the cause, for example if its server has become read-only, and its transaction
                # has failed: further statements of it would too.
                self._connection.close()
                raise
        except psycopg.Error as error:
            raise StoreUnavailable(f"PostgreSQL did not commit: {error}") from error
        return result

    def _begun(self) -> psycopg.Cursor[Any]:
        """A cursor in a transaction that holds the lock; a lost idle connection is replaced."""
        try:
            if not self._connection.closed:
                return self._locked()
        except psycopg.OperationalError:
            self._connection.close()
        self._connection = self._connected()
        cursor = self._locked()
        _made(cursor)
        return cursor

    def _locked(self) -> psycopg.Cursor[Any]:
        cursor = self._connection.cursor().execute(_LOCK)
        ((_, self.durable),) = cursor.fetchall()
        return cursor

    def _contents(self, cursor: Cursor, identities: list[bytes]) -> dict[bytes, bytes]:
        known = (
            f"select identity, content from beamwood_{name} where identity = any(?)" for name in ("events", "spent")
        )
        cursor.execute(" union all ".join(known), (identities, identities))
        return {bytes(identity): bytes(content) for identity, content in cursor.fetchall()}

    def close(self) -> None:
        self._writer.close()
        self._connection.close()
        self._readers.close()


def _made(cursor: Any) -> None:
    """Create missing tables. Errors: `InputError` where the encoding of the database lacks characters, or an index does
    not serve the table that there is.
    """
    cursor.execute("show server_encoding")
    ((encoding,),) = cursor.fetchall()
    if encoding not in _WHOLE:
        raise InputError(
            f"the database has the encoding {encoding}, which lacks characters of ids; use another one, made by: "
            "create database NAME encoding 'UTF8' template template0"
        )
    cursor.execute(_SCHEMA + TABLES)
    cursor.execute(_COLLATION)
    if cursor.fetchall() != [("C",)]:
        raise InputError(
            "the table beamwood_events is of an earlier version, so each history would be read by a scan of it; run: "
            'alter table beamwood_events alter column owner type text collate "C"'
        )


class _Connection(psycopg.Connection[Any]):
    """A connection that is given up after `silence` seconds without an answer: the machine of a server may be lost, or
    stand still, and then no timeout of the server ends a statement.
    """

    silence = float("inf")

    def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
        return super().wait(_answered(gen, self.silence), *arguments, **more)


def _answered(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """The same, with an error after so many seconds in which the socket was not ready."""
    until = time.monotonic() + seconds
    try:
        asked = next(gen)
        while True:
            is_ready = yield asked
            now = time.monotonic()
            if is_ready:
                until = now + seconds
            elif now > until:
                raise psycopg.errors.QueryCanceled(f"no answer within {seconds:g} s")
            asked = gen.send(is_ready)
    except StopIteration as ended:
        return ended.value


class _Translated:
    """A cursor with `?` as placeholder."""

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


def _options_of(url: str) -> str:
    """The options for the server in an address, such as a search_path, else in the environment.

    Errors: an invalid address, or one with several "@". Nothing is quoted, as it may be part of a password.
    """
    given: Mapping[str, Any] | None = None
    with suppress(psycopg.ProgrammingError):
        given = psycopg.conninfo.conninfo_to_dict(url)
    if given is None or url.partition("?")[0].count("@") > 1:
        raise InputError(
            "the address of PostgreSQL is invalid; use postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and "
            "escape characters of a password: %40 for @, %2F for / and %25 for %"
        )
    return str(given.get("options") or os.environ.get("PGOPTIONS", ""))
