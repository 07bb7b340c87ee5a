"""Answers for many users into one file, in atomically written groups of 10,000, so that a job can be resumed.

A folder `<name>.parts` beside the output holds the finished groups until all are done. Memory holds the rows that are
asked for, such as the ids of all users, and the answers of a group.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from beamwood.artefact.manifest import check_outside
from beamwood.artefact.only_one import only_one
from beamwood.artefact.replace import PARQUET_MARK, check_writable, whole_file
from beamwood.blocks import slices
from beamwood.data.files.offsets import has_offsets
from beamwood.errors import InputError, nearest
from beamwood.retrieval.batch.group_answers import Engine, Group, GroupOptions
from beamwood.retrieval.request import Request

__all__ = ["FORMATS", "GROUP_ROWS", "Job", "added_rows", "check_file", "count_by_rank"]

GROUP_ROWS = 10_000
"""Users of a group."""
_ABOUT = "job.json"
_SCANS: dict[str, Callable[[str], pl.LazyFrame]] = {
    ".parquet": pl.scan_parquet,
    ".csv": pl.scan_csv,
    ".jsonl": pl.scan_ndjson,
}
FORMATS = tuple(_SCANS)
"""Formats by file suffix; a line or row is one recommendation: query, rank, item, score."""
_COLUMNS = ("query", "rank", "item", "score")
_ENTRY = rf"{re.escape(_ABOUT)}|\d{{6,}}(?:{'|'.join(map(re.escape, FORMATS))})"
# What a job writes into its folder, the temporaries of killed writes included.
_OF_A_JOB = re.compile(rf"{_ENTRY}|\.(?:{_ENTRY})\.[0-9a-f]{{12}}\.saving")

# Progress: rows done, rows in total, rows a second.
Say = Callable[[int, int, float], None]


def check_file(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    resume: bool = False,
    option: str = "--out",
    columns: Sequence[str] = _COLUMNS,
) -> Path:
    """The path of an output, whose folder is created.

    Errors: an unknown suffix; a path in a saved folder; an existing file, or with `overwrite` one that is no earlier
    output, which begins with these `columns`.
    """
    target = Path(path)
    _check_suffix(target, option)
    check_outside(target)
    if os.path.isdir(target):
        raise InputError(f"{option} {target} is a folder; name a file in it")
    # A resumed job checked its output when it began.
    if os.path.exists(target) and not overwrite and not (resume and os.path.exists(_folder(target))):
        raise InputError(f"{option} {target} exists; pass --overwrite to replace it, or name another file")
    if os.path.exists(target) and not _is_output(target, columns):
        raise InputError(
            f"{option} {target} exists and is no earlier output of this command, so it is not replaced; name another "
            "file"
        )
    if os.path.exists(_folder(target)) and not (resume or overwrite):
        raise InputError(
            f"{_folder(target)} holds groups of an interrupted job; pass --resume to continue it, or "
            "--overwrite to start again"
        )
    # Last, as it writes beside what a link leads to.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        check_writable(target)
    except OSError as error:
        raise InputError(f"{option} {target} cannot be written ({error}); name another file") from error
    return target


def _check_suffix(target: Path, option: str = "--out") -> None:
    if target.suffix not in FORMATS:
        raise InputError(f"{option} {target} ends in {target.suffix!r}{nearest(target.suffix, FORMATS)}")


def _is_output(path: Path, columns: Sequence[str]) -> bool:
    """Whether a file is an older output: Parquet with the mark, or text of these columns alone; or is empty."""
    if not os.path.isfile(path):
        return False
    if path.stat().st_size == 0:
        return True
    try:
        if path.suffix == ".parquet":
            if has_offsets(path) or not PARQUET_MARK.items() <= pl.read_parquet_metadata(path).items():
                return False
            return list(pl.read_parquet_schema(path))[: len(columns)] == list(columns)
        with path.open("rb") as file:
            line = file.readline(2**16)
        names = list(json.loads(line)) if path.suffix == ".jsonl" else line.decode().strip().split(",")
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError):
        return False
    return names == list(columns)


@dataclass(frozen=True)
class Job:
    """`rows`: users or histories, one query each; `labels`: their names in the output, of the Polars `label_type`.

    `engine` computes the groups; `request`: the options. `origin` identifies the model: groups of another are not
    continued. `added`: those of the rows that a resumed job takes from the interrupted one, see `added_rows`.
    """

    engine: Engine
    request: Request
    rows: Sequence[Any]
    labels: Sequence[Any]
    by_users: bool
    label_type: Any
    origin: str
    threads: int = 1
    added: Sequence[int | str] = ()

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.labels):
            raise InputError(f"{len(self.rows)} rows and {len(self.labels)} labels; give one label a row")

    def run(self, target: str | os.PathLike[str], *, resume: bool = False, say: Say | None = None) -> int:
        """Write the file; returns the rows answered in this run.

        Errors: an unknown suffix; groups of another job; a folder of groups that holds other files.
        """
        target = Path(target)
        _check_suffix(target)
        folder = _folder(target)
        with _reporting(target), _held(folder):
            try:
                return self._run(target, folder, resume=resume, say=say)
            except InputError:
                # A job refused at its start leaves nothing to resume.
                if [entry.name for entry in folder.iterdir()] == [_ABOUT]:
                    shutil.rmtree(folder)
                raise

    def _run(self, target: Path, folder: Path, *, resume: bool, say: Say | None) -> int:
        self._prepare(folder, resume=resume)
        # Of no rows, an empty group has the columns and their types.
        cuts = list(slices(len(self.rows), GROUP_ROWS)) or [slice(0, 0)]
        parts = [folder / f"{number:06d}{target.suffix}" for number in range(len(cuts))]
        missing = [number for number, part in enumerate(parts) if not os.path.exists(part)]
        groups = (Group(number, self.rows[cuts[number]], self.labels[cuts[number]]) for number in missing)
        left = sum(cuts[number].stop - cuts[number].start for number in missing)
        began, answered, before = time.monotonic(), 0, len(self.rows) - left
        for number, encoded in self.engine(self._options(target), groups):
            with whole_file(parts[number]) as fresh:
                fresh.write_bytes(encoded)
            answered += cuts[number].stop - cuts[number].start
            if say is not None and answered > 0:
                say(before + answered, len(self.rows), answered / max(time.monotonic() - began, 1e-9))
        _join(parts, target)
        shutil.rmtree(folder)
        return answered

    def _options(self, target: Path) -> GroupOptions:
        plain = replace(self.request, histories=None, users=[])
        return GroupOptions(plain, self.by_users, self.label_type, target.suffix, self.threads)

    def _prepare(self, folder: Path, *, resume: bool) -> None:
        foreign = sorted(entry.name for entry in folder.iterdir() if not _OF_A_JOB.fullmatch(entry.name))
        if foreign:
            raise InputError(f"{folder} holds {foreign[0]}, which no job wrote; move it away, or name another --out")
        about = folder / _ABOUT
        identity = self._identity()
        if resume and os.path.exists(about):
            if _read(about).get("job") == identity:
                return
            raise InputError(f"{folder} holds groups of another job or model; pass --overwrite instead of --resume")
        # The identity is removed first and written last: after a kill groups belong to nobody, never to another job.
        about.unlink(missing_ok=True)
        for entry in folder.iterdir():
            entry.unlink()
        with whole_file(about) as fresh:
            fresh.write_text(json.dumps({"job": identity, "added": list(self.added)}))

    def _identity(self) -> str:
        """A digest of everything that the answers depend on."""
        shared = asdict(replace(self.request, histories=None, users=[]))
        digest = hashlib.sha256(repr((self.origin, self.by_users, _plain(shared), len(self.rows))).encode())
        for row, label in zip(self.rows, self.labels, strict=True):
            digest.update(repr((_plain(row), label)).encode() + b"\n")
        return digest.hexdigest()


def _plain(value: Any) -> Any:
    """The value with lists for arrays and series, whose own `repr` leaves out what is in the middle."""
    if isinstance(value, np.ndarray | pl.Series):
        return value.tolist() if isinstance(value, np.ndarray) else value.to_list()
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def added_rows(target: Path) -> list[int | str] | None:
    """The added rows of an interrupted job, None where there is none."""
    added = _read(_folder(target) / _ABOUT).get("added")
    return added if isinstance(added, list) else None


def _read(about: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(about.read_text())
        return found if isinstance(found, dict) else {}
    return {}


def count_by_rank(target: Path, *ranks: int) -> list[int]:
    """How many queries of an output have a recommendation at each rank."""
    if target.stat().st_size == 0:
        return [0] * len(ranks)
    counts = [(pl.col("rank") == rank).sum().alias(str(place)) for place, rank in enumerate(ranks)]
    written = _SCANS[target.suffix](glob.escape(str(target)))
    return list(written.select(counts).collect(engine="streaming").row(0))


def _folder(target: Path) -> Path:
    return target.with_name(f"{target.name}.parts")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock the folder of groups. Errors: another process holds it."""
    folder.mkdir(exist_ok=True)
    with only_one(folder, "wait for it, or name another --out"):
        yield


@contextmanager
def _reporting(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"--out {target} could not be written ({error}); finished groups are kept: fix that, and run the same "
            "command with --resume"
        ) from error


def _join(parts: Sequence[Path], target: Path) -> None:
    """Concatenate the groups into a temporary file, which then replaces the target."""
    with whole_file(target) as fresh:
        if target.suffix == ".parquet":
            pl.scan_parquet([*parts], glob=False).sink_parquet(fresh, metadata=PARQUET_MARK)
            return
        with fresh.open("wb") as file:
            if target.suffix == ".csv":
                file.write(",".join(_COLUMNS).encode() + b"\n")
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file)
