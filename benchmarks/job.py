"""What a recipe is given, and what it gives."""

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
    """What a recipe is given: the log and its split, the row, the seed, the cuts, where to work, folders by setting."""

    log: LogEntry
    split: Split
    row: Row
    seed: int
    ks: tuple[int, ...]
    work: Path
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def saved(self) -> Path:
        """Where the fitted retriever stands."""
        return self.work / "fitted"


@dataclass
class Measured:
    """What a run measured: `figures` by name, `values` by user for those that tests need, and facts of the fit."""

    figures: dict[str, float]
    values: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    queries: int = 0
    training: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
