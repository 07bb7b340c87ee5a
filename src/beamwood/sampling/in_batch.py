"""Negatives for two towers from the batch itself: which candidates a user is compared with, and with what weight.

Shape legend: B pairs of a batch, C candidates shared by the batch's users, N items, M draws a user.

A sampler names the candidates to encode, and then, from their scores without gradient, the weight of each in the
denominator of each user: `loss = -s+ + log(exp(s+) + sum over c of weight_c exp(s_c))`. Drawing with replacement is a
weight that counts. Source: XIR ("Cache-Augmented Inbatch Importance Resampling"), section 3 and appendix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.errors import InputError, nearest
from beamwood.kernels.dispatch import native, native_level

__all__ = ["SAMPLERS", "InBatchSampler", "Term", "log_popularity", "make_sampler", "resample_counts"]

Correction = Literal["sampled", "program"]
Form = Literal["resampled", "weighted", "corrected"]
Draw = Literal["systematic", "independent"]

# Rows that are drawn for together, so that their weights stay in the cache.
BLOCK_ROWS = 32


@dataclass(frozen=True, slots=True)
class Term:
    """One softmax of the loss, `share` of it, over the candidates `place`.

    `log_weight_BC` float32[B, C] or [1, C]: ln weight of each candidate, masked ones not yet taken out, or with
    `counts` the weight itself, how often it was drawn; `log_weight_positive_B` [B], None for weight 1.
    """

    share: float
    log_weight_BC: Tensor
    log_weight_positive_B: Tensor | None = None
    place: slice = field(default_factory=lambda: slice(None))
    counts: bool = False


class InBatchSampler(Protocol):
    """What a step asks of a sampler."""

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        """int64[C], the items to encode: the batch's first, in their order."""
        ...

    def terms(
        self, scores_BC: Tensor, candidates_C: Tensor, masked_BC: Tensor, generator: torch.Generator
    ) -> list[Term]:
        """The loss's terms; `scores_BC` without gradient, `masked_BC` bool: no candidate of that user."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...


def log_popularity(counts_N: NDArray[Any], *, floor: float = 1.0) -> Tensor:
    """float32[N], ln of each item's share of all interactions; counts below `floor` are taken as that."""
    if floor <= 0:
        raise InputError(f"floor={floor} must be above 0, or an item without interactions has log 0")
    counts = torch.from_numpy(np.maximum(np.asarray(counts_N, np.float64), floor))
    return torch.log(counts / counts.sum()).float()


def resample_counts(
    log_weight_BC: Tensor, num_draws: int, generator: torch.Generator, draw: Draw = "systematic"
) -> Tensor:
    """float32[B, C]: how often each candidate is drawn in `num_draws` draws by `softmax(log_weight)`, -inf never.

    "independent": with replacement, one by one. "systematic": one uniform a row and equal steps, so that every count
    has the same mean and at most 1 of error; a pass over the row instead of a search for each draw. A row that is
    -inf throughout has no draws.
    """
    if draw not in ("systematic", "independent"):
        raise InputError(f"draw='{draw}' is unknown{nearest(draw, ['systematic', 'independent'])}")
    return _counts(log_weight_BC, None, num_draws, generator, draw)


def _counts(
    score_BC: Tensor,
    less_C: Tensor | None,
    num_draws: int,
    generator: torch.Generator,
    draw: Draw,
    masked_BC: Tensor | None = None,
) -> Tensor:
    """Draws by `softmax(score - less)` without what is masked, in blocks of rows that stay in the cache."""
    num_rows, num_candidates = score_BC.shape
    starts = torch.rand((num_rows, 1), generator=generator) if draw == "systematic" else None
    counts_BC = torch.empty((num_rows, num_candidates))
    core = native()
    if core is not None and starts is not None and hasattr(core, "resample_systematic"):
        none = torch.zeros(score_BC.shape, dtype=torch.bool) if masked_BC is None else masked_BC.contiguous()
        less = torch.zeros(num_candidates) if less_C is None else less_C.float()
        arrays = (score_BC.float().contiguous(), less.contiguous(), none, starts[:, 0].contiguous())
        threads = torch.get_num_threads()
        core.resample_systematic(*(a.numpy() for a in arrays), num_draws, counts_BC.numpy(), threads, native_level())
        return counts_BC
    for first in range(0, num_rows, BLOCK_ROWS):
        rows = slice(first, first + BLOCK_ROWS)
        w = torch.sub(score_BC[rows], less_C) if less_C is not None else score_BC[rows].clone()
        none = torch.isneginf(w) if masked_BC is None else masked_BC[rows] | torch.isneginf(w)
        # What is no candidate is set to 0 after exp, not to -inf before it, which is several times slower.
        lowest = w.masked_fill(none, torch.inf).min(dim=1, keepdim=True).values
        torch.where(none, torch.where(torch.isinf(lowest), 0.0, lowest), w, out=w)
        w.sub_(w.max(dim=1, keepdim=True).values).exp_().masked_fill_(none, 0.0)
        sums, counts = torch.cumsum(w, dim=1), counts_BC[rows]
        total = sums[:, -1:].clone()
        if starts is None:
            uniforms = torch.rand((len(w), num_draws), generator=generator) * total
            drawn = torch.searchsorted(sums, uniforms, right=True).clamp_(max=num_candidates - 1)
            counts.zero_().scatter_add_(1, drawn, torch.ones_like(uniforms)).mul_(w > 0)
            continue
        # Draw j stands at (j + start) of equal steps; how many stand up to a candidate is a floor.
        sums.mul_(num_draws / total.clamp(min=1e-30)).add_(starts[rows]).floor_().clamp_(max=num_draws)
        sums[:, -1] = torch.where(total[:, 0] > 0, float(num_draws), 0.0)
        counts[:, 0] = sums[:, 0]
        torch.sub(sums[:, 1:], sums[:, :-1], out=counts[:, 1:])
    return counts_BC


@dataclass(slots=True)
class InBatch:
    """SSL, SSL-Pop, MNS and G-Tower: the batch's items (and `num_uniform` more), weighted by what they are likely.

    `log_q_N` float32[N]: ln of the probability of each item in a batch; None (SSL): every weight is 1. "sampled":
    `weight = 1 / (C q)`, an unbiased sum over the items that are not masked. "program": `1 / q` for candidates and
    positive alike, as public programs have it; unbiased in the limit only where repeats of the positive are not masked.
    """

    log_q_N: Tensor | None
    num_uniform: int = 0
    correction: Correction = "sampled"

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        if self.num_uniform == 0:
            return items_B
        assert self.log_q_N is not None
        return torch.cat([items_B, torch.randint(len(self.log_q_N), (self.num_uniform,), generator=generator)])

    def proposal(self, candidates_C: Tensor, batch_size: int) -> Tensor | None:
        """float32[C], ln q of each candidate: popularity in the batch mixed with the uniform share."""
        if self.log_q_N is None:
            return None
        log_q = self.log_q_N[candidates_C]
        if self.num_uniform:
            share = batch_size / len(candidates_C)
            uniform = math.log1p(-share) - math.log(len(self.log_q_N))
            log_q = torch.logaddexp(log_q + math.log(share), torch.full_like(log_q, uniform))
        return log_q

    def terms(
        self, scores_BC: Tensor, candidates_C: Tensor, masked_BC: Tensor, generator: torch.Generator
    ) -> list[Term]:
        del generator, masked_BC
        batch_size = len(scores_BC)
        log_q = self.proposal(candidates_C, batch_size)
        if log_q is None:
            return [Term(1.0, torch.zeros((1, len(candidates_C))))]
        if self.correction == "program":
            return [Term(1.0, -log_q[None], -log_q[:batch_size])]
        # A user's own positive is no draw, so C - 1 are.
        return [Term(1.0, -log_q[None] - math.log(max(1, len(candidates_C) - 1)))]

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        del state


