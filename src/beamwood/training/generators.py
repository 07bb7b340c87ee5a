"""Scoped use of torch's default generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from beamwood.training.device import PROCESSOR

__all__ = ["kept_generators", "own_generators"]


def kept_generators(device: torch.device) -> AbstractContextManager[None]:
    """A context that restores torch's default generators, including a GPU's."""
    kept: AbstractContextManager[None] = torch.random.fork_rng([] if device == PROCESSOR else [device])
    return kept


@contextmanager
def own_generators(seed: int, device: torch.device = PROCESSOR) -> Iterator[None]:
    """A context in which torch's default generators start from `seed`; they are restored afterwards."""
    with kept_generators(device):
        torch.default_generator.manual_seed(seed)
        if device != PROCESSOR:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield
