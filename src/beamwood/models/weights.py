"""Declared parameters as those of a torch module."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from beamwood.models.parameters import Parameter

__all__ = ["declare"]


@torch.no_grad()
def declare(
    module: nn.Module, parameters: Iterable[Parameter], generator: torch.Generator | None
) -> dict[str, nn.Parameter]:
    """Add the parameters to `module`, nested by the dots of their names and drawn in order; returned by full name.

    The returned tensors stay valid: moving and loading the module modify them in place.
    """
    declared = {}
    for parameter in parameters:
        *places, own = parameter.name.split(".")
        holder = module
        for place in places:
            if place not in dict(holder.named_children()):
                holder.add_module(place, nn.Module())
            holder = holder.get_submodule(place)
        drawn = nn.Parameter(torch.empty(parameter.shape))
        _draw(drawn, parameter, generator)
        holder.register_parameter(own, drawn)
        declared[parameter.name] = drawn
    return declared


def _draw(tensor: Tensor, parameter: Parameter, generator: torch.Generator | None) -> None:
    scale = parameter.scale
    if parameter.draw == "normal":
        nn.init.normal_(tensor, std=scale, generator=generator)
    elif parameter.draw == "uniform":
        nn.init.uniform_(tensor, -scale, scale, generator=generator)
    elif parameter.draw == "xavier":
        nn.init.xavier_uniform_(tensor, generator=generator)
    elif parameter.draw == "kaiming":
        nn.init.kaiming_uniform_(tensor, a=scale, generator=generator)
    else:
        nn.init.constant_(tensor, scale)
