"""The folder of a training run: `config.json`, `metrics.jsonl` and `checkpoint/`, locked by one process at a time."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any

from beamwood.artefact.only_one import only_one
from beamwood.artefact.replace import clean, whole_file
from beamwood.errors import InputError, NotSavedError, is_of_full_disk
from beamwood.training.checkpoint import (
    check_replaceable,
    load_checkpoint,
    remove_checkpoint,
    resuming,
    save_checkpoint,
)
from beamwood.training.tensorboard import TensorBoardWriter

__all__ = ["RunFolder", "RunLog", "RunRecord"]

# Settings that may differ in a resumed run.
_BOUNDS = ("loop.max_steps", "loop.max_epochs", "loop.patience", "loop.device")
# The mark in `config.json` of a folder written by beamwood.
_MARK = {"beamwood": "run"}
# Entries that may exist before `config.json`: a stored estimator, and temporary files of a killed process.
_UNMARKED = re.compile(r"estimator|estimator\.run|\.(config\.json|checkpoint|estimator)\.[0-9a-f]{12}\.saving")


class RunFolder:
    """The folder of a run: its configuration, metrics and latest checkpoint.

    A resumed run truncates the metrics file to the lines before the checkpoint, and writes the later ones again. With
    `overwrite` a new run may replace an earlier one; a folder that beamwood did not write is never changed.
    `tensorboard`: a second folder that receives the metrics as TensorBoard events. Errors: that one is a file, or
    TensorBoard is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        tensorboard: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.tensorboard = None if tensorboard is None else TensorBoardWriter(tensorboard)
        self.overwrite = overwrite
        self.checkpoint_path = self.path / "checkpoint"
        self.metrics_path = self.path / "metrics.jsonl"
        self.config_path = self.path / "config.json"
        self._is_locked = False
        self._method: dict[str, str | None] = {}

    def of_method(self, name: str, sha256: str | None) -> RunFolder:
        """The same folder, which only a fit of this method resumes; `sha256`: of its file.

        The outermost method counts where one fits another.
        """
        own = copy.copy(self)
        own._method = {"method name": name, "method sha256": sha256} | self._method
        return own

    @property
    def holds_a_run(self) -> bool:
        """Whether the folder contains a checkpoint or metrics."""
        return os.path.exists(self.checkpoint_path) or os.path.exists(self.metrics_path)

    def stored_config(self) -> dict[str, Any]:
        """The stored configuration, empty where there is none. Errors: a folder that beamwood did not write."""
        return self._read_config() if os.path.exists(self.config_path) else {}

    def check(self, *, resume: bool) -> None:
        """Raise what `locked` would, without creating anything; for a check before data are prepared."""
        if resume or os.path.exists(self.path):
            with self.locked(resume=resume):
                pass

    @contextmanager
    def locked(self, *, resume: bool) -> Iterator[None]:
        """A context in which the folder is locked against other processes; nested uses have no further effect.

        Raises `InputError` where another process trains in it, where there is nothing to resume, and where it contains
        files that a new run may not replace.
        """
        if self._is_locked:
            yield
            return
        if resume and not os.path.exists(self.path):
            raise InputError(f"{self.path} does not exist, so there is nothing to resume; run without --resume")
        with self._reporting():
            self.path.mkdir(parents=True, exist_ok=True)
        with only_one(self.path, "wait until it has trained, or choose another folder"):
            self._check_content(resume=resume)
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    @contextmanager
    def open(self, *, resume: bool, config: Mapping[str, Any] | None = None) -> Iterator[RunLog]:
        """A context in which the folder is locked for one run; yields its log.

        A new run's configuration is stored; on `resume` it must agree with the stored one in all keys but `_BOUNDS`.
        Raises what `locked` does, and `InputError` naming the first key that differs.
        """
        with self.locked(resume=resume):
            with self._reporting():
                clean(self.checkpoint_path)
                clean(self.config_path)
            if not resume:
                self.clear()
            state = load_checkpoint(self.checkpoint_path) if resume and self._can_resume() else None
            with self._reporting():
                self._store_config(config or {}, resume=resume)
                log = RunLog(self, state)
            with closing(log):
                yield log

    def clear(self) -> None:
        """Remove an earlier run's files, and nothing else; only while the folder is locked."""
        assert self._is_locked, "another process may train here"
        with self._reporting():
            remove_checkpoint(self.checkpoint_path)
            # The mark is removed last, so that the next run can clear the rest after a kill.
            self.metrics_path.unlink(missing_ok=True)
            self.config_path.unlink(missing_ok=True)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = "free some space" if is_of_full_disk(error) else "move away what is there, or choose another folder"
            raise NotSavedError(f"{self.path} cannot hold a run ({error}); {fix}") from error

    def _check_content(self, *, resume: bool) -> None:
        if any(_UNMARKED.fullmatch(path.name) is None for path in self.path.iterdir()):
            self._read_config()
        if not resume and self.overwrite:
            check_replaceable(self.checkpoint_path)
        if not resume and not self.overwrite and self.holds_a_run:
            raise InputError(
                f"{self.path} already holds a run; pass --resume to go on with it, or --overwrite to start anew"
            )

    def _read_config(self) -> dict[str, Any]:
        fix = "so nothing in this folder is touched; move it away, or choose another output folder"
        try:
            config = json.loads(self.config_path.read_bytes())
        except FileNotFoundError:
            raise InputError(f"{self.path} holds files but no config.json of a run, {fix}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.config_path} is damaged or not of a run ({error}), {fix}") from None
        if not isinstance(config, dict) or not config.items() >= _MARK.items():
            raise InputError(f"{self.config_path} was not written by beamwood, {fix}")
        return config

    def _store_config(self, config: Mapping[str, Any], *, resume: bool) -> None:
        found = json.loads(json.dumps(_MARK | self._method | dict(config)))
        if resume and os.path.exists(self.config_path):
            before = self._read_config()
            # Another method has other settings, so the method is named first.
            for key in sorted(set(before) | set(found), key=lambda key: (not key.startswith("method"), key)):
                if before.get(key) != found.get(key) and key not in _BOUNDS:
                    raise InputError(
                        f"{self.path} was trained {_difference(key, before.get(key), found.get(key))}; resume with the "
                        f"same, or start a new run in another folder"
                    )
        with whole_file(self.config_path) as fresh:
            fresh.write_text(json.dumps(found, indent=2) + "\n")

    def _can_resume(self) -> bool:
        # A kill between two renames leaves the checkpoint aside; loading it restores it.
        return os.path.exists(self.checkpoint_path) or any(self.path.glob(".checkpoint.*.aside"))


