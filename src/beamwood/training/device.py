"""The device of a training: the CPU, or one NVIDIA GPU. Only the loop moves a model or a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.training.loop_config import DeviceName

__all__ = ["PROCESSOR", "computes_on", "device_of", "moved"]

PROCESSOR = torch.device("cpu")


def device_of(name: DeviceName, *, takes_gpu: bool) -> torch.device:
    """The device of that name. Errors: `InputError` where torch finds none, or the method does not support it."""
    if name == "cpu":
        return PROCESSOR
    if not takes_gpu:
        raise InputError(
            f"loop.device={name} is not for this method, which trains on the processor; set loop.device=cpu"
        )
    if not torch.cuda.is_available():
        raise InputError(
            f"loop.device={name}, but torch {torch.__version__} sees no GPU; set loop.device=cpu, or install torch for "
            "CUDA on a machine with an NVIDIA GPU"
        )
    return torch.device(name, torch.cuda.current_device())


def moved(value: Any, device: torch.device) -> Any:
    """A batch with all of its tensors on `device`: in dataclasses, tuples, lists and mappings, at any depth."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(part, device) for key, part in value.items()}
    if isinstance(value, list | tuple):
        there = [moved(part, device) for part in value]
        # Named tuples take their fields as arguments.
        return type(value)(there) if type(value) in (list, tuple) else type(value)(*there)
    if is_dataclass(value) and not isinstance(value, type):
        given = {each.name: attrgetter(each.name)(value) for each in fields(value)}
        parts = {name: moved(part, device) for name, part in given.items()}
        # Objects without tensors are returned unchanged.
        return value if all(parts[name] is given[name] for name in given) else type(value)(**parts)
    return value


@contextmanager
def computes_on(model: nn.Module, device: torch.device) -> Iterator[None]:
    """A context in which the parameters and buffers of `model` are on `device`; afterwards they are moved back.

    The parameter objects stay the same, as optimisers refer to them. Errors: `InputError` where the GPU's memory is too
    small.
    """
    before = next((parameter.device for parameter in model.parameters()), device)
    if before == device:
        yield
        return
    try:
        model.to(device)
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise InputError(
            "the GPU has too little memory for this training; lower loop.batch_size, or set loop.device=cpu"
        ) from error
    finally:
        model.to(before)
