"""Ctrl-C is answered within two seconds, wherever it comes, by one line that says what is kept and how to go on.

Python tells of a signal between two of its own instructions, which a long native call holds up. So a thread watches:
where the command has not ended by itself after `PATIENCE` seconds it says the line and ends the process. That is safe
as a kill is: folders and files take their places whole, and what was begun is removed by the next run. A training or a
search that is saving what it did has the time it needs, and a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from beamwood.training.interrupt import ANSWERING, Interrupted

__all__ = ["NOTHING", "PATIENCE", "Watch", "begin", "claimed", "interrupted", "is_of_stop", "keeping"]

PATIENCE = 1.2
"""Seconds that a command may take to end by itself."""

_STOPS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "nothing was saved; run it again"
_said = threading.Lock()
_kept: list[Callable[[], str]] = []


def interrupted() -> str:
    """What an interrupted command says: what is kept, and how to go on."""
    return f"interrupted; {_kept[-1]() if _kept else NOTHING}"


def is_of_stop(error: BaseException | None) -> bool:
    """Whether a signal that stops is behind an error: libraries make others of it, as polars does, which panics."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        if type(error).__name__ == "PanicException" and "KeyboardInterrupt" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def begin() -> None:
    """A command begins, of which nothing has been said."""
    if _said.locked():
        _said.release()


def claimed() -> bool:
    """Whether whoever asks is the first, and so says it."""
    return _said.acquire(blocking=False)


@contextmanager
def keeping(words: Callable[[], str]) -> Iterator[None]:
    """Within it, `words` say what is kept and how to go on when the command is interrupted.

    Errors: `Interrupted` with them for Ctrl-C.
    """
    _kept.append(words)
    try:
        yield
    except Interrupted:
        raise
    except BaseException as error:
        if is_of_stop(error):
            raise Interrupted(interrupted()) from None
        raise
    finally:
        _kept.pop()


def _stderr() -> int:
    """A descriptor of its own; of nothing where stderr is closed."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


class Watch:
    """The thread that ends a command which does not end by itself; made by the main thread.

    It writes where stderr was then: while a log is read, what libraries print there is held back.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._words = as_json, _stderr()
        self._signals, self._told = os.pipe()
        os.set_blocking(self._told, False)
        signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def _watch(self) -> None:
        self._await(None)
        if not self._await(PATIENCE) and ANSWERING.is_set():
            self._write("stopping: what was done is being saved; Ctrl-C once more ends at once")
            self._await(None)
        if claimed():
            self._write(f"beamwood: {interrupted()}")
            if self._as_json:
                with suppress(OSError):
                    os.write(1, f"{json.dumps({'error': interrupted(), 'exit': 130})}\n".encode())
        os._exit(130)

    def _write(self, line: str) -> None:
        with suppress(OSError):
            os.write(self._words, f"{line}\n".encode())

    def _await(self, seconds: float | None) -> bool:
        """Whether a signal came that stops, in that time."""
        while True:
            if not select.select([self._signals], [], [], seconds)[0]:
                return False
            if any(number in _STOPS for number in os.read(self._signals, 1)):
                return True