def _difference(key: str, before: Any, now: Any) -> str:
    if key == "data":
        return "on another log or item table than these, or their content has changed"
    if key == "tables":
        return "with other columns of items, users or context than these, or their content has changed"
    if key.startswith("content of "):
        return f"with another model in the folder of {key.removeprefix('content of ')} than the one that is there now"
    if key == "method sha256":
        return "with another method file than this one, or its content has changed"
    if key == "split":
        return f"on another split than this one ({before})"
    return f"with {key}={before!r}, now it is {now!r}"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The folder in which a run is recorded, the run's configuration, and whether it is resumed.

    Errors: see `RunFolder.open`.
    """

    folder: RunFolder
    config: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False

    def open(self) -> AbstractContextManager[RunLog]:
        """`RunFolder.open` for this run."""
        return self.folder.open(resume=self.resume, config=self.config)


class RunLog:
    """The open metrics file of a run, and its checkpoints; `state`: of the latest checkpoint, None without one."""

    def __init__(self, folder: RunFolder, state: dict[str, Any] | None) -> None:
        self.folder = folder
        with resuming(folder.checkpoint_path):
            self.state = None if state is None else dict(state["run"])
            position = 0 if state is None else index(state["metrics_bytes"])
            if position < 0:
                raise ValueError(f"metrics_bytes={position} is below 0")
        self._stream = folder.metrics_path.open("ab")
        if self._stream.tell() < position:
            size = self._stream.tell()
            self._stream.close()
            raise InputError(
                f"{folder.metrics_path} has {size} bytes, its checkpoint knows of {position}; put the file back, or "
                f"start a new run in another folder"
            )
        self._stream.truncate(position)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl`. Errors: `NotSavedError`."""
        try:
            self._stream.write(json.dumps(dict(record)).encode() + b"\n")
            self._stream.flush()
        except OSError as error:
            path = self.folder.metrics_path
            raise NotSavedError(
                f"{path} could not be written ({error}); free some space, and continue with --resume"
            ) from error
        if self.folder.tensorboard is not None:
            self.folder.tensorboard.write(record)

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint atomically; the lines it refers to are synced first."""
        os.fsync(self._stream.fileno())
        save_checkpoint(
            self.folder.checkpoint_path, {"metrics_bytes": os.fstat(self._stream.fileno()).st_size, "run": state}
        )

    def close(self) -> None:
        """Close the metrics file."""
        self._stream.close()
        if self.folder.tensorboard is not None:
            self.folder.tensorboard.close()
