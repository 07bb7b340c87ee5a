"""Negatives among popular (head) items: by Gumbel noise on their scores, the highest scores, or uniformly.

Shape legend: B rows, N items, K negatives a row.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from beamwood.errors import InputError, nearest

__all__ = ["HEAD_MODES", "head_negatives"]

HEAD_MODES = ("gumbel", "top", "uniform")


def head_negatives(
    pi_BN: Tensor, head_N: Tensor, masked_BN: Tensor, count: int, generator: torch.Generator, mode: str = "gumbel"
) -> Tensor:
    """int64[B, K] different head items of each row, none of them masked (the history and the target).

    "gumbel": the K largest of `pi + Gumbel noise`, which is drawing without replacement with probability proportional
    to exp(pi) (Plackett-Luce); "top": of pi alone; "uniform": every set alike. Source: LPO4Rec, equations 14-15.
    Raises `InputError` where a row has fewer than K candidates.
    """
    if mode not in HEAD_MODES:
        raise InputError(f"mode='{mode}' is unknown{nearest(mode, HEAD_MODES)}")
    keys = torch.zeros_like(pi_BN) if mode == "uniform" else pi_BN.detach()
    if mode != "top":
        # Gumbel noise is the negative logarithm of an exponential draw. numpy's are several times faster than torch's,
        # and there is one for each item of each row.
        seed = int(torch.randint(2**62, (1,), generator=generator))
        draws = np.random.Generator(np.random.SFC64(seed)).standard_exponential(tuple(pi_BN.shape), np.float32)
        keys = keys - torch.from_numpy(draws).clamp_(min=1e-20).log_()
    closed_BN = masked_BN | ~head_N
    best = torch.topk(keys.masked_fill(closed_BN, -torch.inf), min(count, len(head_N)), dim=1)
    if count > len(head_N) or bool((best.values[:, -1] == -torch.inf).any()):
        fewest = int((~closed_BN).sum(dim=1).min())
        fix = "lower num_negatives" if fewest else "lower tail_share or length, so that a history leaves some"
        raise InputError(f"a row has {fewest} head items that are not masked, fewer than {count}; {fix}")
    return best.indices
