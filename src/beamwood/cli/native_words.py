"""Output of native libraries on damaged files, held back so that an error is one line."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from beamwood.errors import InputError
from beamwood.system import address_limit

__all__ = ["held_back"]


@contextmanager
def held_back() -> Iterator[None]:
    """A context that buffers output to the file descriptor of stderr; on an `InputError` it is discarded.

    Python's own output to stderr is buffered, too. Without such an error it is written at the end. Nothing is held back
    where there is no place for a temporary file, nor under `ulimit -v`: without memory a library ends the process.
    """
    if address_limit() is not None:
        yield
        return
    with ExitStack() as opened:
        try:
            sys.stderr.flush()
            held = opened.enter_context(tempfile.TemporaryFile())
            kept = os.dup(2)
        except (OSError, ValueError):  # no stderr, or a full disk
            yield
            return
        os.dup2(held.fileno(), 2)
        said = True
        try:
            yield
        except InputError:
            said = False
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            if said and (words := held.read()):
                os.write(2, words)
