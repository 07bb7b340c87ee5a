"""What a search keeps on the disk as it goes: what was measured, and what was fitted, so that it can go on later."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever
from beamwood.types import FloatArray

__all__ = ["Measured", "Parts"]

_STATE, _VALUES, _MARK = "search.json", "values.npz", {"beamwood": "search"}


@dataclass(slots=True)
class Measured:
    """One look, or one blend, as it was measured.

    `name`, of a blend the sum; `value` the metric, None where it brought nothing, and `why`, and the seconds that it
    `needs` where these were too few; `seconds` of the look; `judging`, how many of these the validation users took;
    `trained`: those of all training so far; `milliseconds` and `megabytes` of an answer; `weights`, of a blend those of
    each part behind the first.
    """

    name: str
    parts: tuple[str, ...]
    value: float | None = None
    seconds: float = 0.0
    judging: float = 0.0
    trained: float = 0.0
    milliseconds: float = 0.0
    megabytes: float = 0.0
    ended: bool = False
    why: str | None = None
    needs: float | None = None
    weights: list[dict[str, float]] = field(default_factory=list)


class Parts:
    """The folder of a search: its state, a fitted retriever for each member, and the run of each training.

    `made_of`: what a later search in it must be alike in; `judges`: how many validation users judge, 0 before it is
    known. One process at a time holds it. Errors (`InputError`): a
    folder of others, one of another log, split or seed, one that exists without `resume` or `overwrite`.
    """

    def __init__(self, path: Path, made_of: Mapping[str, Any]) -> None:
        self.path, self.made_of = path, dict(made_of)
        self.seconds, self.judges = 0.0, 0
        self.measured: list[Measured] = []
        self.values: dict[str, FloatArray] = {}
        self._fitted: dict[str, Retriever] = {}

    @contextmanager
    def held(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Keep other processes out, and take up what is there."""
        if resume and not self.path.is_dir():
            raise InputError(f"{self.path} does not exist, so there is nothing to resume; run without --resume")
        self._check(resume=resume, overwrite=overwrite)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise InputError(f"{self.path} cannot hold a search ({error}); choose another folder") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{self.path} is in use by another process; wait for it or choose another folder"
                ) from None
            if resume:
                self._take_up()
            else:
                self._clear()
            yield
        finally:
            os.close(descriptor)

    def run_of(self, name: str) -> Path:
        """Where a member's training keeps its checkpoints."""
        return self.path / f"{name}.run"

    def add(self, measured: Measured, seconds: float, values: FloatArray | None = None) -> None:
        """Note what was measured, and the seconds of the search so far."""
        self.measured.append(measured)
        if values is not None:
            self.values[measured.name] = values
        self.write(seconds)

    def write(self, seconds: float) -> None:
        """Put the state on the disk, whole or not at all."""
        self.seconds = seconds
        with self._fresh(_VALUES) as fresh, fresh.open("wb") as stream:
            np.savez(stream, **self.values)  # type: ignore[arg-type]
        state = _MARK | {"made_of": self.made_of, "seconds": seconds, "judges": self.judges}
        state |= {"measured": [asdict(each) for each in self.measured]}
        with self._fresh(_STATE) as fresh:
            fresh.write_text(json.dumps(state, indent=2) + "\n")

    def keep(self, name: str, fitted: Retriever) -> None:
        """Save what a member brought, in place of what it brought before, and forget the blends of that."""
        stale = [each.name for each in self.measured if len(each.parts) > 1 and name in each.parts]
        self.measured = [each for each in self.measured if each.name not in stale]
        self.values = {own: values for own, values in self.values.items() if own not in stale}
        fitted.save(self.path / name, overwrite=True)
        self._fitted[name] = fitted

    def fitted(self, name: str) -> Retriever:
        """What a member brought at its best."""
        if name not in self._fitted:
            self._fitted[name] = Retriever.load(self.path / name)
        return self._fitted[name]

    @contextmanager
    def _fresh(self, name: str) -> Iterator[Path]:
        fresh = self.path / f"{name}.new"
        yield fresh
        os.replace(fresh, self.path / name)

    def _check(self, *, resume: bool, overwrite: bool) -> None:
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            return
        if self._state() is None:
            raise InputError(
                f"{self.path} holds no search of beamwood's, so nothing in it is touched; move it away, or choose "
                "another output folder"
            )
        if not (resume or overwrite):
            raise InputError(
                f"{self.path} already holds a search; pass --resume to go on with it, or --overwrite to start anew"
            )

    def _state(self) -> dict[str, Any] | None:
        """What the folder says; None where it is none of ours."""
        try:
            state = json.loads((self.path / _STATE).read_text())
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) and state.items() >= _MARK.items() else None

    def _take_up(self) -> None:
        state = self._state()
        if state is None:
            return
        found = json.loads(json.dumps(self.made_of))
        for key, value in state["made_of"].items():
            if found.get(key) != value:
                raise InputError(
                    f"{self.path} was searched with another {key} ({value}, not {found.get(key)}); resume with the "
                    "same, or start anew in another folder"
                )
        try:
            self.measured = [_measured(each) for each in state["measured"]]
            self.seconds, self.judges = float(state["seconds"]), int(state["judges"])
            with np.load(self.path / _VALUES, allow_pickle=False) as values:
                self.values = {name: values[name] for name in values.files}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.path / _STATE} is damaged ({error}); start anew with --overwrite") from None

    def _clear(self) -> None:
        """Remove what an earlier search left; the state goes last, so that a kill leaves a folder of ours."""
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry.name == _STATE):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.write(0.0)


def _measured(stored: dict[str, Any]) -> Measured:
    """As it was written. Errors: keys that are none, or lacking ones."""
    return Measured(**(stored | {"parts": tuple(stored["parts"])}))
