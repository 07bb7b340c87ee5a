"""The checkpoints of a run in progress, and what an interrupt leaves of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from beamwood.training.checkpoint_times import CheckpointTimes
from beamwood.training.interrupt import SAVING, Interrupted
from beamwood.training.loop_state import LoopState
from beamwood.training.pace import Pace
from beamwood.training.run_folder import RunLog

__all__ = ["RunCheckpoints"]


class RunCheckpoints:
    """Saves the checkpoints of a run in its `log`; None: nothing is saved.

    `stored`: the complete state of the run, of which `state` is a part. A checkpoint is due by `CheckpointTimes`.
    """

    def __init__(self, log: RunLog | None, state: LoopState, stored: Callable[[], dict[str, Any]], pace: Pace) -> None:
        self._log, self._state, self._stored, self._pace = log, state, stored, pace
        self._times = CheckpointTimes(pace.budget.clock, pace.save)
        self._is_whole = True
        is_resumed = log is not None and log.state is not None
        self._saved = self._position() if is_resumed else None

    def save_if_due(self, ahead: float) -> None:
        """Save if a checkpoint is due before the next work, which takes `ahead` seconds."""
        if self._state.step and self._times.is_due(ahead):
            self.save()

    def save(self) -> None:
        """Save a checkpoint, unless the last one has this state."""
        if self._log is None or self._saved == self._position():
            return
        began = self._pace.budget.clock()
        self._state.seconds = self._pace.budget.seconds
        self._log.save(self._stored())
        self._saved = self._position()
        self._pace.saved(self._times.saved(began))

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """A context in which the state is not whole: an interrupt inside it saves nothing."""
        self._is_whole = False
        yield
        # This is not in a `finally`: after an error the state stays incomplete.
        self._is_whole = True

    def interrupted(self) -> Interrupted:
        """The error that ends an interrupted run, after saving its state if that is whole."""
        step = self._state.step
        if self._log is None:
            return Interrupted(f"interrupted at step {step}; nothing was saved without a run folder")
        if self._is_whole:
            SAVING.set()
            self.save()
        if self._saved is None:
            return Interrupted(
                f"interrupted within step {step + 1}, before the first checkpoint; run the same command with --resume "
                "to start again"
            )
        return Interrupted(
            f"interrupted; the checkpoint of step {self._saved[0]} is in {self._log.folder.checkpoint_path}; run the "
            "same command with --resume to go on"
        )

    def _position(self) -> tuple[int, int]:
        """What tells two whole states of a run apart."""
        return self._state.step, self._state.evaluated_step
