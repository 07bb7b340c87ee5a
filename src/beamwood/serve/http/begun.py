"""A coroutine whose first step runs at once: often it completes without waiting."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["Begun"]


class Begun:
    """`done`: it ended with `value` in its first step. Otherwise it is awaited within the same task."""

    __slots__ = ("_coroutine", "_waits_for", "done", "value")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.value: Any = None
        try:
            self._waits_for, self.done = coroutine.send(None), False
        except StopIteration as ended:
            self.value, self.done = ended.value, True

    def __await__(self) -> Generator[Any, Any, Any]:
        if self.done:
            return self.value
        waits_for = self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(sent)
            except StopIteration as ended:
                return ended.value
