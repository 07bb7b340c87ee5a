"""Preference losses: a positive against negatives, pairwise or as a list, with or without a reference model.

Shape legend: B rows, K negatives a row. All take log-probabilities over the catalogue, but `lpo`, which takes any pi.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

__all__ = ["dpo", "lpo", "orpo", "s_dpo", "simpo", "tail_weights"]


def lpo(positive_B: Tensor, negative_BK: Tensor, *, tau: float) -> Tensor:
    """Loss [B]: `-log(exp(pi_w / tau) / (exp(pi_w / tau) + sum_l exp(pi_l / tau)))`.

    With pi a probability its gradient is bounded by 1 / tau times that of the probability, which is tiny in a large
    catalogue; with a logit or a log-probability (which give the same loss, the normaliser cancels) it is not.
    Source: LPO4Rec, equation 12.
    """
    logits = torch.cat([positive_B[:, None], negative_BK], dim=1) / tau
    return torch.logsumexp(logits, dim=1) - logits[:, 0]


def dpo(
    positive_B: Tensor, negative_BK: Tensor, reference_positive_B: Tensor, reference_negative_BK: Tensor, *, beta: float
) -> Tensor:
    """Loss [B], mean over negatives: `-log sigmoid(beta ((s_w - s_n) - (s_w_ref - s_n_ref)))`.

    Source: Rafailov et al. 2023 (DPO), equation 7.
    """
    margin_BK = (positive_B[:, None] - negative_BK) - (reference_positive_B[:, None] - reference_negative_BK)
    return -logsigmoid(beta * margin_BK).mean(dim=1)


def s_dpo(
    positive_B: Tensor, negative_BK: Tensor, reference_positive_B: Tensor, reference_negative_BK: Tensor, *, beta: float
) -> Tensor:
    """Loss [B]: `-log sigmoid(-logsumexp_k beta (D_k - D_w))`, `D = s - s_ref`. Source: Chen et al. 2024 (S-DPO)."""
    difference_BK = (negative_BK - reference_negative_BK) - (positive_B - reference_positive_B)[:, None]
    return softplus(torch.logsumexp(beta * difference_BK, dim=1))


def simpo(positive_B: Tensor, negative_BK: Tensor, *, beta: float, gamma: float) -> Tensor:
    """Loss [B], mean over negatives: `-log sigmoid(beta (s_w - s_n) - gamma)`. Source: Meng et al. 2024 (SimPO)."""
    return -logsigmoid(beta * (positive_B[:, None] - negative_BK) - gamma).mean(dim=1)


def orpo(positive_B: Tensor, negative_BK: Tensor) -> Tensor:
    """Loss [B], mean over negatives: `-log sigmoid(o_w - o_n)`, `o = s - log(1 - exp(s))`.

    Source: Hong et al. 2024 (ORPO), the odds ratio loss.
    """

    def log_odds(log_p: Tensor) -> Tensor:
        log_p = log_p.clamp(max=-1e-6)
        return log_p - torch.log(-torch.expm1(log_p))

    return -logsigmoid(log_odds(positive_B)[:, None] - log_odds(negative_BK)).mean(dim=1)


def tail_weights(is_tail_B: Tensor, *, alpha_tail: float = 1.0) -> Tensor:
    """[B], the softmax over the batch of alpha, which is `alpha_tail` for a tail label and 0 for another; it sums to 1.

    Source: LPO4Rec, equation 16; with alpha_tail 2 the weights of R2Rec.
    """
    return torch.softmax(torch.where(is_tail_B, alpha_tail, 0.0), dim=0)
