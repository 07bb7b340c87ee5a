"""An HTTP load generator in a separate process, so that its processor time is not counted with the server's.

`python -m benchmarks.serve_load` reads a plan, `{"address": "127.0.0.1:8000", "seconds": 5, "connections": 4, ...}`,
from stdin, and prints a JSON document. Closed loop: each connection sends as soon as its last answer has arrived. Open
loop (`rate`): requests arrive by a Poisson process and are timed from their arrival, so that a slow server cannot slow
down its own load.
"""

from __future__ import annotations

import json
import random
import re
import select
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_READ_BYTES = 2**16
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
# Seconds until a server that takes no connection is asked again.
_PAUSE = 0.01


@dataclass
class Counts:
    """Latencies of answers by status, and counts of other errors."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    errors: int = 0
    degraded: int = 0
    late: list[float] = field(default_factory=list)
    """How late requests were sent: above a millisecond, the load generator itself lacks processor time."""

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    def document(self, wall: float) -> dict[str, Any]:
        """Rates and latency percentiles in milliseconds, by status."""
        by_status = {}
        for status, seconds in sorted(self.seconds.items()):
            p50, p90, p99 = np.percentile(seconds, [50, 90, 99]) * 1e3
            about = {
                "count": len(seconds),
                "a_second": len(seconds) / wall,
                "p50_ms": p50,
                "p90_ms": p90,
                "p99_ms": p99,
            }
            by_status[str(status)] = {name: round(float(value), 3) for name, value in about.items()}
        late = float(np.percentile(self.late, 99) * 1e3) if self.late else 0.0
        return {"errors": self.errors, "degraded": self.degraded, "late_p99_ms": late, "status": by_status}


class Connection:
    """A persistent connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read = b""
        self.arrived = 0.0
        self.is_last = False

    def send(self, request: bytes, arrived: float) -> None:
        """Send a request, which is timed from its arrival."""
        self.arrived, self.read = arrived, b""
        self.socket.sendall(request)

    def answer(self) -> bytes | None:
        """The whole answer, None while more of it is to come; `is_last`: the server closes after it.

        Errors: `OSError`, `ValueError`.
        """
        got = self.socket.recv(_READ_BYTES)
        if not got:
            raise ConnectionError("the server closed the connection")
        self.read = self.read + got if self.read else got
        head, ended, body = self.read.partition(b"\r\n\r\n")
        if not ended:
            return None
        length = _LENGTH.search(head)
        if length is None:
            raise ValueError("an answer without content-length")
        if len(body) < int(length[1]):
            return None
        self.is_last = _CLOSE.search(head) is not None
        return self.read


def requests_of(plan: dict[str, Any]) -> list[bytes]:
    """The plan's bodies as HTTP requests."""
    made = []
    for body in plan["bodies"]:
        content = json.dumps(body).encode()
        head = f"POST {plan['path']} HTTP/1.1\r\nhost: {plan['address']}\r\ncontent-type: application/json\r\n"
        made.append(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return made


class Load:
    """Requests over connections, with nothing between loop and sockets: the server lacks the time that this takes."""

    def __init__(self, plan: dict[str, Any], counts: Counts) -> None:
        self.plan, self.counts, self.requests = plan, counts, requests_of(plan)
        self.watched = select.epoll()
        self.connections: dict[int, Connection] = {}
        self.free: deque[Connection] = deque()
        self.sent = self.running = 0

    def closed(self) -> None:
        """Closed loop: each connection sends as soon as its last answer has arrived."""
        now = time.perf_counter()
        until = now + self.plan["seconds"]
        while self.running or now < until:
            for _ in range(self.plan["connections"] - self.running):
                if (now := time.perf_counter()) < until:
                    self.send(now)
            if self.running:
                self.collect(None)
            elif now < until:
                time.sleep(_PAUSE)

    def opened(self) -> None:
        """Open loop: requests arrive even if earlier ones have no answer yet."""
        rng = random.Random(1)
        made = [self.connected() for _ in range(self.plan["connections"])]
        self.free.extend(each for each in made if each is not None)
        due = time.perf_counter()
        end = due + self.plan["seconds"]
        while due < end:
            due += rng.expovariate(self.plan["rate"])
            self.collect(0)
            while (wait := due - time.perf_counter()) > 0:
                self.collect(wait)
            self.counts.late.append(-wait)
            self.send(due)
        while self.running:
            self.collect(None)

    def connected(self) -> Connection | None:
        """A new connection; None, counted as an error, where the server takes none."""
        try:
            made = Connection(self.plan["address"])
        except OSError:
            self.counts.errors += 1
            return None
        self.connections[made.socket.fileno()] = made
        self.watched.register(made.socket, select.EPOLLIN)
        return made

    def send(self, arrived: float) -> None:
        """Send the next request."""
        request = self.requests[self.sent % len(self.requests)]
        self.sent += 1
        connection = self.free.popleft() if self.free else self.connected()
        if connection is None:
            return
        self.running += 1
        try:
            connection.send(request, arrived)
        except OSError:
            self.leave(connection)

    def collect(self, seconds: float | None) -> None:
        """Wait for answers, at most this long, and count them."""
        # `select` waits for microseconds, `epoll.poll` for whole milliseconds.
        if seconds and not select.select([self.watched], (), (), seconds)[0]:
            return
        for number, _ in self.watched.poll(seconds if seconds is None else 0):
            connection = self.connections[number]
            try:
                answer = connection.answer()
                if answer is None:
                    continue
                status = int(answer[9:12])
            except (OSError, ValueError):
                self.leave(connection)
                continue
            self.running -= 1
            self.counts.add(status, time.perf_counter() - connection.arrived)
            self.counts.degraded += b'"degraded":true' in answer
            self.free.append(connection)
            if connection.is_last:
                self.leave(connection)

    def leave(self, connection: Connection) -> None:
        """Close a connection; the request on it, if any, ended in an error."""
        if connection in self.free:
            self.free.remove(connection)
        else:
            self.running -= 1
            self.counts.errors += 1
        del self.connections[connection.socket.fileno()]
        connection.socket.close()


def offered_load(**plan: Any) -> dict[str, Any]:
    """Run the load in a separate process. Plan: `bodies`, `path`, `address`, `seconds`, `connections`, `rate`."""
    return start(**plan)()


def start(**plan: Any) -> Any:
    """Start the load in a separate process; calling the result waits for its end and returns the measurements."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan))
    process.stdin.close()
    process.stdin = None

    def ended() -> dict[str, Any]:
        text, _ = process.communicate(timeout=plan["seconds"] + 120)
        if process.returncode:
            raise RuntimeError(f"the load generator ended with {process.returncode}")
        found: dict[str, Any] = json.loads(text)
        return found

    return ended


def main() -> None:
    plan, counts = json.loads(sys.stdin.read()), Counts()
    began, processor = time.perf_counter(), time.process_time()
    load = Load(plan, counts)
    (load.opened if plan.get("rate") else load.closed)()
    wall = time.perf_counter() - began
    print(json.dumps(counts.document(wall) | {"seconds": wall, "load_cpu_s": time.process_time() - processor}))


if __name__ == "__main__":
    main()
