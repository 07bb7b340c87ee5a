"""One read connection per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from beamwood.serve.store.protocol import StoreUnavailable

__all__ = ["Readers"]


class Closable(Protocol):
    def close(self) -> None: ...


_Connection = TypeVar("_Connection", bound=Closable)
_Result = TypeVar("_Result")


class _OfThread(Generic[_Connection]):
    """The connection of one thread; `lock` is held while it is used or closed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: _Connection | None = None


class Readers(Generic[_Connection]):
    """The read connections of all threads, each created by `connect` at its thread's first use.

    Those of ended threads are closed when another is created. A connection in use is never closed: a driver may crash
    the process.
    """

    def __init__(self, connect: Callable[[], _Connection]) -> None:
        self._connect, self._all = connect, dict[threading.Thread, _OfThread[_Connection]]()
        self._guard, self._open = threading.Lock(), True

    def use(self, work: Callable[[_Connection], _Result]) -> _Result:
        """The result of `work` with the connection of this thread. Errors: `StoreUnavailable` after `close`."""
        own = self._own()
        with own.lock:
            if not self._open:
                raise StoreUnavailable("the store is closed")
            if own.connection is None:
                own.connection = self._connect()
            return work(own.connection)

    def drop(self) -> None:
        """Close the connection of this thread, if any; the next use creates another."""
        _close(self._own())

    def close(self) -> None:
        """Close all connections, each after its current use; later uses are refused."""
        self._open = False
        with self._guard:
            for each in self._all.values():
                _close(each)

    def _own(self) -> _OfThread[_Connection]:
        own = self._all.get(threading.current_thread())
        if own is None:
            own = _OfThread()
            with self._guard:
                ended = [thread for thread in self._all if not thread.is_alive()]
                left = [self._all.pop(thread) for thread in ended]
                self._all[threading.current_thread()] = own
            for each in left:
                _close(each)
        return own


def _close(each: _OfThread[Any]) -> None:
    with each.lock:
        connection, each.connection = each.connection, None
        if connection is not None:
            connection.close()
