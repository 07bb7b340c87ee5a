"""Drawing with replacement, represented by counts, and the softmax of a positive against the drawn items.

Shape legend: B rows, C candidates shared by the rows, M draws a row, P parts, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from beamwood.blocks import slices
from beamwood.errors import InputError, nearest
from beamwood.kernels.dispatch import native, native_level
from beamwood.losses.softmax import weighted_softmax

__all__ = ["Draw", "DrawnPart", "drawn_softmax", "resample_counts"]

Draw = Literal["systematic", "independent"]

# Rows in a block, so that their weights stay in the cache.
BLOCK_ROWS = 32
# Interleaved chains in which a row's weights are summed: columns 0, 16, 32, .., 1, 17, ..
CHAINS = 16


@dataclass(frozen=True, slots=True)
class DrawnPart:
    """One softmax of the loss: `draws` a row among the candidates `first` up to `stop`, with `share` of the loss."""

    first: int
    stop: int
    draws: int
    share: float


def resample_counts(
    score_BC: Tensor,
    log_q_C: Tensor,
    masked_BC: Tensor,
    num_draws: int,
    generator: torch.Generator,
    draw: Draw = "systematic",
) -> Tensor:
    """float32[B, C]: how often each candidate is drawn in `num_draws` draws by `softmax(score - log q)`.

    "independent": with replacement, one by one. "systematic": one uniform a row and equal steps, so that every count
    has the same mean and at most 1 of error; a pass over the row instead of a search for each draw. Masked items and
    scores of -inf are never drawn; a row without other items has no draws. Errors: `InputError` for another `draw`.
    """
    starts_B1 = _starts(len(score_BC), 1, draw, generator)
    return _drawn(score_BC, log_q_C, masked_BC, num_draws, starts_B1, generator)


def _starts(num_rows: int, num_parts: int, draw: Draw, generator: torch.Generator) -> Tensor | None:
    """float32[B, P], the uniform of each row and part; None for independent draws."""
    if draw not in get_args(Draw):
        raise InputError(f"draw='{draw}' is unknown{nearest(draw, get_args(Draw))}")
    if draw == "independent":
        return None
    return torch.rand((num_rows, num_parts), generator=generator, dtype=torch.float32)


def _drawn(
    score_BC: Tensor,
    log_q_C: Tensor,
    masked_BC: Tensor,
    num_draws: int,
    starts_B1: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """The counts, native where there is a core; without `starts` the draws are independent."""
    core = native()
    if core is None or starts_B1 is None or score_BC.device.type != "cpu":
        return _counts(score_BC, log_q_C, masked_BC, num_draws, starts_B1, generator)
    counts_BC = torch.empty(score_BC.shape, dtype=torch.float32)
    arrays = (each.contiguous().numpy() for each in (score_BC.float(), log_q_C.float(), masked_BC, starts_B1[:, 0]))
    core.resample_systematic(*arrays, num_draws, counts_BC.numpy(), torch.get_num_threads(), native_level())
    return counts_BC


def _counts(
    score_BC: Tensor,
    log_q_C: Tensor,
    masked_BC: Tensor,
    num_draws: int,
    starts_B1: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """The twin of the native draws, in blocks of rows; without `starts` the draws are independent."""
    device = score_BC.device
    counts_BC = torch.empty(score_BC.shape, dtype=torch.float32, device=device)
    for rows in slices(len(score_BC), BLOCK_ROWS if device.type == "cpu" else len(score_BC)):
        w = score_BC[rows].float() - log_q_C
        none = masked_BC[rows] | torch.isneginf(w)
        # Masked candidates are set to 0 after exp rather than to -inf before, which is several times slower.
        lowest = w.masked_fill(none, torch.inf).min(dim=1, keepdim=True).values
        torch.where(none, torch.where(torch.isinf(lowest), 0.0, lowest), w, out=w)
        w.sub_(w.max(dim=1, keepdim=True).values).exp_().masked_fill_(none, 0.0)
        if starts_B1 is not None:
            counts_BC[rows] = _systematic(w, num_draws, starts_B1[rows].to(device))
            continue
        sums = torch.cumsum(w, dim=1)
        uniforms = torch.rand((len(w), num_draws), generator=generator, dtype=w.dtype).to(device) * sums[:, -1:]
        drawn = torch.searchsorted(sums, uniforms, right=True).clamp_(max=w.shape[1] - 1)
        counts_BC[rows] = torch.zeros_like(w).scatter_add_(1, drawn, torch.ones_like(uniforms)).mul_(w > 0)
    return counts_BC


def _systematic(w_RC: Tensor, num_draws: int, starts_R1: Tensor) -> Tensor:
    """float32[R, C]. Draw j stands at (j + start) equal steps; how many stand up to a candidate is a floor."""
    num_rows, num_candidates = w_RC.shape
    chains = torch.nn.functional.pad(w_RC.double(), (0, -num_candidates % CHAINS))
    sums = torch.cumsum(chains.view(num_rows, -1, CHAINS).transpose(1, 2).reshape(num_rows, -1), dim=1)
    total = sums[:, -1:].clone()
    sums.mul_(num_draws / total.clamp(min=1e-30)).add_(starts_R1).floor_().clamp_(max=num_draws)
    counts = torch.diff(sums, dim=1, prepend=torch.zeros_like(total))
    counts = counts.view(num_rows, CHAINS, -1).transpose(1, 2).reshape(num_rows, -1)[:, :num_candidates]
    # The rest from rounding goes to the best.
    left = torch.where(total > 0, num_draws - counts.sum(dim=1, keepdim=True), 0.0)
    return counts.scatter_add(1, w_RC.argmax(dim=1, keepdim=True), left).float()


def drawn_softmax(
    users_BD: Tensor,
    items_CD: Tensor,
    positive_B: Tensor,
    log_q_C: Tensor,
    masked_BC: Tensor,
    parts: list[DrawnPart],
    generator: torch.Generator,
    draw: Draw = "systematic",
) -> tuple[Tensor, Tensor]:
    """Loss [B], the shares' sum of each part's softmax of the positive against its draws, and int64[C], what was drawn.

    A part draws by `softmax(users . items - log q)` among its candidates that are not masked, with replacement and
    without gradient; a candidate weighs in its denominator as often as it was drawn. The parts cover the candidates in
    their order. Memory: the matrix of scores, once. Errors: `InputError` for another `draw`. Source: the losses of BIR
    and XIR as `sampling.in_batch` names them.
    """
    native_fits = users_BD.dtype == items_CD.dtype == torch.float32 and users_BD.device.type == "cpu"
    # Drawn once for all parts, so that torch and native draws agree.
    starts_BP = _starts(len(users_BD), len(parts), draw, generator)
    if starts_BP is not None and native_fits and native() is not None:
        cuts = [(part.first, part.stop, part.draws, part.share) for part in parts]
        losses, drawn = _NativeDrawnSoftmax.apply(  # type: ignore[no-untyped-call]
            users_BD, items_CD, positive_B, log_q_C, masked_BC, starts_BP, cuts
        )
        return losses, drawn
    score_BC = users_BD @ items_CD.T
    drawn_C = torch.zeros(len(items_CD), dtype=torch.int64, device=score_BC.device)
    losses = torch.zeros_like(positive_B)
    for number, part in enumerate(parts):
        place = slice(part.first, part.stop)
        starts = None if starts_BP is None else starts_BP[:, number : number + 1]
        scores = score_BC[:, place].detach()
        counts = _drawn(scores, log_q_C[place], masked_BC[:, place], part.draws, starts, generator)
        drawn_C[place] = counts.sum(dim=0).long()
        losses = losses + part.share * weighted_softmax(positive_B, score_BC[:, place], counts, counts=True)
    return losses, drawn_C


class _NativeDrawnSoftmax(torch.autograd.Function):
    """Scores become their gradient in one native pass, whose two products give the gradients of both sides."""

    @staticmethod
    def forward(
        ctx: Any,
        users_BD: Tensor,
        items_CD: Tensor,
        positive_B: Tensor,
        log_q_C: Tensor,
        masked_BC: Tensor,
        starts_BP: Tensor,
        cuts: list[tuple[int, int, int, float]],
    ) -> tuple[Tensor, Tensor]:
        share_BC = users_BD @ items_CD.T
        losses_B, own_B = torch.empty_like(positive_B), torch.empty_like(positive_B)
        drawn_C = torch.empty(len(items_CD), dtype=torch.int64)
        native().drawn_softmax(
            share_BC.numpy(),
            log_q_C.float().contiguous().numpy(),
            masked_BC.contiguous().numpy(),
            positive_B.detach().contiguous().numpy(),
            starts_BP.numpy(),
            cuts,
            losses_B.numpy(),
            own_B.numpy(),
            drawn_C.numpy(),
            torch.get_num_threads(),
            native_level(),
        )
        # The gradient by the positive: each part's share of it, less the total share.
        ctx.save_for_backward(users_BD, items_CD, own_B - sum(share for *_, share in cuts), share_BC)
        ctx.mark_non_differentiable(drawn_C)
        return losses_B, drawn_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_B: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        users_BD, items_CD, growth_B, share_BC = ctx.saved_tensors
        of_users = (share_BC @ items_CD).mul_(gradient_B[:, None])
        of_items = share_BC.T @ (users_BD * gradient_B[:, None])
        return of_users, of_items, gradient_B * growth_B, None, None, None, None
