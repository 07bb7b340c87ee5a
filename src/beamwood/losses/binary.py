"""Node-wise binary cross-entropy: an independent binary label for every node of a level.

Shape legend: B rows, M nodes a row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["binary_cross_entropy"]


def binary_cross_entropy(logits_BM: Tensor, labels_BM: Tensor, counted_BM: Tensor | None = None) -> Tensor:
    """Loss [B]: the sum over a row's nodes of `-z log p - (1 - z) log(1 - p)`, `p = sigmoid(logit)`.

    `labels_BM` bool; `counted_BM`: a factor of each node (bool: whether it counts), by default 1. Source: DTR, equation
    8 (TDM, JTM).
    """
    terms_BM = torch.where(labels_BM, softplus(-logits_BM), softplus(logits_BM))
    if counted_BM is not None:
        terms_BM = torch.where(counted_BM > 0, terms_BM * counted_BM, torch.zeros_like(terms_BM))
    return terms_BM.sum(dim=1)
