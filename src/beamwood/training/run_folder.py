"""The folder of a training run: `config.json`, `metrics.jsonl` and `checkpoint/`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beamwood.errors import InputError
from beamwood.training.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["RunFolder"]


class RunFolder:
    """Where a run leaves its configuration, its metrics and its newest checkpoint.

    The metrics file only ever says what the checkpoint knows or what came after it: a resumed run cuts it back to the
    checkpoint and writes the lines anew.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoint_path = self.path / "checkpoint"
        self.metrics_path = self.path / "metrics.jsonl"
        self.config_path = self.path / "config.json"

    @property
    def holds_a_run(self) -> bool:
        """Whether anything was trained here before."""
        return self.checkpoint_path.exists() or self.metrics_path.exists()

    def clear(self) -> None:
        """Remove an earlier run's files, and nothing else."""
        shutil.rmtree(self.checkpoint_path, ignore_errors=True)
        for file in (self.metrics_path, self.config_path):
            file.unlink(missing_ok=True)

    def write_config(self, config: Mapping[str, Any], *, resume: bool, may_differ: tuple[str, ...] = ()) -> None:
        """Keep the configuration; on `resume` an earlier one must agree in all keys but those of `may_differ`.

        Raises `InputError` naming the first key that differs.
        """
        found = json.loads(json.dumps(dict(config)))
        if resume and self.config_path.exists():
            before = json.loads(self.config_path.read_text())
            for key in sorted(set(before) | set(found)):
                if before.get(key) != found.get(key) and key not in may_differ:
                    raise InputError(
                        f"{self.path} was trained with {key}={before.get(key)!r}, now it is {found.get(key)!r}; "
                        f"resume with the same configuration, or start a new run in another folder"
                    )
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = self.config_path.with_suffix(".new")
        fresh.write_text(json.dumps(found, indent=2) + "\n")
        os.replace(fresh, self.config_path)

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[RunLog]:
        """Hold the folder for one run; raises `InputError` when it holds a run already and `resume` is False."""
        if resume and not self.path.exists():
            raise InputError(f"{self.path} does not exist, so there is nothing to resume; run without --resume")
        if not resume and self.holds_a_run:
            raise InputError(
                f"{self.path} already holds a run; pass --resume to go on with it, or --overwrite to start anew"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise InputError(f"{self.path} cannot hold a run ({error}); choose another folder") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{self.path} is in use by another process that trains in it; wait for it or choose another folder"
                ) from None
            state = load_checkpoint(self.checkpoint_path) if resume and self._can_resume() else None
            log = RunLog(self, state)
            try:
                yield log
            finally:
                log.close()
        finally:
            os.close(descriptor)

    def _can_resume(self) -> bool:
        # A kill between two renames leaves the checkpoint aside; reading it brings it back.
        return self.checkpoint_path.exists() or any(self.path.glob(".checkpoint.*.aside"))


class RunLog:
    """The open metrics file of a run and its checkpoints; `state` is what the newest one held, None without any."""

    def __init__(self, folder: RunFolder, state: dict[str, Any] | None) -> None:
        self.folder = folder
        self.state = None if state is None else state["run"]
        position = 0 if state is None else state["metrics_bytes"]
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
        """Add one line to `metrics.jsonl`."""
        self._stream.write(json.dumps(dict(record)).encode() + b"\n")
        self._stream.flush()

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint, whole or not at all; the lines it knows of are on the disk before it is."""
        os.fsync(self._stream.fileno())
        save_checkpoint(
            self.folder.checkpoint_path, {"metrics_bytes": os.fstat(self._stream.fileno()).st_size, "run": state}
        )

    def close(self) -> None:
        """Close the metrics file."""
        self._stream.close()
