"""The order of training examples: shuffled by epoch, resumable at any batch."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError

__all__ = ["BatchOrder"]


class BatchOrder:
    """Endless batches of row numbers, a fresh permutation of all rows each epoch.

    An epoch of n rows is cut into ceil(n / batch_size) batches whose sizes differ by at most one: every row is seen
    exactly once and no small last batch upsets statistics taken over a batch. The state is the generator's at the
    start of the epoch and a position, small whatever n is.
    """

    def __init__(self, num_rows: int, batch_size: int, generator: np.random.Generator) -> None:
        if num_rows < 1:
            raise InputError(f"num_examples={num_rows}: there is nothing to train on; check the split and the windows")
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size} must be 1 or more")
        self.num_rows = num_rows
        self.batches_per_epoch = -(-num_rows // batch_size)
        self.epoch = 0
        self.position = 0
        self._generator = generator
        self._shuffle()

    def _shuffle(self) -> None:
        self._epoch_state = self._generator.bit_generator.state
        kind = np.int32 if self.num_rows <= np.iinfo(np.int32).max else np.int64
        self._rows = np.arange(self.num_rows, dtype=kind)
        self._generator.shuffle(self._rows)

    def next(self) -> NDArray[np.int64]:
        """int64[about batch_size], the rows of the next batch."""
        if self.position == self.batches_per_epoch:
            self.epoch += 1
            self.position = 0
            self._shuffle()
        start = self.position * self.num_rows // self.batches_per_epoch
        stop = (self.position + 1) * self.num_rows // self.batches_per_epoch
        self.position += 1
        return self._rows[start:stop].astype(np.int64)

    def state(self) -> dict[str, Any]:
        """The state by which `load_state` continues with the next batch."""
        return {
            "num_rows": self.num_rows,
            "batches_per_epoch": self.batches_per_epoch,
            "epoch": self.epoch,
            "position": self.position,
            "generator": self._epoch_state,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken; raises `InputError` for other examples."""
        for name in ("num_rows", "batches_per_epoch"):
            if state[name] != getattr(self, name):
                raise InputError(
                    f"the checkpoint was made with {name}={state[name]}, this run has {getattr(self, name)}; resume "
                    f"with the same data and batch_size, or start a new run"
                )
        self._generator.bit_generator.state = state["generator"]
        self._shuffle()
        self.epoch, self.position = index(state["epoch"]), index(state["position"])
        if not 0 <= self.position <= self.batches_per_epoch:
            raise ValueError(f"position={self.position} is outside 0..{self.batches_per_epoch}")
