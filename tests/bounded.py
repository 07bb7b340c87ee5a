"""Waits that end, whatever a process or a thread does."""

import subprocess
import threading

__all__ = ["ended", "joined", "line_of"]

SECONDS = 120.0


def line_of(process, stream=None, seconds=SECONDS):
    """The next line of a process's output (or of another stream of it), "" where it ended; one that says nothing in
    that time is killed."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        return (process.stdout if stream is None else stream).readline()
    finally:
        timer.cancel()


def joined(threads, seconds=SECONDS):
    """Wait for threads. Errors: one has not ended in that time."""
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"{thread.name} has not ended in {seconds:.0f} s"


def ended(process, seconds=SECONDS):
    """The exit code of a process that is about to end. Errors: it is killed, as it has not ended in that time."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=seconds)
        raise AssertionError(f"{process.args} has not ended in {seconds:.0f} s") from None
