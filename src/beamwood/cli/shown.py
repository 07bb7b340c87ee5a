"""Display of a command's steps on stderr: a live line in a terminal, occasional plain lines elsewhere.

A step is displayed once it takes over two seconds, with the estimated rest if known. The line has no colour. With
`--verbose` each step reports its time at its end; with `--quiet` only errors are printed.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from beamwood.steps import Step, heard_by

__all__ = ["StepDisplay", "duration", "show_steps"]

# Seconds: of a step before it is displayed, between two updates, before the first plain line and between others.
_LONG, _LOOK, _FIRST_LINE, _BETWEEN = 2.0, 0.25, 5.0, 30.0
_CLEAR = "\r\x1b[2K"


def duration(seconds: float) -> str:
    """Seconds in words: "8 s", "3 min 20 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def step_in_words(step: Step) -> str:
    """A step in progress, for people."""
    counted = "" if step.total is None else f", {step.done:,.0f} of {step.total:,.0f}"
    left = "" if step.left is None else f", about {duration(step.left)} left"
    return f"{step.words}{counted}: {duration(step.seconds)}{left}"


class StepDisplay:
    """Shows the outermost step in progress; see `beamwood.steps.Listener`."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet, self._verbose, self._stream = quiet, verbose, stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._steps: list[Step] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self._watch: threading.Thread | None = None
        self._painted, self._next_line = False, _FIRST_LINE

    def began(self, step: Step) -> None:
        """One more step, within those that go on."""
        if self.quiet:
            return
        with self._lock:
            if not self._steps:
                self._next_line = _FIRST_LINE
            self._steps.append(step)
        if self._watch is None:
            self._watch = threading.Thread(target=self._look, daemon=True)
            self._watch.start()

    def ended(self, step: Step) -> None:
        """A step has ended."""
        if self.quiet:
            return
        with self._lock:
            self._steps.remove(step)
            self._clear()
            if self._verbose and not self._steps:
                self._write(f"{step.words}: {step.seconds:.1f} s\n")

    def told(self, line: str) -> None:
        """Print a separate line to the program's stderr."""
        if self.quiet:
            return
        with self._lock:
            self._clear()
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop the display."""
        self._over.set()
        if self._watch is not None:
            self._watch.join()
        with self._lock:
            self._clear()

    def _look(self) -> None:
        while not self._over.wait(_LOOK):
            with self._lock:
                self._show()

    def _show(self) -> None:
        step = self._steps[0] if self._steps else None
        if step is None or step.seconds < _LONG:
            return
        if self._live:
            self._painted = True
            self._write(_CLEAR + step_in_words(step)[: shutil.get_terminal_size().columns - 1])
        elif step.seconds >= self._next_line:
            self._next_line = step.seconds + _BETWEEN
            self._write(step_in_words(step) + "\n")

    def _clear(self) -> None:
        if self._painted:
            self._painted = False
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        # The reader may have left.
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


@contextmanager
def show_steps(*, quiet: bool, verbose: bool) -> Iterator[None]:
    """A context in which the steps of the package are displayed on stderr."""
    with _own_stderr() as stream:
        shown = StepDisplay(stream, quiet=quiet, verbose=verbose)
        try:
            with heard_by(shown):
                yield
        finally:
            shown.close()


@contextmanager
def _own_stderr() -> Iterator[TextIO]:
    """A duplicate of stderr, as the program's is held back while native libraries read."""
    try:
        number = os.dup(2) if sys.stderr.fileno() == 2 else None
    except (OSError, ValueError):
        number = None
    if number is None:
        yield sys.stderr
        return
    stream = os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")
    try:
        yield stream
    finally:
        with suppress(OSError):
            stream.close()
