"""A command in a fork of a process with all imports done, killed at a disk call or after some processor time."""

import faulthandler
import os
import select
import signal
import sys
import traceback
from dataclasses import dataclass

__all__ = ["Ended", "Kill", "command", "forked", "phase_of"]

# A child that prints nothing for this long hangs.
PATIENCE = 400
WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
# The phase of a kill, by the innermost known file or function.
PHASES = {
    "artefact/replace.py": "save",
    "artefact/write.py": "save",
    "in _save": "save",
    "in _validate": "validation",
    "beamwood/evaluation/": "validation",
    "in _update": "update",
    "in _step": "step",
    "retrieval/batch/job.py": "batch",
    "cli/commands/items.py": "export",
    "beamwood/data/": "read",
    "cli/data_source.py": "read",
    "cli/splits.py": "read",
    "beamwood/fitting/": "fit",
    "beamwood/methods/": "fit",
    "beamwood/recipes/": "fit",
    "beamwood/training/": "fit",
}


@dataclass(frozen=True)
class Kill:
    """When to kill: before the n-th call that changes the disk, or after this many processor seconds."""

    call: int | None = None
    seconds: float | None = None


@dataclass
class Ended:
    """The end of a child: exit code (-9 if killed), output, phase of the kill, and resources used."""

    code: int
    said: str
    stack: str
    calls: int
    seconds: float


def phase_of(stack):
    """The phase of a stack, innermost frame first."""
    for line in stack.splitlines():
        for mark, phase in PHASES.items():
            if mark in line:
                return phase
    return "start"


def command(arguments):
    """Run one command line as the program does, with small groups, few steps and a short search."""
    from beamwood import __main__ as program
    from beamwood.recipes.portfolio import find as finding
    from beamwood.recipes.portfolio.members import Member
    from beamwood.retrieval.batch import group_answers, job
    from beamwood.training import checkpoint_times
    from survive.jobs import SMALL

    job.GROUP_ROWS, group_answers._ROWS = 25, 10
    checkpoint_times.MAX_LOST, checkpoint_times.MAX_SHARE = 0.0, 1.0
    whole = finding.find
    members = [Member("popularity", "popularity", blends=False), Member("cooccurrence", "cooccurrence")]
    members.append(Member("sasrec", "sasrec", SMALL))
    finding.find = lambda split, **options: whole(split, **options, members=members)
    sys.argv = ["beamwood", *arguments]
    program.run()


def forked(work, folder, kill=None):
    """Run `work()` in a fork, in this folder, and wait for its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    (said, saying), (told, telling) = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(saying, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))
        os._exit(_watched(work, telling, kill or Kill()))
    os.close(saying)
    os.close(telling)
    words = {said: b"", told: b""}
    going = set(words)
    while going:
        ready, _, _ = select.select(going, [], [], PATIENCE)
        if not ready:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise AssertionError(f"it does not end: {words[said].decode()}")
        for stream in ready:
            if not _more(stream, words):
                going.remove(stream)
                os.close(stream)
        # A child that has printed its stack must not continue.
        if b"most recent call first" in words[told]:
            os.kill(process, signal.SIGKILL)
    _, status, usage = os.wait4(process, 0)
    stack, _, calls = words[told].decode().partition("calls ")
    return Ended(
        os.waitstatus_to_exitcode(status), words[said].decode(), stack, int(calls or 0), usage.ru_utime + usage.ru_stime
    )


def _more(stream, words):
    read = os.read(stream, 2**16)
    words[stream] += read
    return bool(read)


def _watched(work, telling, kill):
    """Run it and count the calls that change the disk, print the count at the end, and return the exit code."""
    calls = 0

    def hook(event, given):
        nonlocal calls
        if not (event in WRITES or (event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))):
            return
        calls += 1
        if calls == kill.call:
            stack = [f"{frame.filename} in {frame.name}" for frame in reversed(traceback.extract_stack())]
            os.write(telling, "\n".join(stack).encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if kill.seconds is not None:
        faulthandler.register(signal.SIGPROF, file=telling)
        signal.setitimer(signal.ITIMER_PROF, kill.seconds)
    code = 0
    try:
        work()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    signal.setitimer(signal.ITIMER_PROF, 0)
    os.write(telling, f"calls {calls} ".encode())
    return code
