"""Output of a command: standard streams that may be closed, full or not UTF-8, and pages."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import typer

from beamwood.cli.interrupts import claimed
from beamwood.errors import InputError
from beamwood.steps import tell

__all__ = [
    "check_page",
    "finish",
    "on_one_line",
    "prepare_streams",
    "print_json",
    "say",
    "silence",
    "tell_warning",
    "writing_to",
]


class _Heedless(io.TextIOWrapper):
    """A stream for people: when its reader leaves, the command continues silently."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            silence(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            silence(self)


def prepare_streams() -> None:
    """Make stdout and stderr accept every character, and stderr outlive its reader; closed ones lead to the null
    device.
    """
    # Otherwise the next opened file would get the number of a closed stream.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    raw = io.BufferedWriter(io.FileIO(sys.stderr.fileno(), "w", closefd=False))
    sys.stderr = _Heedless(raw, sys.stderr.encoding, "backslashreplace", line_buffering=True)


def tell_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of `warnings.showwarning`: what is meant for users is one line, without a place in the program."""
    if category is UserWarning and file is None:
        tell(" ".join(str(message).split()))
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file or sys.stderr, end="")


def silence(stream: TextIO) -> None:
    """Redirect a stream to the null device, also at exit."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def say(text: str, stream: TextIO) -> None:
    """Print a line, ignoring a closed stream."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        silence(stream)


def on_one_line(value: object) -> str:
    """An id as text of one line: control characters escaped, which would break the line or steer the terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: ascii(found[0])[1:-1], str(value))


def print_json(document: Any) -> None:
    """Print the single JSON document of a command; NaN and infinity, which JSON lacks, are a bug."""
    print(json.dumps(document, indent=2, default=str, allow_nan=False))


def check_page(path: str) -> None:
    """Errors: a page that cannot be rendered or written there; to be called before its content is computed."""
    from beamwood.artefact.manifest import check_outside
    from beamwood.artefact.replace import check_writable
    from beamwood.report.page import check_installed

    check_installed()
    target = Path(path)
    if os.path.isdir(target):
        raise InputError(f"--html {path} is a folder; name a file in it")
    check_outside(target)
    if os.path.exists(target) and not (os.path.isfile(target) and _is_page(target)):
        raise InputError(
            f"--html {path} exists and is not a page of beamwood, so it is not replaced; name another file"
        )
    # Last, as it writes beside what a link leads to.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        check_writable(target)
    except OSError as error:
        raise InputError(f"--html {path} cannot be written ({error}); name another file") from None


def _is_page(path: Path) -> bool:
    from beamwood.report.page import MARK

    with path.open("rb") as file:
        return MARK.encode() in file.read(200)


def finish(
    document: dict[str, Any],
    show: Callable[[], None],
    *,
    as_json: bool,
    page: tuple[str, str] | None = None,
    error: str | None = None,
    stopped: str | None = None,
) -> None:
    """Write the page, its path and its text, and print the result: as JSON, or by `show`.

    An error ends the command with exit code 2, and so does a page that cannot be written; `stopped`, the line of an
    interrupt, ends it with 130. The result is printed first, unless it has no reader.
    """
    unwritten = None if page is None else _unwritten(*page)
    error = "; ".join(each for each in (stopped, error, unwritten) if each is not None) or None
    code = 2 if stopped is None else 130
    if error is None:
        print_json(document) if as_json else show()
        return
    # Claimed first, as the watch prints a document, too.
    if stopped is None or claimed():
        try:
            print_json(document | {"error": error, "exit": code}) if as_json else show()
            sys.stdout.flush()
        except BrokenPipeError:
            silence(sys.stdout)
        finally:
            say(f"beamwood: {error}", sys.stderr)
    raise typer.Exit(code)


def _unwritten(path: str, text: str) -> str | None:
    """Write a page atomically, and report it on stderr; returns the error, if any."""
    try:
        with writing_to(Path(path)) as fresh:
            fresh.write_text(text, encoding="utf-8")
    except InputError as error:
        return " ".join(str(error).split())
    tell(f"wrote {path}")
    return None


@contextmanager
def writing_to(target: Path) -> Iterator[Path]:
    """A context with a temporary name for a file that is renamed into place at the end. Errors: it cannot be written;
    an existing file stays.
    """
    from beamwood.artefact.replace import whole_file

    try:
        with whole_file(target) as fresh:
            yield fresh
    except OSError as error:
        raise InputError(f"{target} cannot be written ({error}); fix that, or name another file") from error
