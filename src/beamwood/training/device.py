"""The training device, the CPU or one NVIDIA GPU, and moving batches and models to it."""

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

__all__ = ["CPU", "check_defaults", "device_of", "on_device", "to_device"]

CPU = torch.device("cpu")


def device_of(name: DeviceName) -> torch.device:
    """The device of that name. Errors: `InputError` where torch finds none."""
    if name == "cpu":
        return CPU
    if not torch.cuda.is_available():
        raise InputError(
            f"loop.device={name}, but torch {torch.__version__} sees no GPU; set loop.device=cpu, or install torch for "
            "CUDA on a machine with an NVIDIA GPU"
        )
    return torch.device(name, torch.cuda.current_device())


def check_defaults() -> None:
    """Errors: `InputError` where the program has switched off torch's gradients, or changed its type or device."""
    if not torch.is_grad_enabled():
        raise InputError(
            "torch computes no gradients here, so nothing can be trained; fit outside of torch.no_grad and "
            "inference_mode, and after torch.set_grad_enabled(True)"
        )
    if torch.get_default_dtype() != torch.float32:
        raise InputError(
            f"torch's default type is {torch.get_default_dtype()}, and weights are float32; call "
            "torch.set_default_dtype(torch.float32) first"
        )
    if torch.get_default_device().type != "cpu":
        raise InputError(
            f"torch's default device is {torch.get_default_device()}, and loop.device sets that of a training; call "
            "torch.set_default_device('cpu') first"
        )


def to_device(value: Any, device: torch.device) -> Any:
    """`value` with all of its tensors on `device`: in dataclasses, tuples, lists and mappings, at any depth."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: to_device(part, device) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [to_device(part, device) for part in value]
        # Named tuples take their fields as arguments.
        return type(value)(parts) if type(value) in (list, tuple) else type(value)(*parts)
    if is_dataclass(value) and not isinstance(value, type):
        old = {each.name: attrgetter(each.name)(value) for each in fields(value)}
        new = {name: to_device(part, device) for name, part in old.items()}
        # Objects without tensors are returned unchanged.
        return value if all(new[name] is old[name] for name in old) else type(value)(**new)
    return value


@contextmanager
def on_device(model: nn.Module, device: torch.device) -> Iterator[None]:
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
