"""One log line a request, without histories; written in the background, so that a slow reader delays nothing."""

from __future__ import annotations

import hashlib
import io
import re
import select
import sys
import threading
import time
from collections import deque
from typing import Any

import msgspec

__all__ = ["RequestLog"]

_MOST_LINES = 100_000
# Seconds between writes, and those that the last one has.
_WRITE_EVERY, _CLOSE_SECONDS = 0.2, 1.0
_SEVERAL = re.compile(r'[\s="]')
_ENCODER = msgspec.json.Encoder(enc_hook=str)
# Control characters are escaped, so that an id can neither end a line nor control a terminal.
_ONE_LINE = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160))} | {
    number: f"\\u{number:04x}" for number in (0x2028, 0x2029)
}


class RequestLog:
    """Lines as "json", "text", or "none"; `users`: user ids in clear, else hashed with a key of this process."""

    def __init__(self, kind: str, *, users: bool, secret: bytes) -> None:
        self.kind, self.users, self.lost = kind, users, 0
        self._secret, self._lines = secret, deque[bytes]()
        self._lock = threading.Lock()
        # How many lines are being written.
        self._taken = 0
        # A thread of a pool would be waited for at the end of the process.
        self._ended, self._writer = threading.Event(), threading.Thread(target=self._keep_writing, daemon=True)

    def write(self, about: dict[str, Any]) -> None:
        """Queue a line for the next write; when nobody reads, the newest are dropped and counted."""
        if self.kind == "none":
            return
        if len(self._lines) >= _MOST_LINES:
            self.lost += 1
            return
        if self.kind == "json":
            self._lines.append(_ENCODER.encode(about) + b"\n")
        else:
            words = " ".join(f"{name}={_quoted(str(value))}" for name, value in about.items()).translate(_ONE_LINE)
            self._lines.append(words.encode("utf-8", "backslashreplace") + b"\n")

    def said(self, event: str, **more: Any) -> None:
        """Log a line about the service itself."""
        self.write({"time": round(time.time(), 3), "event": event, **more})

    def user(self, user: Any) -> str:
        """The form of a user id in a line."""
        if self.users:
            return str(user)
        content = repr(user).encode("utf-8", "backslashreplace")
        return hashlib.blake2b(content, key=self._secret, digest_size=6).hexdigest()

    def flush(self) -> None:
        """Write the queued lines."""
        with self._lock:
            # Lines that come meanwhile stay for the next write.
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if lines:
                self._taken = len(lines)
                try:
                    _write(b"".join(lines))
                except (OSError, ValueError):
                    self.lost += len(lines)
                self._taken = 0

    def begin(self) -> None:
        """Write regularly from now on, on a thread of its own."""
        self._writer.start()

    def close(self) -> None:
        """Write the queued lines; those that are not read within a second are lost."""
        self._ended.set()
        if self._writer.ident is None:
            self.begin()
        self._writer.join(_CLOSE_SECONDS)
        if self._writer.is_alive():
            self.lost += len(self._lines) + self._taken

    def _keep_writing(self) -> None:
        while not self._ended.wait(_WRITE_EVERY):
            self.flush()
        self.flush()


def _quoted(text: str) -> str:
    """In quotes where it would be read as several words, so that an id cannot state a code or a token."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if text and not _SEVERAL.search(text) else f'"{escaped}"'


def _write(content: bytes) -> None:
    """Write past the buffer, which cannot be closed at the end of the process while a write waits for a reader."""
    buffer: Any = sys.stdout.buffer
    stream, left = buffer.raw if isinstance(buffer, io.BufferedWriter) else buffer, memoryview(content)
    while left:
        count = stream.write(left)
        if count is None:
            # A pipe that others set not to block: half a line would spoil the next one.
            select.select([], [stream], [])
        left = left[count or 0 :]
