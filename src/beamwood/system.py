"""What operating systems do each in their own way: processors, what is on the disk, and locks between processes.

A lock ends with whatever ends its process. Linux and macOS lock the folder itself; Windows, which can open no folder,
locks a file beside it, which goes with the lock.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["Held", "address_limit", "hold_file", "hold_path", "processors", "sync"]

# Windows keeps others from reading what is locked: a byte that no file has.
_FAR = 2**30


class Held:
    """A lock, until it is closed; `descriptor` is that of what is locked."""

    def __init__(self, descriptor: int, beside: Path | None = None) -> None:
        self.descriptor, self._beside = descriptor, beside

    def close(self) -> None:
        """Let others have it."""
        os.close(self.descriptor)
        if self._beside is not None:
            with suppress(OSError):
                self._beside.unlink()


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def address_limit() -> int | None:
    """The bytes of address space that this process may take (ulimit -v), None without such a limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk; Windows has nothing to wait for of a folder."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hold_path(path: Path, *, wait: bool = False, unlocked: bool = False) -> Held:
    """Hold a folder or a file. Errors: `BlockingIOError` where another process does; any other `OSError` of the system.

    `unlocked`: on a file system without locks it is held by nothing.
    """
    if sys.platform == "win32":
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there")
        beside = path.with_name(f"{path.name}.lock")
        held = Held(os.open(beside, os.O_RDWR | os.O_CREAT), beside)
    else:
        held = Held(os.open(path, os.O_RDONLY))
    try:
        hold_file(held.descriptor, wait=wait)
    except OSError as error:
        if not unlocked or isinstance(error, BlockingIOError):
            os.close(held.descriptor)
            raise
    return held


def hold_file(descriptor: int, *, wait: bool = False) -> None:
    """Hold what is open. Errors: `BlockingIOError` where another process does; any other `OSError` of the system."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, "another process holds it") from None
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
