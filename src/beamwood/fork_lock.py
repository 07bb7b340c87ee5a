"""A lock that forked processes find free, and what it guards whole."""

from __future__ import annotations

import os
import sys
import threading
import weakref

__all__ = ["ForkLock"]


class ForkLock:
    """A lock for which a fork waits: in the child, a thread that held it could never release it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self.renew()
        _ALL.add(weakref.ref(self, _ALL.discard))

    def renew(self) -> None:
        """Become free, whoever held it."""
        # One that a thread may take twice, as a signal's handler may fork.
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


_ALL: set[weakref.ref[ForkLock]] = set()
# Of several threads that fork, one at a time takes the locks.
_FORKS = ForkLock()
_taken: list[ForkLock] = []


def _take() -> None:
    _FORKS.__enter__()
    for reference in list(_ALL):
        lock = reference()
        if lock is not None:
            lock.__enter__()
            _taken.append(lock)


def _release() -> None:
    while _taken:
        _taken.pop().__exit__()
    _FORKS.__exit__()


def _renew() -> None:
    """In the child, where a lock may also have been made and taken after the others."""
    _taken.clear()
    for reference in list(_ALL):
        lock = reference()
        if lock is not None:
            lock.renew()


if sys.platform != "win32":
    os.register_at_fork(before=_take, after_in_parent=_release, after_in_child=_renew)
