"""Where a training computes: on the processor, or on one NVIDIA GPU. Nothing but the loop moves a model or a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.training.loop_config import DeviceName

__all__ = ["PROCESSOR", "computes_on", "device_of", "moved"]

PROCESSOR = torch.device("cpu")

Value = TypeVar("Value")


def device_of(name: DeviceName, *, takes_gpu: bool) -> torch.device:
    """The device of that name. Errors: `InputError` where torch sees none, or where the method cannot use it."""
    if name == "cpu":
        return PROCESSOR
    if not takes_gpu:
        raise InputError(f"loop.device={name} is not for this method, which trains on the processor; set loop.device=cpu")
    if not torch.cuda.is_available():
        raise InputError(
            f"loop.device={name}, but torch {torch.__version__} sees no GPU; set loop.device=cpu, or install torch for "
            "CUDA on a machine with an NVIDIA GPU"
        )
    return torch.device(name, torch.cuda.current_device())


def moved(value: Value, device: torch.device) -> Value:
    """A batch with all of its tensors on `device`: those in data classes, tuples, lists and mappings, at any depth."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(part, device) for key, part in value.items()}  # type: ignore[return-value]
    if isinstance(value, list | tuple):
        parts = [moved(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        parts = {name: moved(part, device) for name, part in given.items()}
        # What holds no tensor stays what it is.
        return value if all(parts[name] is given[name] for name in given) else type(value)(**parts)
    return value


@contextmanager
def computes_on(model: nn.Module, device: torch.device) -> Iterator[None]:
    """In here the parameters and buffers of `model` are on `device`, afterwards where they were.

    They stay the same parameters, which optimisers know.
    """
    before = next((parameter.device for parameter in model.parameters()), device)
    if before == device:
        yield
        return
    model.to(device)
    try:
        yield
    finally:
        model.to(before)
