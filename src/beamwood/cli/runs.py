"""The training run beside an output folder: what a stopped fit leaves of it, and how to continue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from beamwood.cli.interrupts import NOTHING, keeping
from beamwood.cli.written import path_beside
from beamwood.errors import NotSavedError

__all__ = ["keeping_run"]


@contextmanager
def keeping_run(out: str, *, resume: bool) -> Iterator[None]:
    """A context in which a stop, or a full disk, says what the run beside `out` keeps, and how to go on."""
    before = None if resume else _begun(out)

    def kept() -> str:
        return _kept(out, before)

    with keeping(kept):
        try:
            yield
        except NotSavedError as error:
            raise NotSavedError(f"{error}; {kept()}") from error


def _begun(out: str) -> int | None:
    """When the run beside the output began, None without one."""
    run = path_beside(out, ".run")
    for path in (run / "config.json", run):
        with suppress(OSError):
            return path.stat().st_mtime_ns
    return None


def _kept(out: str, before: int | None) -> str:
    """What a stopped fit leaves, and how to continue; an earlier run, which began at `before`, is none of it."""
    run = path_beside(out, ".run")
    if _begun(out) == before:
        return NOTHING
    newest = "the newest checkpoint is" if (run / "checkpoint").exists() else "no checkpoint is yet"
    return f"{newest} in {run}; run the same command with --resume to go on"
