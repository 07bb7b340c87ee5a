"""Ctrl-C and SIGTERM, kept until a step is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

__all__ = ["ANSWERING", "InterruptGuard", "Interrupted"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


ANSWERING = threading.Event()
"""Set while what was asked to stop saves what it did, which may take longer than whoever waits is told."""


class Interrupted(Exception):
    """Training was asked to stop; the message says what was kept and how to resume."""


class InterruptGuard:
    """While entered, the first signal only sets `requested`; the second one interrupts at once.

    Inside `with guard.at_once():` (validation, which changes nothing that is trained) the first one interrupts too.
    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._interruptible = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        ANSWERING.clear()
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
        """A block in which a signal interrupts without waiting for the end of a step."""
        self._interruptible = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._interruptible = False
