"""Operating system differences: processor counts, syncing to disk, and locks between processes.

A lock ends with its process. Linux and macOS lock the folder itself; Windows, where a folder cannot be opened, locks a
file beside it, which is removed with the lock.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["Held", "address_limit", "allow_files", "hold_file", "hold_path", "processors", "sync"]

# Windows blocks reads of a locked range, so a byte beyond the end of any file is locked.
_FAR = 2**30


class Held:
    """A lock, held until it is closed; `descriptor`: of the locked file or folder."""

    def __init__(self, descriptor: int, beside: Path | None = None) -> None:
        self.descriptor, self._beside = descriptor, beside

    def close(self) -> None:
        """Release the lock."""
        os.close(self.descriptor)
        if self._beside is not None:
            with suppress(OSError):
                self._beside.unlink()


def processors() -> int:
    """The number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def address_limit() -> int | None:
    """The limit of this process's address space in bytes (ulimit -v), None without one."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def allow_files(count: int) -> int:
    """Raise the limit of open files (ulimit -n) to `count`, as far as the system permits; return how many may be
    open, at most `count`.
    """
    if sys.platform == "win32":
        return count
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    now, most = (count if each == resource.RLIM_INFINITY else min(each, count) for each in (soft, hard))
    if now < most:
        # The kernel may permit less than the hard limit.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            now = most
    return now


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk; on Windows folders need none."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hold_path(path: Path, *, wait: bool = False, unlocked: bool = False) -> Held:
    """Lock a folder or a file. Errors: `BlockingIOError` where another process holds it; other `OSError` of the system.

    `unlocked`: on a file system without locks, go on without one.
    """
    if sys.platform == "win32":
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
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
    """Lock an open file. Errors: `BlockingIOError` where another process holds it; other `OSError` of the system."""
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
