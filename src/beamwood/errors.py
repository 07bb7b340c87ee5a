"""Errors that a user can cause. Each message names the argument, its value, the bound and the fix."""

from __future__ import annotations

import difflib
import errno
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "ArtefactError",
    "InputError",
    "NotInstalledError",
    "NotSavedError",
    "TimeLimitError",
    "UnknownIdError",
    "UnknownSearcherError",
    "check_utf8",
    "closest",
    "first_problem",
    "is_address",
    "is_of_full_disk",
    "is_utf8",
    "nearest",
    "nearest_path",
    "too_little_memory",
    "unsound_score",
    "why_failed",
]


# Known names listed in a message.
_SHOWN = 60
# What libraries say without memory: torch, the dynamic loader, Python.
_NO_ROOM = ("allocate memory", "out of memory", "failed to map segment", "can't start new thread")
# Synonyms that no spelling distance finds.
_MEANT = {"gpu": "cuda"}
# Entries of a folder compared with a misspelt name.
_MOST_NAMES = 10_000
# The first part of an address: "s3:" of s3://bucket/log.csv; a single letter is a drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class InputError(ValueError):
    """The user's input is wrong: a file, a column, an argument. The command line exits 2 on it."""


class ArtefactError(InputError):
    """A saved folder is missing, foreign, truncated, corrupt or of an unknown version."""


class NotSavedError(ArtefactError):
    """A file could not be written: the disk is full, or its folder is not writable."""


def unsound_score() -> ArtefactError:
    """The error of an answer with non-finite scores: mapped weights are not checked at load."""
    return ArtefactError(
        "a score is NaN or infinite, so a stored weight is damaged or far too large; beamwood.load(path, verify=True) "
        "says which file: copy the folder again, or fit and save it again"
    )


class UnknownIdError(InputError):
    """Ids of users or items that a retriever does not know."""


class UnknownSearcherError(ArtefactError):
    """A saved folder holds a searcher that the package does not define."""


class TimeLimitError(InputError):
    """A time limit is below what a training needs; `min_seconds`: the needed seconds where known."""

    def __init__(self, message: str, min_seconds: float | None = None) -> None:
        super().__init__(message)
        self.min_seconds = min_seconds


class NotInstalledError(InputError, ImportError):
    """A feature needs an extra that is not installed; the message has the command."""


def too_little_memory(error: BaseException) -> str | None:
    """The words for an error of numpy, Python, torch or the dynamic loader without memory, None for any other error.

    Most say so only in their message.
    """
    known = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    worded = isinstance(error, RuntimeError | ImportError | OSError) and any(word in str(error) for word in _NO_ROOM)
    if not known and not worded:
        return None
    return "there is too little memory" + (f" ({error})" if str(error) else "")


def is_of_full_disk(error: BaseException) -> bool:
    """Whether an error of the file system says that the disk, or the share of this user, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def why_failed(error: Exception) -> str | None:
    """Why one of several models cannot be had: wrong input or too little memory; None for what ends the command: a
    full disk or a bug.
    """
    if isinstance(error, NotSavedError):
        return None
    return str(error) if isinstance(error, InputError) else too_little_memory(error)


def first_problem(error: ValidationError) -> str:
    """The first problem of a pydantic validation error, as `name=value: why`."""
    first = error.errors()[0]
    where, why = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] in ("tuple_type", "list_type"):
        why = f"give a list, as [{first['input']!r}]"
    # A problem of several fields together names them itself.
    whole = first["type"] == "value_error" and isinstance(first["input"], Mapping)
    return f"{where}={reprlib.repr(first['input'])}: {why}" if where and not whole else why


def closest(name: str, known: Iterable[str], alike: float = 0.5) -> str | None:
    """The known name most similar to `name`, ignoring case; None where no similarity reaches `alike`, in 0..1."""
    names, name = {each.casefold(): each for each in sorted(known, reverse=True)}, name.casefold()
    meant = _MEANT.get(name)
    if meant in names:
        return names[meant]
    longest = max(map(len, names), default=0)
    if 2 * longest < alike * (len(name) + longest):
        # None can be so similar; of a name of a megabyte difflib would take seconds to say so.
        return None
    found = difflib.get_close_matches(name, names, n=1, cutoff=alike)
    return names[found[0]] if found else None


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8; bytes of a name that are not UTF-8 appear as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_utf8(path: str) -> None:
    """Errors: a path that is not UTF-8, which no manifest can hold."""
    if not is_utf8(path):
        raise InputError(f"the path {path!a} is not UTF-8; rename what is not, or move the files elsewhere")


def is_address(path: Path) -> bool:
    """Whether a path is an address on another machine, such as s3://bucket/log.csv, and not below a folder of here."""
    first = next((each for each in (path, *path.parents) if _SCHEME.fullmatch(each.name)), None)
    return first is not None and first != path and not os.path.exists(first)


def nearest_path(path: Path, otherwise: str = "; check the path") -> str:
    """The phrase that suggests an existing path for one that does not exist, or `otherwise`."""
    if str(path) == "-":
        return "; stdin is not read: save it as a file first"
    if str(path).startswith("~"):
        return "; only a shell expands ~: write os.path.expanduser('~/..')"
    if is_address(path):
        return "; addresses are not read: download it, and give the file or folder"
    there, rest = path, list[str]()
    # os.path.exists, as Path.exists raises on a name that is too long.
    while not os.path.exists(there) and there != there.parent:
        rest.insert(0, there.name)
        there = there.parent
    try:
        names = [each.name for each in islice(there.iterdir(), _MOST_NAMES)]
    except OSError:
        names = []
    close = closest(rest[0], names) if rest else None
    found = None if close is None else there.joinpath(close, *rest[1:])
    if found is None or not os.path.exists(found):
        return otherwise
    return f"; did you mean '{found}'?"


def nearest(name: str, known: Iterable[str], *, quoted: bool = False) -> str:
    """The phrase `; did you mean 'x'?` for the known name closest to `name`, or the list of known names, if any.

    `quoted`: names are shown in quotes, as they may contain blanks or commas.
    """
    names = sorted(known)
    if not names:
        return "; none is known"
    close = closest(name, names)
    if close is not None:
        return f"; did you mean '{close}'?"
    shown = ", ".join(repr(each) if quoted else each for each in names[:_SHOWN])
    return f"; known: {shown}" + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
