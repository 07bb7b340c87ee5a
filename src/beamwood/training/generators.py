"""Torch's own generators, for the length of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["devices_of", "own_generators"]


def devices_of(model: nn.Module) -> list[int]:
    """The indices of the CUDA devices that hold a model's parameters."""
    devices = {parameter.device for parameter in model.parameters()}
    return sorted({device.index or 0 for device in devices if device.type == "cuda"})


@contextmanager
def own_generators(seed: int, devices: Sequence[int] = ()) -> Iterator[None]:
    """Torch's default generators, started from `seed` for the length of a run and then given back as they were."""
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield
