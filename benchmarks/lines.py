"""Measurements as data: one JSON line for each run in `runs/<topic>.jsonl`, and files with the values by user.

Of several lines with one name the last counts; lines are never changed.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from beamwood.artefact.replace import whole_file
from beamwood.errors import InputError, first_problem
from beamwood.fitting.plan import Facts
from benchmarks.plans import plan_of
from benchmarks.suite import Row, Run

__all__ = ["Line", "Lines"]


class Line(BaseModel):
    """The record of one run.

    `commit`: the last commit that changed the package's source; `source`: the digest of that source. `arguments`: the
    suite's row at that time. `before`: the runs whose folders it started from. `facts`: properties of the training
    data that the plan depends on. `plan`: resolved settings, without automatic values. `seconds`: wall and processor
    time of the fit (no processor time if it was resumed), and time of the evaluation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    topic: str
    log: str
    row: str
    seed: int
    recipe: str
    arguments: dict[str, Any]
    before: dict[str, str]
    commit: str | None
    source: str
    date: str
    versions: dict[str, str]
    machine: dict[str, Any]
    data: dict[str, Any]
    facts: dict[str, Any]
    plan: dict[str, Any]
    training: dict[str, Any]
    seconds: dict[str, float]
    peak_mib: int
    queries: int
    figures: dict[str, float]
    values: str | None

    def is_planned(self, row: Row) -> bool:
        """Whether the row still has the recipe and the resolved plan of this line."""
        try:
            plan = plan_of(row, self.before, Facts(**self.facts))
        except (InputError, ValueError, TypeError):
            return False
        return row.recipe == self.recipe and json.loads(json.dumps(plan)) == self.plan


class Lines:
    """The committed lines of a folder, read once; `append` adds one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._latest: dict[str, Line] = {}
        for file in sorted(folder.glob("*.jsonl")):
            for number, text in enumerate(file.read_text().splitlines(), start=1):
                line = _parsed(file, number, text)
                self._latest[line.name] = line

    def __iter__(self) -> Iterator[Line]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)

    def get(self, run: Run) -> Line | None:
        """The line of a run; None if it has not been made."""
        return self._latest.get(run.name)

    def newer_starts(self, line: Line) -> list[str]:
        """The settings whose run, which the line's fit started from, has a line of a later day: another fit."""
        starts = ((setting, self._latest.get(name)) for setting, name in line.before.items())
        return [setting for setting, start in starts if start is not None and start.date > line.date]

    def values(self, line: Line) -> Mapping[str, NDArray[np.float64]]:
        """The value of each user, by figure. Errors: the file is missing or invalid."""
        if line.values is None:
            return {}
        path = self.folder / line.values
        try:
            with np.load(path) as stored:
                return {name: stored[name].astype(np.float64) for name in stored.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path}, the values of {line.name}, cannot be read: {error}; restore it from git"
            ) from error

    def append(self, line: Line, values: Mapping[str, NDArray[np.float64]]) -> None:
        """Write the values and then the line; an interruption leaves no line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if line.values is not None:
            path = self.folder / line.values
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as fresh, fresh.open("wb") as file:
                np.savez_compressed(file, **{name: column.astype(np.float32) for name, column in values.items()})
        with open(self.folder / f"{line.topic}.jsonl", "a") as file:
            file.write(line.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._latest[line.name] = line


def _parsed(file: Path, number: int, text: str) -> Line:
    try:
        return Line.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"{file}, line {number}: {first_problem(error)}; remove the invalid line") from error
