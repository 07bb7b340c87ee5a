"""Negatives among popular (head) items: by Gumbel noise on their scores, the highest scores, or uniformly.

Shape legend: B rows, N items, K negatives a row, L banned items a row, M candidates a row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from beamwood.errors import InputError, nearest

__all__ = ["HEAD_MODES", "Pi", "head_negatives", "num_draws"]

HEAD_MODES = ("gumbel", "top", "uniform")
Pi = Callable[[Tensor, Tensor | None], Tensor]
"""`pi(rows int64[R], items int64[R, M])` [R, M], the values of these items; where `items` is None those of all, [R, N],
which may be written on."""
BLOCK_CELLS = 2**20
"""The most scores held at a time where rows are completed."""


def num_draws(count: int) -> int:
    """M: how many items a row draws with replacement, to find `count` different ones among them."""
    return 6 * count


@torch.no_grad()
def head_negatives(
    pi: Pi,
    head_N: Tensor,
    banned_BL: Tensor,
    count: int,
    generator: torch.Generator,
    mode: str = "gumbel",
    ceiling: float | None = None,
) -> Tensor:
    """int64[B, K] different head items of each row in the order drawn, none banned (the history and the target).

    "gumbel": the K largest of `pi + Gumbel noise`, which is drawing without replacement with probability proportional
    to exp(pi) (Plackett-Luce); "top": of pi alone; "uniform": every set alike. Source: LPO4Rec, equations 14-15.
    Drawing without replacement equals drawing with replacement and dropping repeats; only rows with too many repeats
    need noise for every item. With a `ceiling` that no pi exceeds the draws are uniform ones, each kept with
    probability exp(pi - ceiling), which needs no other scores; without one, they invert the sums of exp(pi).
    Raises `InputError` where a row has fewer than K candidates.
    """
    if mode not in HEAD_MODES:
        raise InputError(f"mode='{mode}' is unknown{nearest(mode, HEAD_MODES)}")
    if mode == "uniform":
        pi, ceiling = _constant_pi(len(head_N)), 0.0
    rows, drawn = torch.arange(len(banned_BL)), num_draws(count)
    if mode == "top" or not bool(head_N.any()):
        items, kept = banned_BL[:, :0], banned_BL[:, :0] > 0
    elif ceiling is None:
        items, kept = _by_inversion(_masked(pi(rows, None), head_N, banned_BL), drawn, generator)
    else:
        items, kept = _by_rejection(pi, ceiling, head_N, banned_BL, drawn, generator)
    chosen_BK, found_B = _first_different(items, kept, count)
    for short in torch.split(torch.nonzero(found_B < count)[:, 0], max(1, BLOCK_CELLS // len(head_N))):
        keys = _masked(pi(short, None), head_N, banned_BL[short])
        if mode != "top":
            keys += _gumbel(keys.shape, generator)
        chosen_BK[short] = _completed(keys, chosen_BK[short], found_B[short], banned_BL[short], head_N)
    return chosen_BK


def _constant_pi(num_items: int) -> Pi:
    return lambda rows, items: torch.zeros((*rows.shape, num_items) if items is None else items.shape)


def _masked(pi_RN: Tensor, head_N: Tensor, banned_RL: Tensor) -> Tensor:
    """pi, with -inf written for items that may not be drawn."""
    # Addition is several times faster than filling by a mask.
    return pi_RN.add_(torch.zeros(len(head_N)).masked_fill_(~head_N, -torch.inf)).scatter_(1, banned_RL, -torch.inf)


def _gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Gumbel noise: the negative logarithm of exponential draws, numpy's, which are far faster than torch's."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    draws = np.random.Generator(np.random.SFC64(seed)).standard_exponential(tuple(shape), np.float32)
    return -torch.from_numpy(draws).clamp_(min=1e-20).log_()


def _by_rejection(
    pi: Pi, ceiling: float, head_N: Tensor, banned_BL: Tensor, drawn: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Items [B, M] with replacement, and which of them are kept: these follow exp(pi) over what may be drawn."""
    rows, items_H = torch.arange(len(banned_BL)), torch.nonzero(head_N)[:, 0]
    items = items_H[torch.randint(len(items_H), (len(rows), drawn), generator=generator)]
    kept = torch.rand(items.shape, generator=generator) < torch.exp(pi(rows, items) - ceiling)
    return items, kept & ~(items[:, :, None] == banned_BL[:, None, :]).any(dim=2)


def _by_inversion(logits_BN: Tensor, drawn: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """As `_by_rejection`, from all scores, which it writes over; sums are rounded to 2^-24 of a row's total."""
    upto = logits_BN.sub_(logits_BN.amax(dim=1, keepdim=True)).exp_().cumsum(dim=1)
    points = torch.rand(len(upto), drawn, generator=generator) * upto[:, -1:]
    items = torch.searchsorted(upto, points, right=True).clamp_(max=upto.shape[1] - 1)
    # A rounded point may equal the total, beyond all items with a weight; and scores may be NaN.
    return items, logits_BN.gather(1, items) > 0


def _first_different(items_BM: Tensor, kept_BM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first K different kept items of each row, in order, and their number; places after these are arbitrary."""
    # Dropped draws get distinct keys, so that they are no repeats.
    names, order = torch.where(kept_BM, items_BM, -1 - torch.arange(items_BM.shape[1])).sort(dim=1, stable=True)
    repeats = torch.zeros_like(kept_BM).scatter_(1, order[:, 1:], names[:, 1:] == names[:, :-1])
    fresh = kept_BM & ~repeats
    order = torch.argsort((~fresh).byte(), dim=1, stable=True)[:, :count]
    return pad(items_BM.gather(1, order), (0, count - order.shape[1])), fresh.sum(dim=1).clamp_(max=count)


def _completed(keys_RN: Tensor, chosen_RK: Tensor, found_R: Tensor, banned_RL: Tensor, head_N: Tensor) -> Tensor:
    """The items found so far, then those with the largest keys, which has the same distribution as further draws."""
    count = chosen_RK.shape[1]
    is_found = torch.arange(count) < found_R[:, None]
    rows = torch.arange(len(keys_RN))[:, None].expand_as(chosen_RK)
    keys_RN[rows[is_found], chosen_RK[is_found]] = -torch.inf
    best = torch.topk(keys_RN, min(count, keys_RN.shape[1]), dim=1)
    is_open = best.values != -torch.inf
    if bool((found_R + is_open.sum(dim=1) < count).any()):
        closed = (~head_N).expand_as(keys_RN).scatter(1, banned_RL, True)
        fewest = int((~closed).sum(dim=1).min())
        fix = "loss.num_negatives" if fewest else "loss.tail_share or model.length, so that a history leaves some"
        raise InputError(f"a row has {fewest} head items that are not masked, fewer than {count}; lower {fix}")
    order = torch.argsort((~torch.cat([is_found, is_open], dim=1)).byte(), dim=1, stable=True)[:, :count]
    return torch.gather(torch.cat([chosen_RK, best.indices], dim=1), 1, order)