@dataclass(slots=True)
class GTower:
    """In-batch negatives with frequencies estimated on line from the gaps between an item's occurrences.

    Per batch t and hash h: `gap <- (1 - rate) gap + rate (t - last)`, `last <- t` for the batch's items; the share of
    an item is `1 / (largest gap over hashes * batch size)`. Gaps start at N / B, as if all items were alike. Source:
    Yi et al., "Sampling-bias-corrected neural modeling", algorithm 2; the XIR study's G-Tower.
    """

    num_items: int
    num_hashes: int = 3
    buckets: int = 0
    rate: float = 0.01
    correction: Correction = "sampled"
    gap: Tensor = field(init=False)
    last: Tensor = field(init=False)
    multipliers: Tensor = field(init=False)
    step: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate={self.rate} is outside (0, 1]")
        self.buckets = self.buckets or max(16, 4 * self.num_items)
        self.gap = torch.full((self.num_hashes, self.buckets), -1.0)
        self.last = torch.zeros((self.num_hashes, self.buckets))
        # Odd multipliers of a multiplicative hash; the first is 1, so that few items do not collide there.
        self.multipliers = torch.tensor([1, 2654435761, 2246822519, 3266489917][: self.num_hashes])

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        del generator
        self.step += 1
        slots = self._slots(torch.unique(items_B))
        rows = torch.arange(self.num_hashes)[:, None]
        first = self.num_items / len(items_B)
        gap = self.gap[rows, slots]
        gap = torch.where(gap < 0, torch.full_like(gap, first), gap)
        self.gap[rows, slots] = (1 - self.rate) * gap + self.rate * (self.step - self.last[rows, slots])
        self.last[rows, slots] = float(self.step)
        return items_B

    def log_q(self, items: Tensor, batch_size: int) -> Tensor:
        """ln of the estimated share of each item among all that pass."""
        gap = self.gap[torch.arange(self.num_hashes)[:, None], self._slots(items)]
        gap = torch.where(gap < 0, torch.full_like(gap, self.num_items / batch_size), gap)
        return -torch.log(gap.max(dim=0).values.clamp(min=1.0)) - math.log(batch_size)

    def terms(
        self, scores_BC: Tensor, candidates_C: Tensor, masked_BC: Tensor, generator: torch.Generator
    ) -> list[Term]:
        log_q_N = torch.zeros(self.num_items)
        log_q_N[candidates_C] = self.log_q(candidates_C, len(scores_BC))
        return InBatch(log_q_N, correction=self.correction).terms(scores_BC, candidates_C, masked_BC, generator)

    def _slots(self, items: Tensor) -> Tensor:
        return (items[None] * self.multipliers[:, None]) % self.buckets

    def state(self) -> dict[str, Any]:
        return {"gap": self.gap, "last": self.last, "step": self.step}

    def load_state(self, state: dict[str, Any]) -> None:
        self.gap, self.last, self.step = state["gap"], state["last"], state["step"]


