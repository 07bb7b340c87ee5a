"""Negatives for two towers from the batch itself: the candidates of each user, and their weights.

Shape legend: B pairs of a batch, C candidates shared by the batch's users, N items, M draws a user, D width.

A sampler names the candidates to encode, and then returns the loss of each pair against them, `loss = -s+ + log(exp(s+)
+ sum over c of weight_c exp(s_c))`. Drawing with replacement is a weight that counts.

Other samplers return ids and their log q, not scores or losses. These return the loss on purpose: BIR and XIR draw by
the scores themselves, a set for each user, so ids and log q would be matrices of the scores' size. One pass draws,
computes the softmax and overwrites the scores with their gradient, at less than half the cost of separate draws and
loss. The others share the interface.

Source: XIR ("Cache-Augmented Inbatch Importance Resampling"), appendix A: lemma 3.1, theorems 3.1 and 3.2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.errors import InputError, nearest
from beamwood.losses.softmax import weighted_softmax
from beamwood.sampling.resample import Draw, DrawnPart, drawn_softmax, resample_counts

__all__ = ["SAMPLERS", "InBatchSampler", "Pairs", "log_popularity", "make_sampler"]

Correction = Literal["sampled", "program"]
CacheCounts = Literal["step", "all"]
Form = Literal["resampled", "weighted", "corrected"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """The inputs of a loss.

    Vectors of users float[B, D] and of candidates float[C, D]; scores [B] of the positives; candidates int64[C], always
    on the CPU; and a mask bool[B, C], true where an item is not a candidate of that user.
    """

    users_BD: Tensor
    items_CD: Tensor
    positive_B: Tensor
    candidates_C: Tensor
    masked_BC: Tensor


class InBatchSampler(ABC):
    """A sampler of in-batch negatives; by default it has neither further candidates nor a state."""

    masks_repeats = True
    """Whether all columns of a user's positive item are masked; False: only its own column is."""

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        """int64[C], the items to encode: the batch's first, in their order."""
        del generator
        return items_B

    @abstractmethod
    def losses(self, pairs: Pairs, generator: torch.Generator) -> Tensor:
        """[B], each positive's softmax against its negatives."""

    def state(self) -> dict[str, Any]:
        """The state a resume needs."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken; `state` itself does not change in later steps."""
        del state


def log_popularity(counts_N: NDArray[Any]) -> Tensor:
    """float32[N], ln of each item's share of all interactions; an item without any counts as one with 1."""
    counts = torch.from_numpy(np.maximum(np.asarray(counts_N, np.float64), 1.0))
    return torch.log(counts / counts.sum()).float()


@dataclass
class InBatch(InBatchSampler):
    """SSL, SSL-Pop, MNS and G-Tower: the batch's items (and `num_uniform` more), weighted by inverse probability.

    `log_q_N` float32[N]: ln of the probability of each item in a batch; None (SSL): every weight is 1. "sampled":
    `weight = 1 / (C q)`, an unbiased sum over the items that are not masked. "program": `1 / q` for candidates and
    positive alike, as in public programs; unbiased in the limit, if repeats of the positive are candidates too.
    """

    log_q_N: Tensor | None
    num_uniform: int = 0
    correction: Correction = "sampled"

    def __post_init__(self) -> None:
        self.masks_repeats = self.correction == "sampled"

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
            # The row's own positive is not a draw.
            own = self.correction == "sampled"
            share = (batch_size - own) / (len(candidates_C) - own)
            if share == 0:
                return torch.full_like(log_q, -math.log(len(self.log_q_N)))
            uniform = math.log1p(-share) - math.log(len(self.log_q_N))
            log_q = torch.logaddexp(log_q + math.log(share), torch.full_like(log_q, uniform))
        return log_q

    def losses(self, pairs: Pairs, generator: torch.Generator) -> Tensor:
        del generator
        return _corrected_losses(pairs, self.proposal(pairs.candidates_C, len(pairs.positive_B)), self.correction)


