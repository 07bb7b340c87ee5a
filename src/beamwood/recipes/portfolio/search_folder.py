"""The folder of a search: measurements and fitted models, stored during the search so that it can be resumed."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, with_config

from beamwood.artefact.manifest import MANIFEST
from beamwood.artefact.only_one import only_one
from beamwood.artefact.replace import clean, whole_file
from beamwood.errors import InputError, first_problem
from beamwood.retrieval.retriever import Retriever
from beamwood.types import FloatArray

__all__ = ["SearchFolder", "Trial"]

_WAIT = "wait until it has ended, or choose another folder"
_STATE, _MARK = "search.json", {"beamwood": "search"}


@with_config(ConfigDict(extra="forbid"))
@dataclass(slots=True)
class Trial:
    """One measured look or blend.

    `name`: of the member, or the sum of names; `value`: the metric, None without a result; `why`: then the reason, and
    `needs`: the seconds that were missing, if these are the reason. `seconds`: of the look; `evaluation_seconds`: of
    its evaluation; `trained`: of all training so far. `milliseconds` and `megabytes`: the cost of an answer. `weights`:
    of each part of a blend behind the first. `folders`: of the model of each part, none without a result.
    """

    name: str
    parts: tuple[str, ...]
    value: float | None = None
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    trained: float = 0.0
    milliseconds: float = 0.0
    megabytes: float = 0.0
    ended: bool = False
    why: str | None = None
    needs: float | None = None
    weights: list[dict[str, float]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


class _State(BaseModel):
    """The stored state; see `SearchFolder`."""

    made_of: dict[str, Any]
    seconds: float
    validation_users: int
    measured: list[Trial]
    values: dict[str, list[float]]


class SearchFolder:
    """The folder of a search: its state, a fitted retriever for each member, and the run of each training.

    The state is one file that is replaced atomically. A fitted model is saved under a new name, and is valid once the
    state lists it, so a kill loses nothing that is recorded. `made_of`: what a resumed search must have in common;
    `validation_users`: the number of validation users, 0 before it is known. One process at a time locks it. Errors
    (`InputError`): a foreign folder, one of another log, split or seed, an existing one without `resume` or
    `overwrite`.
    """

    def __init__(self, path: Path, made_of: Mapping[str, Any]) -> None:
        self.path, self.made_of = path, dict(made_of)
        self.seconds, self.validation_users = 0.0, 0
        self.trials: list[Trial] = []
        self.values: dict[str, FloatArray] = {}
        self._fitted: dict[str, Retriever] = {}

    @contextmanager
    def locked(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """A context in which the folder is locked and its state loaded."""
        self.check(resume=resume, overwrite=overwrite)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path} cannot hold a search ({error}); choose another folder") from error
        with only_one(self.path, _WAIT):
            clean(self.path / _STATE)
            if resume:
                self._load()
            else:
                self._clear()
            yield

    def run_of(self, name: str) -> Path:
        """The folder of a member's checkpoints."""
        return self.path / f"{name}.run"

    def add(
        self, trial: Trial, seconds: float, values: FloatArray | None = None, fitted: Retriever | None = None
    ) -> None:
        """Store a trial, and the seconds of the search so far.

        `fitted` replaces the member's earlier model, which is kept as long as the best of a blend has it.
        """
        if fitted is not None:
            trial.folders = [self._save(trial.name, fitted)]
        if values is not None:
            self.values[trial.name] = values
        self.trials = [*self.trials, trial]
        self.write(seconds)

    def write(self, seconds: float) -> None:
        """Write the state atomically, and remove models that were replaced, or that a kill left half saved."""
        self.seconds = seconds
        state = _MARK | {"made_of": self.made_of, "seconds": seconds, "validation_users": self.validation_users}
        state |= {"measured": [asdict(each) for each in self.trials]}
        state |= {"values": {name: values.tolist() for name, values in self.values.items()}}
        try:
            with whole_file(self.path / _STATE) as fresh:
                fresh.write_text(json.dumps(state) + "\n")
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({error}); what the search has found is kept: mend that, and run the "
                "same command with --resume"
            ) from error
        best = map(self.kept, {each.name for each in self.trials})
        kept = {folder for each in best if each is not None for folder in each.folders}
        self._fitted = {folder: fitted for folder, fitted in self._fitted.items() if folder in kept}
        looks = Counter(each.name for each in self.trials)
        for name, count in looks.items():
            for folder in {_folder_of(name, look) for look in range(count + 1)} - kept:
                shutil.rmtree(self.path / folder, ignore_errors=True)

    def kept(self, name: str) -> Trial | None:
        """The last trial with the best stored model of a member, or models of a blend; None without one."""
        return next((each for each in reversed(self.trials) if each.name == name and each.folders), None)

    def model(self, folder: str) -> Retriever:
        """The model in one of a trial's folders."""
        if folder not in self._fitted:
            self._fitted[folder] = Retriever.load(self.path / folder)
        return self._fitted[folder]

    def tried(self) -> set[tuple[str, ...]]:
        """The parts of all that was tried since any of them got its best model."""
        tried: set[tuple[str, ...]] = set()
        latest: dict[str, list[str]] = {}
        for each in self.trials:
            if len(each.parts) == 1 and each.folders and latest.get(each.name) != each.folders:
                latest[each.name] = each.folders
                tried = {parts for parts in tried if each.name not in parts}
            tried.add(each.parts)
        return tried

    def _save(self, name: str, fitted: Retriever) -> str:
        """Save it under a name that the state does not list yet."""
        folder = _folder_of(name, sum(each.name == name for each in self.trials))
        fitted.save(self.path / folder, overwrite=True)
        self._fitted[folder] = fitted
        return folder

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Errors: nothing to resume, what is no search, and a search that is neither resumed nor overwritten."""
        if resume and not os.path.isdir(self.path):
            raise InputError(f"{self.path} does not exist, so there is nothing to resume; run without --resume")
        exists, is_folder = os.path.exists(self.path), os.path.isdir(self.path)
        if not exists or (is_folder and not any(map(_is_content, self.path.iterdir()))):
            return
        if self._state() is None:
            raise InputError(
                f"{self.path} does not hold a search of beamwood, so nothing in it is touched; move it away, or choose "
                "another output folder"
            )
        if not (resume or overwrite):
            # A search in use by another process is taken over by no option.
            with only_one(self.path, _WAIT):
                raise InputError(
                    f"{self.path} already holds a search; pass --resume to go on with it, or --overwrite to start anew"
                )

    def _state(self) -> dict[str, Any] | None:
        """The stored state; None in a foreign folder."""
        try:
            state = json.loads((self.path / _STATE).read_text())
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) and state.items() >= _MARK.items() else None

    def _load(self) -> None:
        state = self._state()
        if state is None:
            return
        try:
            stored = _State.model_validate(state)
        except ValidationError as error:
            why = first_problem(error)
            raise InputError(f"{self.path / _STATE} is damaged ({why}); start anew with --overwrite") from None
        for key, value in json.loads(json.dumps(self.made_of)).items():
            found = stored.made_of.get(key)
            if found != value:
                raise InputError(
                    f"{self.path} was searched with another {key} ({found}, not {value}); resume with the same, "
                    "or start anew in another folder"
                )
        self.trials, self.seconds, self.validation_users = stored.measured, stored.seconds, stored.validation_users
        self.values = {name: np.array(values, np.float64) for name, values in stored.values.items()}

    def _clear(self) -> None:
        """Remove an earlier search, and nothing else; its state is replaced last, so that the folder stays recognisable
        after a kill.
        """
        for entry in filter(_is_of_search, self.path.iterdir()):
            shutil.rmtree(entry)
        self.write(0.0)


def _folder_of(name: str, look: int) -> str:
    """The name under which a look's model is saved."""
    return f"{name}.{look}" if look else name


def _is_of_search(entry: Path) -> bool:
    """Whether an entry is a saved model, one that was being saved, or a run."""
    return os.path.isdir(entry) and (entry.suffix in (".run", ".saving") or os.path.isfile(entry / MANIFEST))


def _is_content(entry: Path) -> bool:
    """Whether an entry is more than the temporary file of a process that was killed while it wrote its first state."""
    return not entry.name.startswith(f".{_STATE}.")
