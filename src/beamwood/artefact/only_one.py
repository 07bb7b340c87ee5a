"""A lock on a folder for one process at a time; it ends with the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from beamwood.errors import InputError
from beamwood.system import hold_path

__all__ = ["only_one"]


@contextmanager
def only_one(folder: Path, fix: str) -> Iterator[None]:
    """Lock the existing `folder` against other processes.

    Errors: `InputError` that names the process that holds it, or why it cannot be opened, and `fix`.
    """
    try:
        held = hold_path(folder)
    except BlockingIOError:
        raise InputError(f"{folder} is in use by {_holder(folder)}; {fix}") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be opened ({error.strerror}); {fix}") from error
    try:
        yield
    finally:
        held.close()


def _holder(folder: Path) -> str:
    """The process that holds the lock of a folder, as "process 4711", where the kernel lists it."""
    listed, status = "", folder.stat()
    if sys.platform == "linux":
        with suppress(OSError):
            listed = Path("/proc/locks").read_text()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in listed.splitlines():
        fields = line.split()
        if "FLOCK" in fields and place in fields and "->" not in fields:
            return f"process {fields[fields.index(place) - 1]}"
    return "another process"
