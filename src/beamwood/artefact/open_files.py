"""Files of a folder held open: later reads see the opened files, even if the folder is replaced or removed."""

from __future__ import annotations

import errno
import os
import stat
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Identity", "OpenFiles", "identity", "read_regular"]

Identity = tuple[int, int, int, int]


def identity(file: Path | int) -> Identity:
    """The identity of a file: equal only for the same file without later writes."""
    status = os.stat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_regular(path: Path) -> bytes:
    """The content of a file. Errors: `OSError`, also for a pipe, a socket or a device, whose read may never return."""
    _check_regular(path)
    return path.read_bytes()


def _check_regular(path: Path) -> None:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


class OpenFiles:
    """The named files of a folder, open as long as this object lives.

    A descriptor has one position for all threads: who reads by it holds `reading`. Errors: `OSError` on a file that is
    missing, unreadable or not a regular file.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.reading = threading.Lock()
        self._descriptors: dict[str, int] = {}
        weakref.finalize(self, _close, self._descriptors)
        for name in names:
            _check_regular(folder / name)
            self._descriptors[name] = os.open(folder / name, os.O_RDONLY)

    def __getitem__(self, name: str) -> int:
        """The descriptor of a file."""
        return self._descriptors[name]

    def content(self, name: str) -> bytes:
        """The whole content of a file."""
        with open(self._descriptors[name], "rb", closefd=False) as file:
            file.seek(0)
            return file.read()

    def are_in(self, folder: Path) -> bool:
        """Whether these files are still those of the folder."""
        try:
            return all(identity(folder / name) == identity(found) for name, found in self._descriptors.items())
        except OSError:
            return False


def _close(descriptors: dict[str, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)
    descriptors.clear()
