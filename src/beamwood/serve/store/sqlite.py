"""Histories in one SQLite file: write-ahead log, synchronous=FULL, group commit; a single writing process."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from beamwood.artefact.manifest import check_outside
from beamwood.errors import InputError
from beamwood.serve.store.protocol import Retention, StoreUnavailable
from beamwood.serve.store.readers import Readers
from beamwood.serve.store.sql import TABLES, Cursor, SqlStore, in_portions
from beamwood.system import hold_file

__all__ = ["SqliteStore"]

_Result = TypeVar("_Result")
# The last number of an owner is read with each history, by the index `beamwood_events_number`: SQLite ends each of its
# entries with the number of the row, seq.
_SCHEMA = """
create table if not exists beamwood_events (
  seq integer primary key autoincrement, owner text not null, time real not null, item text not null,
  type text not null, weight real not null, request_id text, identity blob not null, content blob not null);
create unique index if not exists beamwood_events_identity on beamwood_events (identity);
create index if not exists beamwood_events_owner on beamwood_events (owner, time, seq);
create index if not exists beamwood_events_number on beamwood_events (owner);
create table if not exists beamwood_spent (
  identity blob primary key, content blob not null, owner text not null, time real not null);
create index if not exists beamwood_spent_owner on beamwood_spent (owner);
create index if not exists beamwood_spent_time on beamwood_spent (time);
"""


class SqliteStore(SqlStore):
    """A durable store for a single server, without a database service.

    `read_only` opens it while a server runs, as the export does. Errors: `InputError` if another process holds the lock
    (the message has its process id), the folder is missing, or the file is not a SQLite database. While the path names
    another file, the store is unavailable.
    """

    kind, durable = "sqlite", True
    last_seq = "select seq from sqlite_sequence where name = 'beamwood_events'"

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        # Links are resolved, so that a file has one lock.
        self._path, self._lock_file = Path(path).resolve(), -1
        if read_only and not os.path.exists(self._path):
            raise InputError(f"{path} does not exist; give the file of a server's store")
        if read_only and not os.access(self._path, os.R_OK):
            raise InputError(f"{path} is for its owner alone, as it contains histories; run this as the service's user")
        if not os.path.isdir(self._path.parent):
            raise InputError(f"the folder of {path} does not exist; create it, or give another file")
        self._readers = Readers(lambda: self._connected("ro"))
        if not read_only:
            check_outside(self._path)
            self._lock_file = _locked(self._path)
            _made_private(self._path)
        try:
            self._connection = self._connected("ro" if read_only else "rwc")
            if not read_only:
                self._prepare()
        except sqlite3.DatabaseError as error:
            self._unlock()
            fix = "free some space on its disk" if "full" in str(error) else "give another file"
            raise InputError(f"{path} cannot be opened as a store ({error}); {fix}") from error
        self._file = self._there()
        super().__init__("sqlite")

    def _connected(self, mode: str) -> sqlite3.Connection:
        made = sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}", uri=True, timeout=5.0, isolation_level=None, check_same_thread=False
        )
        made.execute("pragma query_only = on" if mode == "ro" else "pragma synchronous = full")
        return made

    def _prepare(self) -> None:
        self._connection.execute("pragma auto_vacuum = incremental")
        self._connection.execute("pragma journal_mode = wal")
        self._connection.executescript(_SCHEMA + TABLES)

    def _there(self) -> tuple[int, int] | None:
        """Device and inode of the file at the path, None if there is no file."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """Errors: the path names another file or none, so that writes to the open file would be lost."""
        if self._there() != self._file:
            message = "was moved, removed or replaced while in use; restore it, or stop the service first"
            raise StoreUnavailable(f"{self._path.name} {message}")

    def _read(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._check_file()
        try:
            return self._readers.use(lambda own: own.execute(statement, arguments).fetchall())
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path.name} cannot be read: {error}") from error

    def _transaction(self, work: Callable[[Cursor], _Result]) -> _Result:
        self._check_file()
        cursor = self._connection.cursor()
        try:
            cursor.execute("begin immediate")
            try:
                result = work(cursor)
                cursor.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    cursor.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path.name} cannot be written: {error}") from error
        return result

    def _contents(self, cursor: Cursor, identities: list[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for some in in_portions(identities):
            marks = ", ".join("?" * len(some))
            for table in ("events", "spent"):
                cursor.execute(f"select identity, content from beamwood_{table} where identity in ({marks})", some)
                found |= dict(cursor.fetchall())
        return found

    def compact(self, retention: Retention, now: float, owners: int = 500) -> int:
        gone = super().compact(retention, now, owners)
        if gone:
            vacuum = "pragma incremental_vacuum(200)"
            self._writer.call(lambda: self._transaction(lambda cursor: cursor.execute(vacuum).fetchall()))
        return gone

    def close(self) -> None:
        self._writer.close()
        self._connection.close()
        self._readers.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1


def _made_private(path: Path) -> None:
    """Create a missing file for its owner alone; SQLite gives its companions the same mode."""
    # What cannot be created SQLite reports.
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _locked(path: Path) -> int:
    """The descriptor of the locked lock file, released when the process ends; the file contains the process id."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(
            f"{lock} cannot be written ({error.strerror}); give another path with --store sqlite:PATH"
        ) from error
    try:
        hold_file(descriptor)
    except OSError:
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise InputError(
            f"{path} is in use by process {holder}; stop it, give another file, or use Redis or PostgreSQL"
        ) from None
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor
