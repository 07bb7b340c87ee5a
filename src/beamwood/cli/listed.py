"""Ids, histories, names and kinds of events from the command line; ids and histories from files with one a line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beamwood.data.columns import known_names, squashed
from beamwood.errors import InputError, nearest_path

if TYPE_CHECKING:
    from beamwood.data.vocabularies.vocabulary import Vocabulary

__all__ = ["parse_events", "parse_history", "parse_names", "read_history_lines", "read_id_lines", "read_lines"]

# The option for one value, for those who gave it instead of a file of them.
_OF_ONE = {"--users": "--user", "--histories": "--history"}
# Lines that are inspected to tell whether a file holds ids.
_LOOKED_AT = 100
_MARKS = (",", ";", "\t", "|")


def parse_history(text: str) -> list[str]:
    """The ids of "5,9,2", or of a JSON list; [] is an empty history. Errors: no id, nothing between two commas, JSON
    of other values.
    """
    listed = _json_list(text)
    if listed is not None:
        return listed
    if isinstance(_parsed(text), list):
        raise InputError(f"--history {text!r} is JSON of other values than ids; write text and whole numbers alone")
    if not text.strip():
        raise InputError("--history is empty, as of a variable without a value; write ids, or [] for an empty history")
    ids = text.split(",")
    if not all(item.strip() for item in ids):
        raise InputError(f"--history {text!r} has a comma without an id beside it; write the ids as 5,9,2")
    return ids


def parse_names(text: str | None) -> tuple[str, ...]:
    """The names of "a, b", or of a JSON list; None has none."""
    listed = _json_list(text or "")
    if listed is not None:
        return tuple(listed)
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def parse_events(text: str | None) -> dict[str, float] | None:
    """The weights of "buy,view=0.3" by kind, 1 where none is given; of a JSON object or list too. None gives None."""
    if text is None:
        return None
    found: dict[str, float] = {}
    for kind, weight in _weights_of(text):
        if kind in found:
            raise InputError(f"--events {text!r} names '{kind}' twice; name it once")
        found[kind] = weight
    return found


def _weights_of(text: str) -> Iterator[tuple[str, float]]:
    listed = _parsed(text)
    if isinstance(listed, list) and all(isinstance(each, str | tuple) for each in listed):
        yield from (each if isinstance(each, tuple) else (each, 1.0) for each in listed)
        return
    for part in (part.strip() for part in text.split(",")):
        before, equals, weight = part.rpartition("=")
        kind = (before if equals else part).strip()
        if not kind:
            raise InputError(f"--events {text!r} lacks a kind; write those that count, such as buy,view=0.3")
        try:
            yield kind, float(weight) if equals else 1.0
        except ValueError:
            raise InputError(f"--events {part!r}: {weight!r} is not a number; write {kind}=0.3") from None


def _json_list(text: str) -> list[str] | None:
    """The ids or names of a JSON list; None for another text."""
    listed = _parsed(text)
    whole = isinstance(listed, list) and all(type(each) in (str, int) for each in listed)
    return [str(each) for each in listed] if whole else None


def _parsed(text: str) -> Any:
    """What a text holds as JSON, objects as lists of pairs; None where it is none."""
    try:
        return json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None


def read_lines(path: str, option: str) -> list[str]:
    """The non-blank lines of a text file. Errors: no such file, a folder, not text, no lines."""
    try:
        lines = [line for line in Path(path).read_text("utf-8-sig").split("\n") if line.strip()]
    except FileNotFoundError:
        fix = f"; give a file, or {_OF_ONE[option]} {path}" if option in _OF_ONE else "; give a file with an id a line"
        raise InputError(f"{option} {path} does not exist{nearest_path(Path(path), fix)}") from None
    except IsADirectoryError:
        raise InputError(f"{option} {path} is a folder; name a file in it") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{option} {path} is not UTF-8 text ({error}); write an id a line") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{option} {path} cannot be read: {error}; check the path") from None
    if not lines:
        raise InputError(f"{option} {path} holds no ids; write one a line")
    return lines


def read_id_lines(path: str, option: str, vocabulary: Vocabulary) -> list[str]:
    """The ids of a file, one a line. Errors: as `read_lines`; a header line; several columns."""
    lines = read_lines(path, option)
    first, *others = lines[:_LOOKED_AT]
    if _is_known(first, vocabulary):
        return lines
    _refuse_rows_of_json(path, option, first)
    mark = next((mark for mark in _MARKS if all(mark in line for line in (first, *others))), None)
    if mark is not None and not any(_is_known(line, vocabulary) for line in others):
        raise InputError(
            f"{option} {path} is a table, its columns between {mark!r}, such as {first[:60]!r}; write one column "
            "alone, an id a line and without names"
        )
    if first[:1] == first[-1:] == '"' and _is_known(first[1:-1].replace('""', '"'), vocabulary):
        raise InputError(f"{option} {path} has an id in quotes, {first[:60]}; write ids as they are, one a line")
    if others and all(_is_known(line, vocabulary) for line in others):
        raise InputError(f"{option} {path} begins with {first[:60]!r}, which seems a column name, not an id; delete it")
    return lines


def read_history_lines(path: str, vocabulary: Vocabulary) -> list[str]:
    """The histories of a file, one a line, as text. Errors: as `read_lines`; rows of JSON with names."""
    lines = read_lines(path, "--histories")
    if not _is_known(lines[0], vocabulary):
        _refuse_rows_of_json(path, "--histories", lines[0])
    return lines


def _refuse_rows_of_json(path: str, option: str, line: str) -> None:
    """Errors: a line that is an object of JSON; the fix is the command that takes the ids, or the lists of them."""
    pairs = _parsed(line) if line.lstrip()[:1] == "{" else None
    if not pairs:
        return
    of_lists, role = option == "--histories", "user" if option == "--users" else "item"
    fitting = [name for name, value in pairs if isinstance(value, list) is of_lists]
    usual = [name for name in fitting if squashed(name) in known_names(role)]
    fix = "write a history a line, as 5,9,2" if of_lists else "write an id a line"
    if fitting:
        picked = shlex.quote(f".[{json.dumps((usual or fitting)[0], ensure_ascii=False)}]")
        made = shlex.quote(f"{Path(path).stem}.ids.txt")
        fix += f", as with: jq {'-c' if of_lists else '-r'} {picked} {shlex.quote(path)} > {made}"
    raise InputError(f"{option} {path} holds rows of JSON, such as {line.strip()[:60]!r}; {fix}")


def _is_known(text: str, vocabulary: Vocabulary) -> bool:
    found: list[Any] = vocabulary.parse_all([text], on_unknown="ignore")
    return found[0] is not None and bool(np.all(vocabulary.encode(found, on_unknown="ignore") >= 0))
