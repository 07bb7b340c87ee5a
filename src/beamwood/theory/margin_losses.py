"""Margins of a target against the candidates of its level, and the losses that bound them from above.

Shape legend: B rows (a target at one level of one search), M rivals a row: the candidates other than the target.
With `g = f_v - (K-th largest candidate)` a target is lost where `g < 0`. Each loss here is at least A(g) of its own A,
for K >= 2. For K = 1 the paper's examples 1 and 3 fail where the target is the best candidate: g is 0 there, and the
loss may be less than A(0). Source: two-stage bounds, equation 5 and appendix A.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from beamwood.errors import InputError

__all__ = ["beam_margin", "beam_softmax", "multiclass_margin", "top_k_hinge"]


def beam_margin(target_B: Tensor, rivals_BM: Tensor, k: int, present_BM: Tensor | None = None) -> Tensor:
    """[B]: `f_v - max^K f` over the target and its rivals, +inf where there are fewer than k candidates.

    `present_BM` bool: rivals that exist, by default all. Source: equation 5, the term of one ancestor.
    """
    largest = _largest(target_B, rivals_BM, k, present_BM)
    if largest.shape[1] < k:
        return torch.full_like(target_B, torch.inf)
    return target_B - largest[:, k - 1]


def multiclass_margin(target_B: Tensor, rivals_BM: Tensor, present_BM: Tensor | None = None) -> Tensor:
    """Loss [B]: `max(0, 1 - (f_v - max_{v' != v} f_v'))`; 0 for a row without rivals. Source: equation 10, hinge."""
    if rivals_BM.shape[1] == 0:
        return target_B * 0
    return torch.relu(1 + _masked(rivals_BM, present_BM).amax(dim=1) - target_B)


def top_k_hinge(target_B: Tensor, rivals_BM: Tensor, k: int, present_BM: Tensor | None = None) -> Tensor:
    """Loss [B]: `max(0, 1/K sum_{j <= K} (1 + f_[j] - f_v))`, over the target and its rivals.

    Where there are fewer than k candidates, the mean is over those that exist. Source: equations 11-12.
    """
    largest = _largest(target_B, rivals_BM, k, present_BM)
    real = torch.isfinite(largest)
    total_B = torch.where(real, largest, torch.zeros_like(largest)).sum(dim=1)
    return torch.relu(1 + total_B / real.sum(dim=1) - target_B)


def beam_softmax(target_B: Tensor, rivals_BM: Tensor, present_BM: Tensor | None = None) -> Tensor:
    """Loss [B]: `-log(exp(f_v) / (exp(f_v) + sum_{v'} exp(f_v')))`; sum it over the target's levels.

    The target stays in the denominator where the beam has lost it, without which the bound would not hold. Source:
    equation 13.
    """
    return softplus(torch.logsumexp(_masked(rivals_BM, present_BM), dim=1) - target_B)


def _masked(rivals_BM: Tensor, present_BM: Tensor | None) -> Tensor:
    # A floor instead of -inf keeps the gradient of a row without rivals finite.
    return rivals_BM if present_BM is None else torch.where(present_BM, rivals_BM, _floor(rivals_BM))


def _floor(like: Tensor) -> Tensor:
    return torch.full_like(like, torch.finfo(like.dtype).min / 4)


def _largest(target_B: Tensor, rivals_BM: Tensor, k: int, present_BM: Tensor | None) -> Tensor:
    """[B, min(k, M + 1)] the largest candidates, descending; -inf for an absent one. Errors: k below 1."""
    if k < 1:
        raise InputError(f"k={k} is below 1, and a margin is to the k-th best candidate; give 1 or more")
    rivals_BM = rivals_BM if present_BM is None else rivals_BM.masked_fill(~present_BM, -torch.inf)
    candidates = torch.cat([target_B[:, None], rivals_BM], dim=1)
    return candidates.topk(min(k, candidates.shape[1]), dim=1).values
