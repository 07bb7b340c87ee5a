"""The input of a recipe, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.split import Split
from benchmarks.suite import LogEntry, Row

__all__ = ["Job", "Measured"]


@dataclass(frozen=True)
class Job:
    """The input of a recipe: a log and its split, the row, seed and cutoffs, the work folder, and the start folders."""

    log: LogEntry
    split: Split
    row: Row
    seed: int
    ks: tuple[int, ...]
    work: Path
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def saved(self) -> Path:
        """The folder of the fitted retriever."""
        return self.work / "fitted"


@dataclass
class Measured:
    """The results of a run: `figures` by name, `values` by user for paired tests, and facts of the fit."""

    figures: dict[str, float]
    values: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    queries: int = 0
    training: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
