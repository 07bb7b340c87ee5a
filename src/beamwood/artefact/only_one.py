"""One process at a time in a folder: the lock ends with the process, however that ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from beamwood.errors import InputError
from beamwood.system import hold_path

__all__ = ["only_one"]

_LOCKS = Path("/proc/locks")


@contextmanager
def only_one(folder: Path, fix: str) -> Iterator[None]:
    """Hold `folder`, which exists, against other processes.

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
    """Who holds the lock of a folder, where the kernel lists it: "process 4711"."""
    if sys.platform != "linux":
        return "another process"
    status = folder.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields and "->" not in fields:
                return f"process {fields[fields.index(place) - 1]}"
    return "another process"
