"""Progress of a run on stderr: a live bar in a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from beamwood.steps import heard_by, is_quiet

__all__ = ["TrainingProgress"]


class TrainingProgress:
    """Shows steps, loss and validation of one run; `enabled=False` shows nothing."""

    def __init__(self, *, enabled: bool, max_steps: int | None, seconds_between_lines: float = 30.0) -> None:
        # Notebooks get plain lines.
        self._console = Console(stderr=True, force_jupyter=False)
        self._enabled = enabled and not is_quiet()
        self._max_steps = max_steps
        self._between = seconds_between_lines
        self._next_line = time.monotonic() + min(5.0, seconds_between_lines)
        self._bar: Progress | None = None
        self._alone = ExitStack()

    def __enter__(self) -> Self:
        # Steps of work between two training steps are not shown separately.
        self._alone.enter_context(heard_by(None))
        if self._enabled and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("training", total=self._max_steps, numbers="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._alone.close()

    def stepped(self, step: int, loss: float, speed: float) -> None:
        """Record one more step; `speed` in examples a second."""
        numbers = f"loss {loss:.4f}, {speed:,.0f} examples/s"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, numbers=numbers)
        elif self._enabled and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + self._between
            self.say(f"step {step}{f'/{self._max_steps}' if self._max_steps else ''}: {numbers}")

    def evaluated(self, step: int, metrics: Mapping[str, float], monitor: str, best: bool) -> None:
        """Record one more validation."""
        self.say(f"step {step}: {monitor} {metrics[monitor]:.4f}{' (best so far)' if best else ''}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._enabled:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