def _corrected_losses(pairs: Pairs, log_q_C: Tensor | None, correction: Correction) -> Tensor:
    """[B], each positive's softmax against candidates with these ln q (None: every weight is 1); see `InBatch`."""
    score_BC = pairs.users_BD @ pairs.items_CD.T
    batch_size, num_candidates = score_BC.shape
    of_positive_B = None
    if log_q_C is None:
        log_weight_C = score_BC.new_zeros(num_candidates)
    elif correction == "program":
        log_weight_C = -log_q_C.to(score_BC.device)
        of_positive_B = log_weight_C[:batch_size]
    else:
        # A user's own positive is not a draw, so C - 1 are.
        log_weight_C = -log_q_C.to(score_BC.device) - math.log(max(1, num_candidates - 1))
    return weighted_softmax(pairs.positive_B, score_BC, log_weight_C[None], of_positive_B, pairs.masked_BC)


@dataclass
class GTower(InBatchSampler):
    """In-batch negatives with frequencies estimated online from the gaps between an item's occurrences.

    Per batch t, for the items of the batch: `gap <- (1 - rate) gap + rate (t - last)`, `last <- t`; the share of an
    item is `1 / (gap * batch size)`. Gaps are between batches: items in every batch get the same estimate, however
    often they occur in it. Gaps start at N / B, as for equally frequent items. The papers hash items of unknown number
    into several tables and take the largest gap; here every item has its own place, so none collide. Source: Yi et al.,
    "Sampling-bias-corrected neural modeling", algorithm 2; the XIR study's G-Tower.
    """

    num_items: int
    rate: float = 0.01
    correction: Correction = "sampled"
    gap: Tensor = field(init=False)
    last: Tensor = field(init=False)
    step: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate={self.rate} is outside (0, 1]")
        self.gap = torch.full((self.num_items,), -1.0)
        self.last = torch.zeros(self.num_items)
        self.masks_repeats = self.correction == "sampled"

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        del generator
        self.step += 1
        items = torch.unique(items_B)
        gap = self._gaps(items, len(items_B))
        self.gap[items] = (1 - self.rate) * gap + self.rate * (self.step - self.last[items])
        self.last[items] = float(self.step)
        return items_B

    def log_q(self, items: Tensor, batch_size: int) -> Tensor:
        """float32, ln of the estimated share of each item among all interactions."""
        return -torch.log(self._gaps(items, batch_size).clamp(min=1.0)) - math.log(batch_size)

    def losses(self, pairs: Pairs, generator: torch.Generator) -> Tensor:
        del generator
        return _corrected_losses(pairs, self.log_q(pairs.candidates_C, len(pairs.positive_B)), self.correction)

    def _gaps(self, items: Tensor, batch_size: int) -> Tensor:
        """The gap of each item, N / B before its first occurrence."""
        gap = self.gap[items]
        return torch.where(gap < 0, torch.full_like(gap, self.num_items / batch_size), gap)

    def state(self) -> dict[str, Any]:
        return {"gap": self.gap, "last": self.last, "step": self.step}

    def load_state(self, state: dict[str, Any]) -> None:
        self.gap, self.last, self.step = state["gap"].clone(), state["last"].clone(), state["step"]


@dataclass
class Bir(InBatchSampler):
    """BIR: as many draws a user as the batch is large, by `softmax over the batch of (s - log pop)`.

    "resampled": the drawn items as plain negatives (the program; for a large batch they follow the softmax of the
    catalogue, theorem 3.1). "weighted": each also with `1 / (M w)`, w its probability within the batch (the form that
    theorem 3.2 analyses: its sum is that over the batch). "corrected": with `1 / (M q)`, q the probability of the draw
    over batches too, `exp(s) / mean over the batch of exp(s) / pop`: an estimate of the sum over the catalogue.
    """

    log_pop_N: Tensor
    form: Form = "resampled"
    draw: Draw = "systematic"

    def losses(self, pairs: Pairs, generator: torch.Generator) -> Tensor:
        log_pop_C = self.log_pop_N[pairs.candidates_C].to(pairs.users_BD.device)
        batch_size = len(pairs.positive_B)
        if self.form == "resampled":
            parts = [DrawnPart(0, len(pairs.candidates_C), batch_size, 1.0)]
            sides = (pairs.users_BD, pairs.items_CD, pairs.positive_B)
            return drawn_softmax(*sides, log_pop_C, pairs.masked_BC, parts, generator, self.draw)[0]
        score_BC = pairs.users_BD @ pairs.items_CD.T
        log_weight_BC = self.log_weights(score_BC.detach(), log_pop_C, pairs.masked_BC, batch_size, generator)
        return weighted_softmax(pairs.positive_B, score_BC, log_weight_BC)

    def log_weights(
        self, score_BC: Tensor, log_pop_C: Tensor, masked_BC: Tensor, num_draws: int, generator: torch.Generator
    ) -> Tensor:
        """[B, C], ln weight of the drawn items by the form, -inf elsewhere."""
        counts = resample_counts(score_BC, log_pop_C, masked_BC, num_draws, generator, self.draw)
        log_w = (score_BC - log_pop_C).masked_fill_(masked_BC, -torch.inf)
        log_z = torch.logsumexp(log_w, dim=1, keepdim=True)
        if self.form == "weighted":
            log_weight = torch.log(counts / num_draws) - (log_w - log_z)
        else:
            log_z = log_z - math.log(max(1, score_BC.shape[1] - 1))
            log_weight = torch.log(counts / num_draws) - (score_BC - log_z)
        return log_weight.masked_fill(counts == 0, -torch.inf)


