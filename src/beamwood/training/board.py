"""The metrics of a run as TensorBoard events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamwood.errors import InputError
from beamwood.extras import is_installed, not_installed

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["Board"]

_PLACES = ("step", "epoch")


class Board:
    """Writes each line of a run's metrics as events of its step into a folder, which is created with the first.

    A resumed run discards the events of steps that it repeats.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: SummaryWriter | None = None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"--tensorboard {self.folder} is a file; name a folder")
        if not is_installed("tensorboard"):
            raise not_installed("--tensorboard", "tensorboard")

    def write(self, record: Mapping[str, Any]) -> None:
        """Add the numbers of one line. Errors: the folder is not writable."""
        step = int(record["step"])
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            try:
                self._writer = SummaryWriter(self.folder, purge_step=step)
            except OSError as error:
                raise InputError(f"--tensorboard {self.folder} cannot be written: {error}; name another") from None
        for name, value in record.items():
            if name not in _PLACES:
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file; a later line starts another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
