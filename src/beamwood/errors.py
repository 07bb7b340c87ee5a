"""Errors that a user can cause. Each message names the argument, its value, the bound and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ArtefactError", "InputError", "nearest"]


class InputError(ValueError):
    """The user's input is wrong: a file, a column, an argument. The command line exits 2 on it."""


class ArtefactError(InputError):
    """A saved folder is missing, foreign, truncated, corrupt or of an unknown version."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The phrase `; did you mean 'x'?` for the known name closest to `name`, or the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}"