@dataclass
class Xir(InBatchSampler):
    """XIR: half of the draws from the batch as BIR, half from a cache of items that were drawn often before.

    `loss = share * softmax(cache draws) + (1 - share) * softmax(batch draws)`; the cache (item ids, first uniform) is
    encoded again at each step, with gradient. The next cache is drawn among the items drawn in this step, in proportion
    to their draws: in this step (`cache_counts="step"`), or in all so far ("all", `occurrences` int64[N]). With "all" a
    small cache degenerates to a handful of items (docs/lab/LOG.md).
    """

    log_pop_N: Tensor
    cache_size: int
    share: float = 0.5
    draw: Draw = "systematic"
    cache_counts: CacheCounts = "step"
    cache: Tensor | None = None
    occurrences: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.occurrences = torch.zeros(len(self.log_pop_N), dtype=torch.int64)
        if self.cache_size < 1:
            raise InputError(f"cache_size={self.cache_size} is below 1")
        if not 0 <= self.share <= 1:
            raise InputError(f"share={self.share} is outside 0..1")

    def candidates(self, items_B: Tensor, generator: torch.Generator) -> Tensor:
        if self.cache is None:
            self.cache = torch.randint(len(self.log_pop_N), (self.cache_size,), generator=generator)
        return torch.cat([items_B, self.cache])

    def losses(self, pairs: Pairs, generator: torch.Generator) -> Tensor:
        candidates, batch_size = pairs.candidates_C, len(pairs.positive_B)
        half = max(1, batch_size // 2)
        parts = [
            DrawnPart(0, batch_size, half, 1 - self.share),
            DrawnPart(batch_size, len(candidates), half, self.share),
        ]
        log_pop_C = self.log_pop_N[candidates].to(pairs.users_BD.device)
        sides = (pairs.users_BD, pairs.items_CD, pairs.positive_B, log_pop_C)
        losses, drawn_C = drawn_softmax(*sides, pairs.masked_BC, parts, generator, self.draw)
        self._draw_cache(candidates, drawn_C.cpu(), generator)
        return losses

    def _draw_cache(self, candidates_C: Tensor, drawn_C: Tensor, generator: torch.Generator) -> None:
        """Count the drawn items, and draw the next cache among them; without any draw the cache stays."""
        self.occurrences.index_add_(0, candidates_C, drawn_C)
        items, place_C = torch.unique(candidates_C, return_inverse=True)
        weights = torch.zeros(len(items), dtype=torch.int64).index_add_(0, place_C, drawn_C)
        if self.cache_counts == "all":
            weights = torch.where(weights > 0, self.occurrences[items], 0)
        if weights.any():
            chosen = torch.multinomial(weights.double(), self.cache_size, replacement=True, generator=generator)
            self.cache = items[chosen]

    def state(self) -> dict[str, Any]:
        return {"cache": self.cache, "occurrences": self.occurrences}

    def load_state(self, state: dict[str, Any]) -> None:
        self.cache, self.occurrences = state["cache"], state["occurrences"].clone()


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
    cache_counts: CacheCounts = "step",
) -> InBatchSampler:
    """A sampler by name; `counts_N`: how often each item is a positive. `num_uniform` (MNS): by default the batch's.

    Errors: an unknown name.
    """
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
        return Xir(log_pop, batch_size, cache_share, draw, cache_counts)
    raise InputError(f"negatives='{name}' is unknown{nearest(name, SAMPLERS)}")
