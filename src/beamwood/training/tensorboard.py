"""The metrics of a run as TensorBoard events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamwood.artefact.manifest import check_outside
from beamwood.errors import InputError
from beamwood.extras import is_installed, not_installed

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoardWriter"]

# Positions on the axis, not metrics.
_POSITIONS = ("step", "epoch")


class TensorBoardWriter:
    """Writes a run's metrics, line by line, as TensorBoard events into a folder, which the first line creates.

    A resumed run discards the events of steps that it repeats.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: SummaryWriter | None = None
        if os.path.exists(self.folder) and not os.path.isdir(self.folder):
            raise InputError(f"--tensorboard {self.folder} is a file; name a folder")
        check_outside(self.folder / "events")
        if not is_installed("tensorboard"):
            raise not_installed("--tensorboard", "tensorboard")

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the metrics of one line. Errors: the folder is not writable."""
        step = int(record["step"])
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            try:
                self._writer = SummaryWriter(self.folder, purge_step=step)
            except OSError as error:
                raise InputError(f"--tensorboard {self.folder} cannot be written: {error}; name another") from None
        for name, value in record.items():
            if name not in _POSITIONS:
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file; a later line opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