@dataclass(slots=True)
class Bir:
    """BIR: as many draws a user as the batch is large, by `softmax over the batch of (s - log pop)`.

    "resampled": the drawn items as plain negatives (the program; for a large batch they follow the softmax of the
    catalogue, theorem 3.1). "weighted": each with `1 / (M w)` besides, w its probability within the batch (the form
    that theorem 3.2 analyses: its sum is that over the batch). "corrected": with `1 / (M q)`, q the probability of the
    draw over batches too, `exp(s) / mean over the batch of exp(s) / pop`: an estimate of the sum over the catalogue.
    """

    log_pop_N: Tensor
    form: Form = "resampled"
    draw: Draw = "systematic"

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        del generator
        return items_B

    def terms(
        self, scores_BC: Tensor, candidates_C: Tensor, masked_BC: Tensor, generator: torch.Generator
    ) -> list[Term]:
        log_weight, _ = self.resampled(scores_BC, candidates_C, masked_BC, len(scores_BC), generator)
        return [Term(1.0, log_weight, counts=self.form == "resampled")]

    def resampled(
        self, scores_BC: Tensor, candidates_C: Tensor, masked_BC: Tensor, num_draws: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Weights [B, C] of the drawn items (ln, but for "resampled"), and how often each was drawn."""
        log_pop_C = self.log_pop_N[candidates_C]
        counts = _counts(scores_BC, log_pop_C, num_draws, generator, self.draw, masked_BC)
        if self.form == "resampled":
            return counts, counts
        log_w = (scores_BC - log_pop_C).masked_fill_(masked_BC, -torch.inf)
        if self.form == "weighted":
            log_weight = torch.log(counts / num_draws) - (log_w - torch.logsumexp(log_w, dim=1, keepdim=True))
        else:
            log_z = torch.logsumexp(log_w, dim=1, keepdim=True) - math.log(max(1, scores_BC.shape[1] - 1))
            log_weight = torch.log(counts / num_draws) - (scores_BC - log_z)
        return log_weight.masked_fill(counts == 0, -torch.inf), counts

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        del state


@dataclass(slots=True)
class Xir:
    """XIR: half of the draws from the batch as BIR, half from a cache of items that were drawn often before.

    `loss = share * softmax(cache draws) + (1 - share) * softmax(batch draws)`; the cache (item ids, first uniform) is
    encoded anew at each step, with gradient; the next one is drawn by how often its items were drawn in this step.
    """

    log_pop_N: Tensor
    cache_size: int
    share: float = 0.5
    draw: Draw = "systematic"
    cache: Tensor | None = None

    def __post_init__(self) -> None:
        if self.cache_size < 1:
            raise InputError(f"cache_size={self.cache_size} is below 1")
        if not 0 <= self.share <= 1:
            raise InputError(f"share={self.share} is outside 0..1")

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        if self.cache is None:
            self.cache = torch.randint(len(self.log_pop_N), (self.cache_size,), generator=generator)
        return torch.cat([items_B, self.cache])

    def terms(
        self, scores_BC: Tensor, candidates_C: Tensor, masked_BC: Tensor, generator: torch.Generator
    ) -> list[Term]:
        batch_size, bir = len(scores_BC), Bir(self.log_pop_N, draw=self.draw)
        half, terms = max(1, batch_size // 2), []
        occurrences = torch.zeros(len(candidates_C))
        for place, share in (
            (slice(batch_size, None), self.share),
            (slice(0, batch_size), 1 - self.share),
        ):
            drawn, counts = bir.resampled(
                scores_BC[:, place], candidates_C[place], masked_BC[:, place], half, generator
            )
            occurrences[place] = counts.sum(dim=0)
            terms.append(Term(share, drawn, place=place, counts=True))
        if occurrences.sum() > 0:
            picks = torch.multinomial(occurrences, self.cache_size, replacement=True, generator=generator)
            self.cache = candidates_C[picks]
        return terms

    def state(self) -> dict[str, Any]:
        return {"cache": self.cache}

    def load_state(self, state: dict[str, Any]) -> None:
        self.cache = state["cache"]


SAMPLERS = ("ssl", "ssl-pop", "mns", "g-tower", "bir", "xir")


def make_sampler(
    name: str,
    counts_N: NDArray[Any],
    *,
    batch_size: int,
    num_uniform: int | None = None,
    correction: Correction = "sampled",
    form: Form = "resampled",
    draw: Draw = "systematic",
    cache_share: float = 0.5,
    rate: float = 0.01,
) -> InBatchSampler:
    """A sampler by name; `counts_N` training interactions of each item. `num_uniform` (MNS): by default the batch's."""
    log_pop = log_popularity(counts_N)
    if name == "ssl":
        return InBatch(None)
    if name == "ssl-pop":
        return InBatch(log_pop, correction=correction)
    if name == "mns":
        return InBatch(log_pop, batch_size if num_uniform is None else num_uniform, correction)
    if name == "g-tower":
        return GTower(len(counts_N), rate=rate, correction=correction)
    if name == "bir":
        return Bir(log_pop, form, draw)
    if name == "xir":
        return Xir(log_pop, batch_size, cache_share, draw)
    raise InputError(f"negatives='{name}' is unknown{nearest(name, SAMPLERS)}")
