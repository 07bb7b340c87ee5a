"""Redis and PostgreSQL servers for tests, on free loopback ports, each in its own folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Running = Iterator[tuple[str, subprocess.Popen[bytes]]]
KINDS = ("memory", "sqlite", "redis", "postgres")
"""Of stores."""

__all__ = [
    "KINDS",
    "address_of",
    "free_port",
    "postgres_server",
    "redis_server",
    "stop",
    "wait_for_port",
    "wait_until_unused",
]


def address_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The address of an empty store."""
    if kind == "redis":
        import redis

        address: str = request.getfixturevalue("redis_address")
        redis.Redis.from_url(address).flushall()
        return address
    if kind == "postgres":
        import psycopg

        address = request.getfixturevalue("postgres_address")
        with psycopg.connect(address) as connection:
            for table in ("events", "spent", "erased", "merged", "documents", "answers", "tallies"):
                connection.execute(f"drop table if exists beamwood_{table}")
        return address
    return "memory" if kind == "memory" else f"sqlite:{folder / 'events.db'}"


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 20.0) -> None:
    """Wait until the port accepts connections. Errors: the process ended, or it takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"{process.args} does not listen on {port}")


def stop(process: subprocess.Popen[bytes], how: int = signal.SIGTERM) -> None:
    """End a process that a test started, by its process id."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(60)


def wait_until_unused(folder: Path, seconds: float = 60.0) -> None:
    """Wait until no process uses the folder. Errors: it takes too long."""
    end = time.monotonic() + seconds
    while any(_works_in(process, folder) for process in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end, f"a process still uses {folder}"
        time.sleep(0.02)


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


@contextmanager
def redis_server(folder: Path, *, port: int | None = None, sync: str = "always") -> Running:
    """The address and the process; a restart in the same folder finds the stored data."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    port = port or free_port()
    settings = ["--appendonly", "yes", "--appendfsync", sync, "--save", "", "--bind", "127.0.0.1"]
    command = [program, "--port", str(port), "--dir", str(folder), *settings]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield f"redis://127.0.0.1:{port}/0", process
    finally:
        stop(process)


@contextmanager
def postgres_server(folder: Path, *, port: int | None = None) -> Running:
    """The address and the process; an empty folder is initialised, and other users must be able to enter it."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not programs:
        pytest.skip("postgresql is not installed: apt-get install postgresql-15")
    as_user = _unprivileged(folder)
    data, port = folder / "data", port or free_port()
    if not data.exists():
        made = [str(programs[-1].with_name("initdb")), "-D", str(data), "-U", "beamwood", "-A", "trust", "-N"]
        subprocess.run([*as_user, *made, "-E", "UTF8"], check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=120)
    settings = [
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        f"unix_socket_directories={folder}",
        "-c",
        "shared_buffers=16MB",
    ]
    command = [*as_user, str(programs[-1]), "-D", str(data), "-p", str(port), *settings]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    try:
        wait_for_port(port, process)
        address = f"postgresql://beamwood@127.0.0.1:{port}/postgres"
        _wait_until_it_answers(address)
        yield address, process
    finally:
        # Immediate shutdown: only committed data is needed again.
        stop(process, signal.SIGQUIT)


def _wait_until_it_answers(address: str, seconds: float = 20.0) -> None:
    import psycopg

    end = time.monotonic() + seconds
    while True:
        try:
            psycopg.connect(address, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            # PostgreSQL accepts connections during recovery.
            assert time.monotonic() < end
            time.sleep(0.02)


def _unprivileged(folder: Path) -> list[str]:
    """The prefix that runs a command as another user, because PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    try:
        other = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("there is no user postgres, as which PostgreSQL would run")
    program = shutil.which("setpriv")
    if program is None:
        pytest.skip("setpriv, which runs PostgreSQL as another user, is not installed")
    os.chown(folder, other.pw_uid, other.pw_gid)
    return [program, f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
