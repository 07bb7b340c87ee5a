"""Waits with a time limit for processes and threads."""

import subprocess
import threading

__all__ = ["ended", "joined", "line_of"]

SECONDS = 120.0


def line_of(process, stream=None, seconds=SECONDS):
    """The next line of a process's output or another of its streams, "" at its end.

    A process that writes nothing in this time is killed.
    """
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        return (process.stdout if stream is None else stream).readline()
    finally:
        timer.cancel()


def joined(threads, seconds=SECONDS):
    """Wait for threads. Errors: a thread has not ended in this time."""
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"{thread.name} has not ended in {seconds:.0f} s"


def ended(process, seconds=SECONDS):
    """The exit code of a process. Errors: it has not ended in this time, and is killed."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=seconds)
        raise AssertionError(f"{process.args} has not ended in {seconds:.0f} s") from None
