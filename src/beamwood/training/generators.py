"""Contexts that protect torch's default generators from the draws of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from beamwood.training.device import CPU

__all__ = ["preserved_generators", "seeded_generators"]


def preserved_generators(device: torch.device) -> AbstractContextManager[None]:
    """A context that restores torch's default generators, including a GPU's."""
    kept: AbstractContextManager[None] = torch.random.fork_rng([] if device == CPU else [device])
    return kept


@contextmanager
def seeded_generators(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """A context in which torch's default generators start from `seed`; they are restored afterwards."""
    with preserved_generators(device):
        torch.default_generator.manual_seed(seed)
        if device != CPU:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield
