"""A log in several files: the parts of a folder, or of a pattern of names, as one table."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

from beamwood.errors import InputError, is_address

__all__ = ["TableFiles", "parts_of"]

_SHOWN = 3
# Hive's folder name for rows with a null key.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_FILES = 20_000
_SKIPPED = (".", "_")
# Folders by which a table says which of its files still count.
_KEPT_BY = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
# Endings of files of lines: without a row they may be without a byte.
_OF_LINES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
# A character of a name that `glob.escape` wrote in brackets.
_ESCAPED = re.compile(r"\[([*?[])\]")


class TableFiles:
    """Files of one kind, in the order of their names, that hold rows of one table; `left_out`: others beside them.

    `root`: the folder below which folders may be keys.
    """

    def __init__(self, name: str, files: Sequence[Path], left_out: Sequence[str], root: Path) -> None:
        self.name, self.files, self.left_out, self.root = name, tuple(files), tuple(left_out), root

    def joined(self, frames: Sequence[pl.LazyFrame], schemas: Sequence[Mapping[str, Any]]) -> pl.LazyFrame:
        """The rows of all parts; a folder named `key=value` becomes a column of the parts below it that lack it.

        Errors: parts with other columns, types or folder keys than the first.
        """
        self._check_columns(schemas)
        keys = [self._keys(file, schemas[0]) for file in self.files]
        self._check_keys(keys)
        each = []
        for frame, schema, own in zip(frames, schemas, keys, strict=True):
            # By position, as a name such as "*" would be read as a pattern.
            columns = [pl.nth([*schema].index(name)) for name in schemas[0]]
            each.append(frame.select(*columns, *(pl.lit(own[key], pl.String).alias(key) for key in keys[0])))
        return pl.concat(each, how="vertical_relaxed")

    def notes(self) -> tuple[str, ...]:
        """Notes on the number of files read as one, and on files left out."""
        many = f"{len(self.files):,} files are read as one, in the order of their names"
        said = [many if len(self.files) > 1 else f"{self.files[0].name} is read of it"]
        if self.left_out:
            more = "" if len(self.left_out) <= _SHOWN else f" and {len(self.left_out) - _SHOWN:,} more"
            said.append(f"left out beside them: {', '.join(self.left_out[:_SHOWN])}{more}")
        return tuple(said)

    def _check_columns(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        first, names = self.files[0], list(schemas[0])
        for file, schema in zip(self.files, schemas, strict=True):
            if set(schema) != set(names):
                grown = set(schema) < set(names) or set(names) < set(schema)
                fix = ", or write all as one, as Polars does by pl.concat(frames, how='diagonal')" if grown else ""
                raise InputError(
                    f"{self.name}: {file.name} has the columns {', '.join(schema)}, {first.name} has "
                    f"{', '.join(names)}; the files of a folder are read as parts of one table, so name one file{fix}"
                )
        for name in names:
            self._check_types(name, [schema[name] for schema in schemas])

    def _check_types(self, name: str, dtypes: Sequence[Any]) -> None:
        """Whole numbers and doubles are one type: files without types, as JSON lines, have 5 here and 4.5 there.

        A part without any value may have the type of nothing.
        """
        typed = [(file, dtype) for file, dtype in zip(self.files, dtypes, strict=True) if dtype != pl.Null]
        for file, dtype in typed:
            first, one = typed[0]
            if dtype != one and not (_is_number(dtype) and _is_number(one)):
                raise InputError(
                    f"{self.name}: column '{name}' is of type {dtype} in {file.name} and {one} in {first.name}; "
                    "write all parts alike"
                )

    def _check_keys(self, keys: Sequence[Mapping[str, str | None]]) -> None:
        for file, own in zip(self.files, keys, strict=True):
            if own.keys() != keys[0].keys():
                raise InputError(
                    f"{self.name}: {file} and {self.files[0]} are in folders with different keys (key=value), each a "
                    "column; name one file, or move files that are not part of the table"
                )

    def _keys(self, file: Path, names: Container[str]) -> dict[str, str | None]:
        """The keys and values of a part's folders beyond its own columns, URL-encoded as Hive and Spark write them."""
        folders = file.relative_to(self.root).parts[:-1]
        pairs = ([unquote(part) for part in folder.partition("=")] for folder in folders)
        said = {key: value for key, mark, value in pairs if mark and key not in names}
        return {key: None if value == _NULL else value for key, value in said.items()}


def _is_number(dtype: Any) -> bool:
    # Not Float32, whose decimals a cast to double would change.
    return bool(dtype.is_integer() or dtype == pl.Float64)


def parts_of(path: str, suffix_of: Callable[[str], str | None]) -> TableFiles | None:
    """The parts in a folder, or of a pattern such as "logs/*.csv" unless a file has that name; None for anything else.

    Hidden names and those that begin with "_" are skipped, unless the pattern asks for them. What links lead to by
    several ways is read once. Errors: no part; parts of several kinds.
    """
    is_folder = os.path.isdir(path)
    if is_folder:
        root = Path(path)
        found, again = _files_below(path)
    elif glob.has_magic(path) and not os.path.exists(path) and not is_address(Path(path)):
        root = _root_of(Path(path))
        found, again = _files_like(path, root)
    else:
        return None
    files, names = _each_once([file for file in found if suffix_of(file.name) is not None])
    files, empty = _with_content(files)
    names += empty
    kinds = Counter(suffix_of(file.name) for file in files)
    if not kinds:
        what = "is a folder without" if is_folder else "names no"
        raise InputError(f"{path} {what} files of a known ending; give a log, or a folder of its parts")
    if len(kinds) > 1:
        told = ", ".join(f"{count} of {suffix}" for suffix, count in kinds.most_common())
        most = f"*{kinds.most_common(1)[0][0]}"
        below = any(file.parent != root for file in files if suffix_of(file.name) == most[1:])
        such = os.path.join(glob.escape(path), "**" if below else "", most) if is_folder else most
        raise InputError(f"{path} holds files of several kinds ({told}); name one file, or a pattern such as {such!r}")
    left_out = [*again, *names, *(file.name for file in found if suffix_of(file.name) is None)]
    return TableFiles(path, files, left_out, root)


def _files_below(path: str) -> tuple[list[Path], list[str]]:
    """The files below a folder, sorted, without what is hidden, and in words the folders met again by a link.

    Errors: more than any log has; what cannot be read; a table whose files hold rows that were deleted.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read ({error.strerror}); name the folder of the log's parts")

    found, again = list[Path](), list[Path]()
    for folder, inner, names in _walk(path, _SKIPPED, again, refuse):
        for kept_by in _KEPT_BY.keys() & set(inner):
            raise InputError(
                f"{folder} is a table of {_KEPT_BY[kept_by]}, whose files hold deleted and older rows too; write "
                "the rows that count to Parquet, and give that"
            )
        found += [Path(folder, name) for name in names if not name.startswith(_SKIPPED)]
        if len(found) > _MOST_FILES:
            raise InputError(f"{path} holds more than {_MOST_FILES:,} files; name the folder of the log's parts")
    return sorted(found), _met_again(again)


def _walk(
    path: str, skipped: tuple[str, ...], again: list[Path], onerror: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """A folder and those below it as `os.walk` has them, each once, and linked ones too; `again` gets second ways.

    Folders whose names begin with one of `skipped` are not entered.
    """
    seen, starts = set[str](), [path]
    # Links to folders are followed last, so that a folder is met by its own name first.
    for start in starts:
        for folder, inner, names in os.walk(start, onerror=onerror):
            if os.path.realpath(folder) in seen:
                again.append(Path(folder))
                inner.clear()
                continue
            seen.add(os.path.realpath(folder))
            yield folder, inner, names
            inner[:] = sorted(name for name in inner if not name.startswith(skipped))
            starts += (each for each in (os.path.join(folder, name) for name in inner) if os.path.islink(each))


def _files_like(pattern: str, root: Path) -> tuple[list[Path], list[str]]:
    """The files of a pattern, sorted, and in words the folders met again by a link."""
    again, asked = list[Path](), _has_underscore(Path(pattern), root)
    paths = _matching(pattern, _SKIPPED[:1] if asked else _SKIPPED, again)
    found = sorted({Path(each) for each in paths if not os.path.isdir(each)})
    if not asked:
        found = [file for file in found if not _has_underscore(file, root)]
    ways = dict[str, Path]()
    for folder in sorted({file.parent for file in found}, key=_links):
        ways.setdefault(os.path.realpath(folder), folder)
    kept = set(ways.values())
    again += (file.parent for file in found if file.parent not in kept)
    return [file for file in found if file.parent in kept], _met_again(sorted(again))


def _matching(pattern: str, skipped: tuple[str, ...], again: list[Path]) -> Iterator[str]:
    """The paths of a pattern, as `glob` has them, but "**" enters a folder once, so that links in a circle end."""
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.iglob(pattern)
        return
    place = parts.index("**")
    rest = parts[place + 1 :] or ("*",)
    for start in glob.iglob(str(Path(*parts[:place]))):
        for folder, _, _ in _walk(start, skipped, again):
            yield from _matching(os.path.join(glob.escape(folder), *rest), skipped, again)


def _each_once(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files, each by its name with the fewest links, and in words the other names."""
    ways = dict[str, Path]()
    for file in sorted(files, key=_links):
        ways.setdefault(os.path.realpath(file), file)
    kept = set(ways.values())
    return sorted(kept), [f"{file.name} (a second name of a file)" for file in files if file not in kept]


def _with_content(files: list[Path]) -> tuple[list[Path], list[str]]:
    """The files, and in words those of no bytes, which Spark writes for parts without rows; all if all are."""
    lines = [file for file in files if file.name.lower().endswith(_OF_LINES) and os.path.isfile(file)]
    empty = {file for file in lines if not os.path.getsize(file)}
    if len(empty) == len(files):
        return files, []
    return [file for file in files if file not in empty], [f"{file.name} (empty)" for file in files if file in empty]


def _root_of(pattern: Path) -> Path:
    """The folder in front of the first wildcard."""
    fixed = takewhile(lambda part: not glob.has_magic(_ESCAPED.sub("", part)), pattern.parts)
    return Path(*(_ESCAPED.sub(r"\1", part) for part in fixed))


def _has_underscore(path: Path, root: Path) -> bool:
    return any(part.startswith("_") for part in path.parts[len(root.parts) :])


def _links(path: Path) -> tuple[int, Path]:
    return sum(os.path.islink(each) for each in (path, *path.parents)), path


def _met_again(folders: Iterable[Path]) -> list[str]:
    return [f"{name} (a second way to a folder)" for name in dict.fromkeys(folder.name for folder in folders)]
