"""Torch's own generators, for the length of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from beamwood.training.device import PROCESSOR

__all__ = ["kept_generators", "own_generators"]


def kept_generators(device: torch.device) -> AbstractContextManager[None]:
    """Torch's default generators, that of a GPU included, given back as they were."""
    kept: AbstractContextManager[None] = torch.random.fork_rng([] if device == PROCESSOR else [device])
    return kept


@contextmanager
def own_generators(seed: int, device: torch.device = PROCESSOR) -> Iterator[None]:
    """Torch's default generators, started from `seed` for the length of a run and then given back as they were."""
    with kept_generators(device):
        torch.default_generator.manual_seed(seed)
        if device != PROCESSOR:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield
