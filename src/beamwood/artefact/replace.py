"""Replace a folder or file by a finished one, so that a kill leaves the old or the new one whole.

The new one is written beside its destination under a temporary name. Its process holds a lock (`flock`), by which the
next save tells leftovers of a killed process from live ones. Replacing is an atomic exchange of two names by the kernel
(Linux `renameat2`). Where the file system lacks it, the old folder is renamed to a hidden name for the instant between
two renames. After a kill in that instant `recover`, which reading and saving call first, restores it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from beamwood.artefact.manifest import MANIFEST
from beamwood.system import Held, hold_path, sync

__all__ = [
    "PARQUET_MARK",
    "check_writable",
    "clean",
    "put_in_place",
    "recover",
    "sync",
    "temporary_folder",
    "whole_file",
]

PARQUET_MARK = {"beamwood": "output"}
"""What Parquet outputs hold as metadata: the tables of others may have the same columns, and are not replaced."""

_SAVING, _ASIDE = ".saving", ".aside"


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A context with a new locked folder beside `target`; whatever has its name at the end is removed."""
    temporary, lock = _make_temporary(target)
    try:
        yield temporary
    finally:
        # The files of a failed save, or the replaced folder after the exchange.
        shutil.rmtree(temporary, ignore_errors=True)
        lock.close()


def check_writable(target: Path) -> None:
    """Errors: `OSError` where `whole_file` cannot write `target`; to be called before a long computation."""
    temporary, lock = _make_temporary(Path(os.path.realpath(target)), folder=False)
    temporary.unlink(missing_ok=True)
    lock.close()


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A fresh name beside the file `target` that takes its place at the end, on the disk: whole, or not at all.

    Where `target` is a link, that is the file it leads to. What killed processes left of earlier ones goes. Errors:
    `OSError` where nothing can be written.
    """
    target = Path(os.path.realpath(target))
    clean(target)
    temporary, lock = _make_temporary(target, folder=False)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, target)
        sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)
        lock.close()


def _hidden(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}{suffix}")


def _make_temporary(target: Path, *, folder: bool = True) -> tuple[Path, Held]:
    while True:
        temporary = _hidden(target, _SAVING)
        temporary.mkdir() if folder else temporary.touch(exist_ok=False)
        lock = _lock(temporary, own=True)
        # Another save may remove it as a leftover before it is locked.
        if lock is None:
            continue
        if os.path.exists(temporary):
            return temporary, lock
        lock.close()


def _lock(path: Path, *, own: bool = False, wait: bool = False) -> Held | None:
    """What holds a folder or file until it is closed or the process ends; None when somebody else does.

    On a file system without locks what is our `own` goes unlocked, and nobody else's is ever taken for a leftover.
    """
    try:
        return hold_path(path, wait=wait, unlocked=own)
    except FileNotFoundError:
        return None
    except OSError as error:
        if own and not isinstance(error, BlockingIOError):
            raise
        return None


def _siblings(target: Path, suffix: str) -> list[Path]:
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{12}" + re.escape(suffix))
    if not os.path.isdir(target.parent):
        return []
    return sorted(entry for entry in target.parent.iterdir() if pattern.fullmatch(entry.name))


def clean(target: Path) -> None:
    """Remove the temporaries of killed saves to `target`; one that a live process holds stays."""
    for leftover in _siblings(target, _SAVING) + _siblings(target, _ASIDE):
        lock = _lock(leftover)
        if lock is None:
            continue
        # A folder set aside is the only copy until its place is taken.
        if leftover.name.endswith(_SAVING) or os.path.exists(target):
            _remove(leftover)
        lock.close()


def _remove(leftover: Path) -> None:
    if os.path.isdir(leftover):
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        with suppress(OSError):
            leftover.unlink()


def put_in_place(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Put the finished `temporary` at `target`, which is free or, with `overwrite`, holds an artefact that may go.

    Errors: `OSError` where something is there by now, and may not go.
    """
    try:
        os.rename(temporary, target)
    except OSError as error:
        if not overwrite or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(temporary, target):
            _step_aside(temporary, target)
    sync(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one atomic call; False where the system or the file system lacks it."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    at_fdcwd, rename_exchange = -100, 2
    if library.renameat2(at_fdcwd, os.fsencode(first), at_fdcwd, os.fsencode(second), rename_exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(second))


def _step_aside(temporary: Path, target: Path) -> None:
    while True:
        # Locked, so that another save does not treat the only copy as a leftover.
        lock = _lock(target, wait=True)
        aside = _hidden(target, _ASIDE)
        try:
            os.rename(target, aside)
            os.rename(temporary, target)
        except OSError as error:
            # A reader restored the old folder in between, or another save was faster: retry.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                continue
            recover(target)
            raise
        finally:
            if lock is not None:
                lock.close()
        shutil.rmtree(aside, ignore_errors=True)
        return


def recover(target: Path) -> Path:
    """Bring back the folder that stepped aside for a replacement which never came; where the artefact stands now."""
    for aside in () if os.path.exists(target) else _siblings(target, _ASIDE):
        if not os.path.isfile(aside / MANIFEST):
            continue
        try:
            os.rename(aside, target)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                return aside
            # Another process was faster.
            continue
        break
    return target
