"""GuidedRec's step: the model on its logistic loss, the surrogate on the true NDCG, the model on the surrogate.

Shape legend: B lists, K items a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from beamwood.kernels.guided import list_ndcg
from beamwood.losses.ranking import logistic
from beamwood.models.surrogate import NdcgSurrogate
from beamwood.training.step import StepResult, train_step

__all__ = ["GuidedFacts", "GuidedStep"]


@dataclass(frozen=True, slots=True)
class GuidedFacts:
    """Of one step: mean predicted and true NDCG of the lists, half the sum of their squared differences, and the
    logistic loss a pair (0 without it)."""

    predicted_ndcg: float
    true_ndcg: float
    surrogate_loss: float
    logloss: float


class GuidedStep:
    """The four moves on one batch of lists, each with an optimiser of its own, so that Adam's moments stay apart.

    1. The model on `beta * logloss`, summed over pairs (left out with `with_logloss=False`).
    2. Scores anew; the true NDCG@k of each list.
    3. The surrogate on `1/2 sum (predicted - true)^2`, scores detached.
    4. The model on `-sum predicted`, with the surrogate just updated and frozen.
    `leaky`: 3 also moves the model (by the third optimiser, which then holds its parameters too), and 4 the surrogate
    (by the second). Source: GuidedRec, algorithm 1; order and sums of its program.
    """

    def __init__(
        self,
        model: nn.Module,
        surrogate: NdcgSurrogate,
        optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer, torch.optim.Optimizer],
        *,
        beta: float = 1.0,
        k: int = 10,
        with_logloss: bool = True,
        leaky: bool = False,
    ) -> None:
        self.model, self.surrogate = model, surrogate
        self.by_logloss, self.by_ndcg, self.by_surrogate = optimizers
        self.beta, self.k, self.with_logloss, self.leaky = beta, k, with_logloss, leaky
        self.both = nn.ModuleList([model, surrogate])

    def __call__(
        self, scores: Callable[[], Tensor], labels_BK: Tensor, *, step: int, clip_norm: float | None = None
    ) -> tuple[StepResult, GuidedFacts]:
        """One step; `scores()` runs the model and gives [B, K]. Raises `NonFiniteError` before any bad update."""
        logloss = 0.0
        if self.with_logloss:
            result = self._move(self._logloss(scores, labels_BK), self.model, self.by_logloss, step, clip_norm)
            logloss = result.loss / self.beta / labels_BK.numel() if self.beta else 0.0
        scores_BK = scores()
        true_B = list_ndcg(scores_BK.detach(), labels_BK, k=self.k)
        p_BK = torch.sigmoid(scores_BK)
        shown: list[Tensor] = []

        def miss() -> Tensor:
            loss, predicted_B = self.surrogate.squared_miss(p_BK if self.leaky else p_BK.detach(), labels_BK, true_B)
            shown.append(predicted_B)
            return loss

        if self.leaky:
            surrogate_loss = self._move(miss, self.both, self.by_surrogate, step, clip_norm).loss
            result = self._move(
                lambda: -self.surrogate.summed(torch.sigmoid(scores()), labels_BK),
                self.both,
                self.by_ndcg,
                step,
                clip_norm,
            )
        else:
            surrogate_loss = self._move(miss, self.surrogate, self.by_surrogate, step, clip_norm).loss
            self.surrogate.requires_grad_(False)
            try:
                result = self._move(
                    lambda: -self.surrogate.summed(p_BK, labels_BK), self.model, self.by_ndcg, step, clip_norm
                )
            finally:
                self.surrogate.requires_grad_(True)
        facts = GuidedFacts(float(shown[0].mean()), float(true_B.mean()), surrogate_loss, logloss)
        return result, facts

    def _logloss(self, scores: Callable[[], Tensor], labels_BK: Tensor) -> Callable[[], Tensor]:
        return lambda: self.beta * logistic(scores(), labels_BK).sum()

    @staticmethod
    def _move(
        loss: Callable[[], Tensor],
        moved: nn.Module,
        optimizer: torch.optim.Optimizer,
        step: int,
        clip_norm: float | None,
    ) -> StepResult:
        return train_step(lambda _: loss(), [None], moved, [optimizer], step=step, clip_norm=clip_norm)
