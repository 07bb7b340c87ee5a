"""Makes missing runs, one heavy job at a time; an interrupted run resumes, and each finished run appends a line."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.artefact import read_manifest
from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.plan import Facts
from benchmarks import origin
from benchmarks.job import Job, Measured
from benchmarks.lines import Line, Lines
from benchmarks.logs import data_folder, split_of
from benchmarks.measure import ONE_THREAD
from benchmarks.plans import plan_of
from benchmarks.recipes import RECIPES
from benchmarks.suite import Row, Run, Suite
from benchmarks.timing import AVX2

__all__ = ["Bench", "Place"]

_NONE: Mapping[str, Path] = MappingProxyType({})


@dataclass(frozen=True)
class Place:
    """A checkout: the suite, the committed lines, and `work`, the folder of fitted models, which git ignores.

    `short`: the suite that takes minutes, whose lines are not committed.
    """

    root: Path
    short: bool = False

    @property
    def suite(self) -> Path:
        return self.root / "benchmarks" / ("short.toml" if self.short else "suite.toml")

    @property
    def lines(self) -> Path:
        return self.root / "runs" / "short" / "lines" if self.short else self.root / "benchmarks" / "runs"

    @property
    def work(self) -> Path:
        return self.root / "runs" / ("short" if self.short else "benchmarks")


class Bench:
    """The suite at a place, and the runs made so far."""

    def __init__(self, place: Place) -> None:
        self.place, self.suite, self.lines = place, Suite.read(place.suite), Lines(place.lines)

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """The runs without a line, in the order of the suite."""
        return [run for run in runs if self.lines.get(run) is None]

    def stale(self, runs: Iterable[Run]) -> list[Run]:
        """The runs whose line has another recipe or resolved plan than the suite, or is older than a line's it starts
        from."""
        return [run for run in runs if (line := self.lines.get(run)) is not None and self.is_stale(run, line)]

    def is_stale(self, run: Run, line: Line) -> bool:
        """Whether a run's line is stale; see `stale`."""
        return not line.is_planned(self.suite.row(run)) or bool(self.lines.newer_starts(line))

    def make(self, run: Run, given: Mapping[str, Path] = _NONE) -> None:
        """Make a run in this process and append its line; `given`: folders by setting, used instead of those of runs.

        Errors: the log is not available, and those of the method's fit.
        """
        split = self._split(run)
        measured, row = self._measured(run, split, self.work(run), given), self.suite.row(run)
        keep = self.suite.topics[run.topic].keep
        values = {n: column for n, column in measured.values.items() if any(fnmatchcase(n, each) for each in keep)}
        self.lines.append(self._line(run, row, split, measured, self._names(run, given), bool(values)), values)

    def fit_starts(self, run: Run, given: Mapping[str, Path] = _NONE) -> None:
        """Fit in this process what a run starts from, unless its folder is there or given."""
        split = self._split(run)
        for setting, other in self.suite.before(run).items():
            if setting not in given:
                self._fitted(other, split)

    def again(self, run: Run) -> tuple[Measured, Mapping[str, NDArray[np.float64]]]:
        """Repeat a run and delete the model it fitted; return the new results and the stored values by user.

        Errors: the run has no line, or its line has no such values.
        """
        line = self.lines.get(run)
        if line is None:
            raise InputError(f"{run.name} has no line to verify; make it with `python -m benchmarks run`")
        if line.values is None:
            raise InputError(f"{run.name} has no values by user to compare; name a run whose topic keeps them")
        work = self.place.work / "verify" / run.name
        shutil.rmtree(work, ignore_errors=True)
        try:
            return self._measured(run, self._split(run), work), self.lines.values(line)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def work(self, run: Run) -> Path:
        """The folder of a run's checkpoints and its fitted retriever."""
        return self.place.work / run.name

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of this checkout, so that no other run starts. Errors: another run is in progress."""
        self.place.work.mkdir(parents=True, exist_ok=True)
        with open(self.place.work / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError("another run of this checkout is in progress; wait for it or stop it") from error
            yield

    def in_process(self, run: Run, given: Mapping[str, Path] = _NONE) -> bool:
        """Make a run in a separate process, to measure its memory and enforce its limit; return whether it finished.

        What it starts from is fitted in a process before it, whose memory is not the run's.
        """
        starts = self.suite.before(run).keys() - given.keys()
        return (not starts or self._finishes("starts", run, given)) and self._finishes("one", run, given)

    def _finishes(self, work: str, run: Run, given: Mapping[str, Path]) -> bool:
        """Whether this command for the run finished in a process of its own."""
        row = self.suite.row(run)
        limit, environment = row.limit, ONE_THREAD | (AVX2 if row.recipe == "answers" else {})
        command = [sys.executable, "-m", "benchmarks", work, run.name, "--root", str(self.place.root)]
        command += ["--short"] if self.place.short else []
        command += [part for name, path in given.items() for part in ("--folder", f"{name}={path}")]
        # The output of a run goes to stderr, so that stdout has only what the caller prints.
        process = subprocess.Popen(command, env=os.environ | environment, stdout=2)
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            print(f"{run.name}: stopped after {limit:g} seconds; run it again to resume", flush=True)
            code = _stopped(process)
        except KeyboardInterrupt:
            _stopped(process)
            raise
        self.lines = Lines(self.place.lines)
        return code == 0

    def _split(self, run: Run) -> Split:
        return split_of(self.suite.logs[run.log], data_folder(self.place.root))

    def _measured(self, run: Run, split: Split, work: Path, given: Mapping[str, Path] = _NONE) -> Measured:
        row = self.suite.row(run)
        if row.recipe not in RECIPES:
            raise InputError(f"{run.name}: recipe='{row.recipe}' is unknown{nearest(row.recipe, RECIPES)}")
        before = self.suite.before(run).items()
        folders = {setting: given.get(setting) or self._fitted(other, split) for setting, other in before}
        ks = tuple(self.suite.topics[run.topic].ks)
        return RECIPES[row.recipe](Job(self.suite.logs[run.log], split, row, run.seed, ks, work, folders))

    def _fitted(self, run: Run, split: Split) -> Path:
        """The folder of a run's fit; it is fitted again if the folder is missing or has another plan."""
        job = Job(self.suite.logs[run.log], split, self.suite.row(run), run.seed, (), self.work(run))
        plan = self._plan(run, job.row, split)
        if not _is_of(job.saved, plan):
            print(f"{run.name} is fitted first: its folder is missing or has other settings", flush=True)
            begun = job.work / "begun.json"
            # An interrupted training of the same plan resumes.
            if not (begun.is_file() and json.loads(begun.read_text()) == json.loads(json.dumps(plan))):
                shutil.rmtree(job.work, ignore_errors=True)
                job.work.mkdir(parents=True)
                begun.write_text(json.dumps(plan))
            self._measured(run, split, job.work)
            _mark(job.saved, plan)
        return job.saved

    def _plan(self, run: Run, row: Row, split: Split) -> dict[str, Any]:
        return plan_of(row, self._names(run), Facts.of(split.train))

    def _names(self, run: Run, given: Mapping[str, Path] = _NONE) -> dict[str, str]:
        """What a run starts from, by setting: the name of a run, or the description of a folder that was given."""
        names = {setting: other.name for setting, other in self.suite.before(run).items()}
        return names | {setting: _described(folder) for setting, folder in given.items()}

    def _line(
        self, run: Run, row: Row, split: Split, measured: Measured, before: dict[str, str], has_values: bool
    ) -> Line:
        facts = Facts.of(split.train)
        plan = plan_of(row, before, facts)
        _mark(self.work(run) / "fitted", plan)
        return Line(
            name=run.name,
            topic=run.topic,
            log=run.log,
            row=run.row,
            seed=run.seed,
            recipe=row.recipe,
            arguments=row.model_dump(mode="json", exclude_defaults=True, exclude={"on", "logs", "title", "limit"}),
            before=before,
            commit=origin.commit(Path(__file__).parents[1]),
            source=origin.source_digest(),
            date=date.today().isoformat(),
            versions=origin.versions(),
            machine=origin.machine(),
            data={"fingerprint": split.dataset.fingerprint(), "rows": len(split.dataset.histories.items)}
            | {"users": len(split.dataset.users), "items": len(split.dataset.items), "split": split.rule},
            facts={name: getattr(facts, name) for name in Facts.__dataclass_fields__},
            plan=plan,
            training=measured.training,
            seconds={name: round(value, 1) for name, value in measured.seconds.items()},
            peak_mib=origin.peak_mib(),
            queries=measured.queries,
            figures={name: round(value, 8) for name, value in measured.figures.items()},
            values=f"{run.topic}/{run.log}-{run.row}-{run.seed}.npz" if has_values else None,
        )


def _is_of(folder: Path, plan: Mapping[str, Any]) -> bool:
    """Whether a folder holds a retriever of this plan."""
    try:
        read_manifest(folder)
        return bool(json.loads((folder.parent / "plan.json").read_text()) == json.loads(json.dumps(plan)))
    except (OSError, ValueError):
        return False


def _described(folder: Path) -> str:
    """The description of a given folder, from its manifest."""
    manifest = read_manifest(folder)
    return f"a folder of {manifest.get('method')}, seed {manifest.get('seed')}, of {manifest.get('created')}"


def _mark(folder: Path, plan: Mapping[str, Any]) -> None:
    """Write the plan of a folder next to it."""
    if folder.is_dir():
        (folder.parent / "plan.json").write_text(json.dumps(plan))


def _stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
