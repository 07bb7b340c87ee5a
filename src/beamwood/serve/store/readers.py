"""One read connection per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Readers"]


class Closable(Protocol):
    def close(self) -> None: ...


class _OfThread(threading.local):
    connection: Any = None


_Connection = TypeVar("_Connection", bound=Closable)


class Readers(Generic[_Connection]):
    """The read connections of all threads, each created by `connect` at its thread's first use.

    Those of ended threads are closed when another is created.
    """

    def __init__(self, connect: Callable[[], _Connection]) -> None:
        self._connect, self._all = connect, dict[threading.Thread, _Connection]()
        self._local, self._guard = _OfThread(), threading.Lock()

    def own(self) -> _Connection:
        """The connection of this thread."""
        own: _Connection | None = self._local.connection
        if own is None:
            own = self._local.connection = self._connect()
            with self._guard:
                ended = [thread for thread in self._all if not thread.is_alive()]
                left = [self._all.pop(thread) for thread in ended]
                self._all[threading.current_thread()] = own
            for connection in left:
                connection.close()
        return own

    def drop(self) -> None:
        """Close the connection of this thread, if any; the next use creates another."""
        own: _Connection | None = self._local.connection
        if own is not None:
            self._local.connection = None
            with self._guard:
                self._all.pop(threading.current_thread(), None)
            own.close()

    def close(self) -> None:
        """Close all connections."""
        with self._guard:
            for connection in self._all.values():
                connection.close()
