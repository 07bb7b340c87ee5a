"""One process at a time in a folder: the lock (`flock`) ends with the process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from beamwood.errors import InputError

__all__ = ["only_one"]

_LOCKS = Path("/proc/locks")


@contextmanager
def only_one(folder: Path, fix: str) -> Iterator[None]:
    """Hold `folder`, which exists, against other processes.

    Errors: `InputError` that names the process that holds it, or why it cannot be opened, and `fix`.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder} cannot be opened ({error.strerror}); {fix}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder} is in use by {_holder(descriptor)}; {fix}") from None
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """Who holds the lock of an open folder, as the kernel lists it: "process 4711"."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields and "->" not in fields:
                return f"process {fields[fields.index(place) - 1]}"
    return "another process"
