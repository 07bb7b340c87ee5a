"""Checks of what samplers return, as a user may have written them.

Shape legend: B histories or pairs, T targets a history, M nodes drawn a level, C candidates of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from beamwood.errors import InputError
from beamwood.losses.levels import LevelDraw
from beamwood.tree import Shape

__all__ = ["check_candidates", "check_draws", "check_losses"]

# How far rounding may bring the logarithm of a probability above 0.
_ROUNDING = 1e-4


def check_draws(draws: Sequence[LevelDraw], shape: Shape, targets_BT: Tensor) -> None:
    """Errors: a sampler that does not draw on each level, level 1 first, or draws that are none of a level's nodes.

    On a GPU values are not read, as each reading would wait for it.
    """
    if not isinstance(draws, Sequence) or not all(isinstance(draw, LevelDraw) for draw in draws):
        raise InputError(f"the sampler returned a {type(draws).__name__}; give a list of LevelDraw, level 1 first")
    levels = [draw.level for draw in draws]
    if levels != list(range(1, shape.depth + 1)):
        raise InputError(
            f"the sampler gives draws of the levels {', '.join(map(str, levels))}; give one of each of "
            f"1..{shape.depth}, in turn"
        )
    for draw in draws:
        if draw.nodes is not None:
            _check_nodes(draw, draw.nodes, shape.level_size(draw.level), targets_BT)


def _check_nodes(draw: LevelDraw, nodes_BM: Tensor, size: int, targets_BT: Tensor) -> None:
    """Errors: nodes outside the level of `size` nodes, and arrays that do not fit them."""
    of = f"of level {draw.level}"
    whole = isinstance(nodes_BM, Tensor) and not (nodes_BM.is_floating_point() or nodes_BM.dtype == torch.bool)
    if not whole or nodes_BM.dim() != 2 or len(nodes_BM) != len(targets_BT):
        raise InputError(f"the nodes {of} are {_shown(nodes_BM)}; give a tensor int64[{len(targets_BT)}, M]")
    size_BM, size_BT = list(nodes_BM.shape), list(targets_BT.shape)
    fitting = (
        ("log_q", draw.log_q, size_BM),
        ("real", draw.real, size_BM),
        ("log_q_targets", draw.log_q_targets, size_BT),
    )
    for name, given, wanted in fitting:
        if given is not None and list(given.shape) != wanted:
            raise InputError(f"{name} {of} is {_shown(given)}; give {wanted}")
    if nodes_BM.device.type != "cpu" or nodes_BM.numel() == 0:
        return
    low, high = torch.aminmax(nodes_BM)
    if low < 0 or high >= size:
        raise InputError(
            f"the nodes {of} are {int(low)} to {int(high)}, outside 0..{size - 1}; a level's own nodes count from 0"
        )
    if draw.log_q is not None and draw.log_q.max() > _ROUNDING:
        raise InputError(
            f"log_q {of} is up to {float(draw.log_q.max()):.3g}; give the logarithm of each probability, at most 0"
        )


def check_candidates(candidates: Tensor, items_B: Tensor, num_items: int) -> None:
    """Errors: an in-batch sampler whose candidates are no list of items that begins with the batch's."""
    whole = isinstance(candidates, Tensor) and candidates.dtype == torch.int64 and candidates.device.type == "cpu"
    if not whole or candidates.dim() != 1:
        raise InputError(f"candidates of the sampler are {_placed(candidates)}; return a tensor int64[C] on the CPU")
    if not torch.equal(candidates[: len(items_B)], items_B):
        raise InputError("candidates of the sampler do not begin with the items of the batch; append further ones")
    low, high = torch.aminmax(candidates)
    if low < 0 or high >= num_items:
        extremes = f"{int(low)} to {int(high)}"
        raise InputError(f"candidates of the sampler are {extremes}, outside 0..{num_items - 1}; return item indices")


def check_losses(losses: Tensor, num_pairs: int) -> None:
    """Errors: an in-batch sampler that does not return one loss a pair."""
    if not isinstance(losses, Tensor) or losses.shape != (num_pairs,):
        raise InputError(
            f"losses of the sampler are {_placed(losses)}; return a tensor [{num_pairs}], one value a pair"
        )


def _placed(found: Any) -> str:
    """The type and shape of what should be a tensor, and where it is."""
    return f"{_shown(found)} on {found.device.type}" if isinstance(found, Tensor) else f"a {_shown(found)}"


def _shown(array: Any) -> str:
    """The type and shape of an array in words."""
    if not isinstance(array, Tensor | np.ndarray):
        return type(array).__name__
    return f"{str(array.dtype).removeprefix('torch.')}{list(array.shape)}"
