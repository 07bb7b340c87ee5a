"""SIGINT and SIGTERM, deferred until a step is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

__all__ = ["SAVING", "InterruptGuard", "Interrupted"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


SAVING = threading.Event()
"""Set while an interrupted run saves its state: the command line then waits longer before it ends the process."""


class Interrupted(BaseException):
    """Training was interrupted; the message says what was saved and how to resume.

    It is no `Exception`, so that a program that goes on after a failed fit ends. Typer would drop the message of a
    KeyboardInterrupt.
    """


class InterruptGuard:
    """A context in which the first signal only sets `requested`, and the second one interrupts at once.

    Inside `with guard.at_once():` (validation, which changes no training state) the first one interrupts as well. In
    threads other than the main one, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._interruptible = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        SAVING.clear()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested or self._interruptible:
            self.requested = True
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A context in which a signal interrupts at once instead of after the step."""
        self._interruptible = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._interruptible = False
