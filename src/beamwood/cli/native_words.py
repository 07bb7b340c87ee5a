"""What native libraries write past Python on a damaged file, held back: an error is one line."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from beamwood.errors import InputError

__all__ = ["held_back"]


@contextmanager
def held_back() -> Iterator[None]:
    """Within it what is written to the file descriptor of stderr waits; an `InputError` says all that there is to say.

    What Python itself prints to stderr within waits too. Without such an error it is written when the block ends.
    """
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, ValueError):  # there is no stderr
        yield
        return
    with tempfile.TemporaryFile() as held:
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
