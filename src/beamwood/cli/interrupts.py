"""SIGINT is answered within two seconds, at any time, by one line with what was saved and how to continue.

Python handles a signal between two of its instructions, which a long native call delays. So a thread watches: if the
command has not ended after `PATIENCE` seconds, it prints the line and ends the process. That is as safe as a kill:
folders and files are renamed into place, and the next run removes leftovers. A training or search that is saving its
state gets the time it needs, and a second SIGINT ends it at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from beamwood.training.interrupt import SAVING, Interrupted

__all__ = ["NOTHING", "PATIENCE", "Watch", "begin", "claimed", "interrupted", "is_of_stop", "keeping"]

PATIENCE = 1.2
"""Seconds that a command has to end by itself."""

_STOPS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "nothing was saved; run it again"
_said = threading.Lock()
_kept: list[Callable[[], str]] = []


def interrupted() -> str:
    """The line of an interrupted command: what was saved, and how to continue."""
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
    """Start of a command, for which no line was printed yet."""
    if _said.locked():
        _said.release()


def claimed() -> bool:
    """Whether the caller is the first, and so prints the line."""
    return _said.acquire(blocking=False)


@contextmanager
def keeping(words: Callable[[], str]) -> Iterator[None]:
    """A context in which `words` is the line of an interrupted command.

    Errors: `Interrupted` with it on SIGINT.
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
    """A duplicate descriptor of stderr; of the null device where stderr is closed."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


class Watch:
    """The thread that ends a command which does not end by itself; created by the main thread.

    It writes to the stderr of its creation: while a log is read, output of libraries there is held back.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._words = as_json, _stderr()
        self._signals, self._told = os.pipe()
        os.set_blocking(self._told, False)
        signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def _watch(self) -> None:
        self._await(None)
        # Once the line is printed the state is saved, and only the interpreter's own end takes long.
        if not self._await(PATIENCE) and SAVING.is_set() and not _said.locked():
            self._write("stopping: what was done is being saved; Ctrl-C once more ends at once")
            self._await(None)
        if claimed():
            self._write(f"beamwood: {interrupted()}")
            if self._as_json:
                with suppress(OSError):
                    os.write(1, f"{json.dumps({'error': interrupted(), 'exit': 130})}\n".encode())
        else:
            # Who claimed the line may still be printing.
            self._await(PATIENCE)
        os._exit(130)

    def _write(self, line: str) -> None:
        with suppress(OSError):
            os.write(self._words, f"{line}\n".encode())

    def _await(self, seconds: float | None) -> bool:
        """Whether a terminating signal came in that time."""
        while True:
            if not select.select([self._signals], [], [], seconds)[0]:
                return False
            if any(number in _STOPS for number in os.read(self._signals, 1)):
                return True
