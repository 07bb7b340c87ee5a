"""One log line a request, without histories; written in the background, so that a slow reader delays no answer."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import time
from collections import deque
from typing import Any

import msgspec

__all__ = ["RequestLog"]

_MOST_LINES = 100_000
# Seconds between writes.
_WRITE_EVERY = 0.2
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
            words = " ".join(f"{name}={value}" for name, value in about.items()).translate(_ONE_LINE)
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
                try:
                    sys.stdout.buffer.write(b"".join(lines))
                    sys.stdout.buffer.flush()
                except (OSError, ValueError):
                    self.lost += len(lines)

    async def keep_writing(self) -> None:
        """Write regularly, on another thread."""
        while True:
            await asyncio.sleep(_WRITE_EVERY)
            if self._lines:
                await asyncio.to_thread(self.flush)
