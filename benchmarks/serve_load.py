"""An HTTP load generator in a separate process, so that its processor time is not counted with the server's.

`python -m benchmarks.serve_load '{"address": "127.0.0.1:8000", "seconds": 5, "connections": 4, ...}'` prints a JSON
document. Closed loop: each connection sends as soon as its last answer has arrived. Open loop (`rate`): requests arrive
by a Poisson process and are timed from their arrival, so that a slow server cannot slow down its own load.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np


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
        self.host, _, port = address.partition(":")
        self.port = int(port)
        self.reader: asyncio.StreamReader | None = None

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and body of the answer."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        try:
            self.writer.write(request)
            head = await self.reader.readuntil(b"\r\n\r\n")
            lower = head.lower()
            length = int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            body = await self.reader.readexactly(length)
        except BaseException:
            self.close()
            raise
        if b"connection: close" in lower:
            self.close()
        return int(head[9:12]), body

    def close(self) -> None:
        if self.reader is not None:
            self.writer.close()
            self.reader = None


def requests_of(plan: dict[str, Any]) -> list[bytes]:
    """The plan's bodies as HTTP requests."""
    made = []
    for body in plan["bodies"]:
        content = json.dumps(body).encode()
        head = f"POST {plan['path']} HTTP/1.1\r\nhost: {plan['address']}\r\ncontent-type: application/json\r\n"
        made.append(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return made


async def ask(connection: Connection, request: bytes, arrived: float, counts: Counts) -> None:
    try:
        status, body = await connection.send(request)
    except (OSError, asyncio.IncompleteReadError, IndexError, ValueError):
        counts.errors += 1
        return
    counts.add(status, time.perf_counter() - arrived)
    counts.degraded += b'"degraded":true' in body


async def closed(plan: dict[str, Any], counts: Counts) -> None:
    """Closed loop: each connection sends as soon as its last answer has arrived."""
    requests, until = requests_of(plan), time.perf_counter() + plan["seconds"]

    async def one(number: int) -> None:
        connection, at = Connection(plan["address"]), number
        while (now := time.perf_counter()) < until:
            await ask(connection, requests[at % len(requests)], now, counts)
            at += plan["connections"]
        connection.close()

    await asyncio.gather(*map(one, range(plan["connections"])))


async def opened(plan: dict[str, Any], counts: Counts) -> None:
    """Open loop: requests arrive even if earlier ones have no answer yet."""
    requests, rng = requests_of(plan), random.Random(1)
    free = deque(Connection(plan["address"]) for _ in range(plan["connections"]))
    running: set[asyncio.Task[None]] = set()
    due, end, number = time.perf_counter(), time.perf_counter() + plan["seconds"], 0

    async def one(arrived: float, request: bytes) -> None:
        connection = free.popleft() if free else Connection(plan["address"])
        await ask(connection, request, arrived, counts)
        free.append(connection)

    while due < end:
        due += rng.expovariate(plan["rate"])
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        counts.late.append(max(0.0, time.perf_counter() - due))
        task = asyncio.create_task(one(due, requests[number % len(requests)]))
        running.add(task)
        task.add_done_callback(running.discard)
        number += 1
    await asyncio.gather(*running)


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
    asyncio.run(opened(plan, counts) if plan.get("rate") else closed(plan, counts))
    wall = time.perf_counter() - began
    print(json.dumps(counts.document(wall) | {"seconds": wall, "load_cpu_s": time.process_time() - processor}))


if __name__ == "__main__":
    main()
