"""A coroutine whose first step runs at once: often it completes without waiting."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

__all__ = ["Begun"]

_NOTHING = object()


class Begun(Coroutine[Any, Any, Any]):
    """`done`: it ended with `value` in its first step. Otherwise it is awaited, or a task runs the rest of it.

    It is a coroutine itself, as a task that is cancelled before it ran any of the rest has to end what was begun.
    """

    __slots__ = ("_coroutine", "_waits_for", "done", "value")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.value: Any = None
        try:
            self._waits_for, self.done = coroutine.send(None), False
        except StopIteration as ended:
            self.value, self.done = ended.value, True

    def send(self, value: Any) -> Any:
        """Where a task goes on; the first time that is at what the first step waits for."""
        if self.done:
            raise StopIteration(self.value)
        waits_for, self._waits_for = self._waits_for, _NOTHING
        return self._coroutine.send(value) if waits_for is _NOTHING else waits_for

    def throw(self, *error: Any) -> Any:
        """An error of what it waits for, or its cancellation."""
        self._waits_for = _NOTHING
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it where it is."""
        self._coroutine.close()

    def __await__(self) -> Begun:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __iter__(self) -> Begun:
        return self
