"""Multi-class cross-entropy: over all classes, over a sample with its log q, and over the whole catalogue in blocks.

Shape legend: B rows, T targets a row, M negatives a row, C candidates a row, N classes, D width, E masked pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from beamwood.blocks import cell_blocks, slices

__all__ = [
    "BLOCK_CELLS",
    "BLOCK_ROWS",
    "catalogue_softmax",
    "full_softmax",
    "sampled_softmax",
    "shared_softmax",
    "weighted_softmax",
]

# Logits held at a time by `catalogue_softmax`: 4 MiB in float32, which stay in the cache.
BLOCK_CELLS = 2**20
# Rows of `weighted_softmax` in a block, so that its logits stay in the cache.
BLOCK_ROWS = 32
# Logits in a block on a GPU: half a GiB.
_GPU_CELLS = 2**27
# The largest probability of drawing the target by which others are renormalised: 1 leaves none.
_CERTAIN = 1 - 1e-6
# Beyond this distance above the positive's logit, float32 loses the terms near it.
_FAR = 60.0


def full_softmax(logits_BN: Tensor, targets_BT: Tensor) -> Tensor:
    """Loss [B, T] of each target against all classes: `-log(exp(o_t) / sum_n exp(o_n))`.

    `targets_BT` int64 in [0, N). A class may be masked with -inf logits. Source: DTR, equation 9.
    """
    chosen = torch.gather(logits_BN, 1, targets_BT)
    return torch.logsumexp(logits_BN, dim=1, keepdim=True) - chosen


def sampled_softmax(
    positive_BT: Tensor,
    negative_BM: Tensor,
    log_q_BM: Tensor,
    dropped_BTM: Tensor | None = None,
    log_q_positive_BT: Tensor | None = None,
) -> Tensor:
    """Loss [B, T] of each target against M drawn classes, each logit corrected by its probability.

        -log( exp(o+) / (exp(o+) + sum over kept draws of exp(o - ln(M q))) )

    `log_q_BM`: log-probability under which each class was drawn, or [1, 1] if the same for all. `dropped_BTM` bool:
    draws that equal the target and are left out; M is then the number kept. `log_q_positive_BT`: the log-probability
    of drawing the target itself; with it q is renormalised to the classes that are not the target, `q / (1 -
    q_positive)`.

    A target without a kept draw has loss 0, so that of a target drawn with a probability p near 1 the share `p^M` of
    the gradient is missing. Source: DTR, equations 20-21.
    """
    corrected_BTM = (negative_BM - log_q_BM)[:, None, :]
    if dropped_BTM is None:
        num_kept = torch.full_like(positive_BT, negative_BM.shape[1])
        corrected_BTM = corrected_BTM.expand(-1, positive_BT.shape[1], -1)
    else:
        num_kept = (~dropped_BTM).sum(dim=2).to(positive_BT.dtype)
        corrected_BTM = corrected_BTM.masked_fill(dropped_BTM, -torch.inf)
    # A row with nothing kept would have the gradient of logsumexp over -inf alone, which is NaN.
    some = num_kept > 0
    corrected_BTM = torch.where(some[:, :, None], corrected_BTM, torch.zeros_like(corrected_BTM))
    rivals_BT = torch.logsumexp(corrected_BTM, dim=2) - torch.log(num_kept.clamp(min=1))
    if log_q_positive_BT is not None:
        rivals_BT = rivals_BT + torch.log1p(-torch.exp(log_q_positive_BT).clamp(max=_CERTAIN))
    return torch.where(some, torch.nn.functional.softplus(rivals_BT - positive_BT), torch.zeros_like(positive_BT))


def shared_softmax(positive_B: Tensor, negative_BM: Tensor, targets_B: Tensor, drawn_M: Tensor, log_q: float) -> Tensor:
    """Loss [B] of each target against M draws that all rows share, each class drawn with log-probability `log_q`.

    `targets_B`, `drawn_M` int64, the classes; a row leaves out draws of its target. See `sampled_softmax`.
    """
    dropped_BM = drawn_M == targets_B[:, None]
    kept_B = (len(drawn_M) - dropped_BM.sum(dim=1)).clamp(min=1).to(positive_B.dtype)
    # The correction is the same for all draws of a row, so it moves to the target. Of a single class it is infinite.
    correction_B = math.log1p(-min(math.exp(log_q), _CERTAIN)) - log_q - torch.log(kept_B)
    return weighted_softmax(positive_B, negative_BM, negative_BM.new_zeros(1, len(drawn_M)), -correction_B, dropped_BM)


def weighted_softmax(
    positive_B: Tensor,
    negative_BC: Tensor,
    log_weight_BC: Tensor,
    log_weight_positive_B: Tensor | None = None,
    masked_BC: Tensor | None = None,
    *,
    counts: bool = False,
) -> Tensor:
    """Loss [B] of a positive against weighted candidates: `-a+ + log(exp(a+) + sum exp(a_c))`, `a = s + ln weight`.

    `log_weight_BC` float[B, C], or [1, C] for the same in every row; -inf, or True in `masked_BC`, is not a candidate.
    With `counts` the argument holds the weights themselves, how often each was drawn; 0 is not a candidate.
    Computed with its gradient in blocks of rows that stay in the cache. Source: the sampled softmax of XIR's appendix.
    """
    if log_weight_positive_B is not None:
        positive_B = positive_B + log_weight_positive_B
    losses: Tensor = _WeightedSoftmax.apply(  # type: ignore[no-untyped-call]
        positive_B, negative_BC, log_weight_BC, masked_BC, counts
    )
    return losses


class _WeightedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        positive_B: Tensor,
        negative_BC: Tensor,
        log_weight_BC: Tensor,
        masked_BC: Tensor | None,
        counts: bool,
    ) -> Tensor:
        share_BC, share_B, losses = torch.empty_like(negative_BC), torch.empty_like(positive_B), []
        log_weight_BC = log_weight_BC.to(negative_BC.dtype).expand(negative_BC.shape)
        for rows in slices(len(positive_B), BLOCK_ROWS if positive_B.device.type == "cpu" else len(positive_B)):
            positive, weights = positive_B[rows], log_weight_BC[rows]
            a = share_BC[rows]
            if counts:
                a.copy_(negative_BC[rows])
            else:
                torch.add(negative_BC[rows], weights, out=a)
            top = torch.maximum(a.max(dim=1).values, positive)
            none = masked_BC[rows] if masked_BC is not None else None
            if float((top - positive).max()) > _FAR:
                # A masked logit must not be the reference: one far above the candidates would underflow them to 0.
                none = torch.zeros_like(a, dtype=torch.bool) if none is None else none
                none = none | (weights == 0) if counts else none
                torch.where(none, positive[:, None], a, out=a)
                top = torch.maximum(a.max(dim=1).values, positive)
            a.sub_(top[:, None]).exp_()
            # Set to 0 after exp, not to -inf before it, which is several times slower.
            if counts:
                a.mul_(weights)
            if none is not None:
                a.masked_fill_(none, 0.0)
            own = torch.exp(positive - top)
            total = a.sum(dim=1) + own
            a.div_(total[:, None])
            share_B[rows] = own / total
            losses.append(torch.log(total) + top - positive)
        ctx.save_for_backward(share_B, share_BC)
        return torch.cat(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_B: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        share_B, share_BC = ctx.saved_tensors
        return gradient_B * (share_B - 1), share_BC.mul_(gradient_B[:, None]), None, None, None


def catalogue_softmax(
    queries_BD: Tensor, vectors_ND: Tensor, targets_B: Tensor, masked_2E: Tensor | None = None
) -> Tensor:
    """Loss [B] of each target against the whole catalogue: `log sum_n exp(q . v_n) - q . v_target`.

    `masked_2E` int64[2, E], rows (ascending) and items: an item that is not a candidate of that row; a row's target is
    one whatever it says. Rows, and items where a row alone is too long, go in blocks whose logits are computed anew in
    backward: no more than `BLOCK_CELLS` logits are held, whatever B and N are. `targets_B` int64 in [0, N). Computed
    in float32 or wider.
    """
    wide = torch.promote_types(queries_BD.dtype, torch.float32)
    if masked_2E is not None:
        masked_2E = masked_2E[:, masked_2E[1] != targets_B[masked_2E[0]]].contiguous()
    losses: Tensor = _CatalogueSoftmax.apply(  # type: ignore[no-untyped-call]
        queries_BD.to(wide), vectors_ND.to(wide), targets_B, masked_2E
    )
    return losses


class _CatalogueSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries_BD: Tensor, vectors_ND: Tensor, targets_B: Tensor, masked_2E: Tensor | None
    ) -> Tensor:
        total_B = queries_BD.new_full((len(queries_BD),), -torch.inf)
        for rows, items in _blocks(queries_BD, vectors_ND):
            logits = _logits(queries_BD, vectors_ND, masked_2E, rows, items)
            top = logits.amax(dim=1)
            part = logits.sub_(top[:, None]).exp_().sum(dim=1).log_().add_(top)
            total_B[rows] = torch.logaddexp(total_B[rows], part)
        ctx.save_for_backward(queries_BD, vectors_ND, targets_B, masked_2E, total_B)
        return total_B - (queries_BD * vectors_ND[targets_B]).sum(dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_B: Tensor) -> tuple[Tensor, Tensor, None, None]:
        queries_BD, vectors_ND, targets_B, masked_2E, total_B = ctx.saved_tensors
        of_queries, of_vectors = torch.zeros_like(queries_BD), torch.zeros_like(vectors_ND)
        scaled_BD = gradient_B[:, None] * queries_BD
        for rows, items in _blocks(queries_BD, vectors_ND):
            share = _logits(queries_BD, vectors_ND, masked_2E, rows, items).sub_(total_B[rows, None]).exp_()
            of_queries[rows].addmm_(share, vectors_ND[items])
            of_vectors[items].addmm_(share.T, scaled_BD[rows])
        of_queries.sub_(vectors_ND[targets_B]).mul_(gradient_B[:, None])
        of_vectors.index_add_(0, targets_B, scaled_BD, alpha=-1)
        return of_queries, of_vectors, None, None


def _blocks(queries_BD: Tensor, vectors_ND: Tensor) -> Iterator[tuple[slice, slice]]:
    """Row and item slices of the blocks in which logits are computed."""
    cells = BLOCK_CELLS if queries_BD.device.type == "cpu" else _GPU_CELLS
    return cell_blocks(len(queries_BD), len(vectors_ND), cells)


def _logits(queries_BD: Tensor, vectors_ND: Tensor, masked_2E: Tensor | None, rows: slice, items: slice) -> Tensor:
    """A block's logits; masked ones get the lowest finite number, as a row of -inf alone would become NaN."""
    logits = queries_BD[rows] @ vectors_ND[items].T
    if masked_2E is None:
        return logits
    first, stop = torch.searchsorted(masked_2E[0], masked_2E.new_tensor([rows.start, rows.stop])).tolist()
    row, item = masked_2E[:, first:stop]
    inside = (item >= items.start) & (item < items.stop)
    logits[row[inside] - rows.start, item[inside] - items.start] = torch.finfo(logits.dtype).min
    return logits
