"""Forks while another thread holds a lock: the child finds it free, and what it guards whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import beamwood

SOURCE = Path(beamwood.__file__).parent

FORK = """
import os, signal, threading
from beamwood.fork_lock import ForkLock

lock, guarded, held, forking = ForkLock(), [], threading.Event(), threading.Event()

def change():
    with lock:
        guarded.append("half")
        held.set()
        assert forking.wait(60)
        guarded.append("whole")

# The latest one registered is called first.
os.register_at_fork(before=forking.set)
thread = threading.Thread(target=change)
thread.start()
assert held.wait(60)
def look():
    with lock:
        os._exit(guarded != ["half", "whole"])

child = os.fork()
if child == 0:
    signal.alarm(60)
    threading.Thread(target=look).start()
    signal.pause()
assert os.waitpid(child, 0)[1] == 0
for again in (thread, threading.Thread(target=change, daemon=True)):
    if again is not thread:
        again.start()
    again.join(60)
    assert not again.is_alive()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_waits_for_who_holds_a_lock():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=200)


def test_what_answers_after_a_fork_has_no_other_locks():
    """The locks of folders being read and of servers are not meant for forks: load first, fork before serving."""
    files = [file for part in ("kernels", "retrieval", "models") for file in (SOURCE / part).rglob("*.py")]
    files += SOURCE.glob("*.py")
    plain = [file.name for file in files if "threading" in file.read_text(encoding="utf-8")]
    assert plain == ["fork_lock.py"]
