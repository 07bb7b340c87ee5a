"""Ranking losses over lists: a score and a label for each of a list's items.

Shape legend: B lists, K items a list, S noisy copies. Labels are graded relevance >= 0;
binary for the logistic loss.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

__all__ = [
    "approx_ndcg",
    "bpr",
    "gumbel_approx_ndcg",
    "list_mle",
    "list_softmax",
    "logistic",
    "neural_sort",
    "pairwise_logistic",
]

# Added inside a logarithm, as in the TF-Ranking library.
_TINY = 1e-20


def logistic(scores_BK: Tensor, labels_BK: Tensor) -> Tensor:
    """Loss [B], summed over the list: `-y log sigmoid(s) - (1 - y) log(1 - sigmoid(s))`. Source: GuidedRec, eq. 9."""
    return (softplus(scores_BK) - labels_BK * scores_BK).sum(dim=1)


def pairwise_logistic(scores_BK: Tensor, labels_BK: Tensor) -> Tensor:
    """Loss [B]: the mean over pairs with `y_i > y_j` of `softplus(-(s_i - s_j))`; 0 for a list without such a pair.

    Source: TF-Ranking, pairwise logistic loss.
    """
    above_BKK = (labels_BK[:, :, None] > labels_BK[:, None, :]).to(scores_BK.dtype)
    terms_BKK = softplus(scores_BK[:, None, :] - scores_BK[:, :, None]) * above_BKK
    return terms_BKK.sum(dim=(1, 2)) / above_BKK.sum(dim=(1, 2)).clamp(min=1)


def bpr(positive_BT: Tensor, negative_BT: Tensor) -> Tensor:
    """Loss [B, T]: `-log sigmoid(s_i - s_j)`, each positive against the one negative drawn with it.

    Source: BPR (Rendle et al. 2009), equation of BPR-Opt without its regularizer.
    """
    return -logsigmoid(positive_BT - negative_BT)


def list_softmax(scores_BK: Tensor, labels_BK: Tensor) -> Tensor:
    """Loss [B]: cross-entropy of the list's softmax with `y / sum(y)`; 0 for a list without a positive.

    Source: TF-Ranking, softmax loss (ListNet with labels as targets).
    """
    share_BK = labels_BK / _positive_or_one(labels_BK.sum(dim=1, keepdim=True))
    return -(share_BK * torch.log_softmax(scores_BK, dim=1)).sum(dim=1)


def list_mle(scores_BK: Tensor, labels_BK: Tensor, generator: torch.Generator) -> Tensor:
    """Loss [B]: `sum_i (logsumexp_{j >= i} s_j - s_i)` in the order of falling labels, ties in random order.

    It is the negative log-likelihood of that order under Plackett and Luce. Source: ListMLE (Xia et al. 2008).
    """
    shuffle_BK = torch.rand(labels_BK.shape, generator=generator).to(labels_BK.device).argsort(dim=1)
    shuffled_BK = torch.gather(labels_BK, 1, shuffle_BK)
    order_BK = torch.gather(shuffle_BK, 1, shuffled_BK.argsort(dim=1, descending=True, stable=True))
    ordered_BK = torch.gather(scores_BK, 1, order_BK)
    rest_BK = torch.logcumsumexp(ordered_BK.flip(1), dim=1).flip(1)
    return (rest_BK - ordered_BK).sum(dim=1)


def approx_ndcg(scores_BK: Tensor, labels_BK: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Loss [B]: `-DCG / IDCG` with smooth ranks; gain `2^y - 1`, discount `1 / log2(1 + r)`; 0 without a positive.

        r_i = 1/2 + sum_j sigmoid((s_j - s_i) / temperature), j = i included

    Source: Qin et al. 2010; Bruch et al. 2019.
    """
    differences_BKK = (scores_BK[:, None, :] - scores_BK[:, :, None]) / temperature
    ranks_BK = 0.5 + torch.sigmoid(differences_BKK).sum(dim=2)
    gains_BK = torch.exp2(labels_BK) - 1
    dcg_B = (gains_BK / torch.log2(1 + ranks_BK)).sum(dim=1)
    places = torch.arange(1, scores_BK.shape[1] + 1, device=scores_BK.device, dtype=scores_BK.dtype)
    ideal_B = (gains_BK.sort(dim=1, descending=True).values / torch.log2(1 + places)).sum(dim=1)
    return -dcg_B / _positive_or_one(ideal_B)


def gumbel_approx_ndcg(
    scores_BK: Tensor,
    labels_BK: Tensor,
    generator: torch.Generator,
    *,
    num_samples: int = 8,
    temperature: float = 0.1,
) -> Tensor:
    """Loss [B]: the mean of `approx_ndcg` over S copies `log(softmax(s + G) + 1e-20)` with Gumbel noise G.

    Source: Bruch et al. 2020.
    """
    size, width = scores_BK.shape
    uniform = torch.rand((size, num_samples, width), generator=generator).to(scores_BK.device)
    noise_BSK = -torch.log(-torch.log(uniform.clamp(min=_TINY)) + _TINY).to(scores_BK.dtype)
    noisy_BSK = torch.log(torch.softmax(scores_BK[:, None, :] + noise_BSK, dim=2) + _TINY)
    copies_BSK = labels_BK[:, None, :].expand(-1, num_samples, -1)
    losses = approx_ndcg(noisy_BSK.reshape(-1, width), copies_BSK.reshape(-1, width), temperature=temperature)
    return losses.view(size, num_samples).mean(dim=1)


def neural_sort(scores_BK: Tensor, labels_BK: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Loss [B]: mean over rows of the cross-entropy between the relaxed permutations of labels and of scores.

        P(s)_i = softmax_j(((n + 1 - 2 i) s_j - sum_k |s_j - s_k|) / temperature), i = 1 .. n

    Source: NeuralSort (Grover et al. 2019), equation 5; the target is relaxed the same way, as in TF-Ranking.
    """
    target_BKK = torch.softmax(_permutation_logits(labels_BK, temperature), dim=2)
    log_p_BKK = torch.log_softmax(_permutation_logits(scores_BK, temperature), dim=2)
    return -(target_BKK * log_p_BKK).sum(dim=2).mean(dim=1)


def _permutation_logits(values_BK: Tensor, temperature: float) -> Tensor:
    """[B, K, K]: row i holds the unnormalised log-probability of each item to be the i-th largest."""
    width = values_BK.shape[1]
    distances_BK = (values_BK[:, :, None] - values_BK[:, None, :]).abs().sum(dim=2)
    factors_K = width - 1 - 2 * torch.arange(width, device=values_BK.device, dtype=values_BK.dtype)
    return (factors_K[None, :, None] * values_BK[:, None, :] - distances_BK[:, None, :]) / temperature


def _positive_or_one(totals: Tensor) -> Tensor:
    return torch.where(totals > 0, totals, torch.ones_like(totals))
