"""GuidedRec's step: the model on its logistic loss, the surrogate on the true NDCG, the model on the surrogate.

Shape legend: B lists, K items a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from beamwood.kernels.guided import GuidedMove, guided_move
from beamwood.losses.ranking import logistic
from beamwood.models.surrogate import NdcgSurrogate
from beamwood.training.step import StepResult, apply_gradients, train_step

__all__ = ["GuidedFacts", "GuidedStep"]


@dataclass(frozen=True, slots=True)
class GuidedFacts:
    """Facts of one step: the mean predicted and true NDCG of the lists, the surrogate's loss (half the sum of their
    squared differences), and the mean logistic loss of a pair (0 without it).
    """

    predicted_ndcg: float
    true_ndcg: float
    surrogate_loss: float
    logloss: float


class GuidedStep:
    """The updates on one batch of lists, each with its own optimiser, so that Adam's moments are not mixed.

    1. The model on `beta * logloss`, summed over pairs (left out with `with_logloss=False`).
    2. Scores are computed again, and the true NDCG@k of each list.
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
        beta: float,
        k: int,
        with_logloss: bool,
        leaky: bool,
    ) -> None:
        self.model, self.surrogate = model, surrogate
        self.by_logloss, self.by_ndcg, self.by_surrogate = optimizers
        self.beta, self.k, self.with_logloss, self.leaky = beta, k, with_logloss, leaky
        self.moved = list(model.parameters())

    def __call__(
        self, scores: Callable[[], Tensor], labels_BK: Tensor, *, step: int, clip_norm: float | None = None
    ) -> tuple[StepResult, GuidedFacts]:
        """One step; `scores()` runs the model and returns [B, K]. Raises `NonFiniteError` before any bad update."""
        logloss = 0.0
        if self.with_logloss:
            result = train_step(
                lambda: self.beta * logistic(scores(), labels_BK).sum(),
                self.model,
                [self.by_logloss],
                step=step,
                clip_norm=clip_norm,
            )
            logloss = result.loss / self.beta / labels_BK.numel() if self.beta else 0.0
        scores_BK = scores()
        of_surrogate = self._move(scores_BK, labels_BK, self.by_surrogate, step, clip_norm, k=self.k)
        # With leaky the model has just been updated.
        scores_BK = scores() if self.leaky else scores_BK
        of_model = self._move(scores_BK, labels_BK, self.by_ndcg, step, clip_norm, k=None)
        miss, result = of_surrogate[0], of_model[1]
        return result, GuidedFacts(miss.predicted, miss.true, miss.loss, logloss)

    def _move(
        self,
        scores_BK: Tensor,
        labels_BK: Tensor,
        optimizer: torch.optim.Optimizer,
        step: int,
        clip_norm: float | None,
        *,
        k: int | None,
    ) -> tuple[GuidedMove, StepResult]:
        """Update the surrogate by its error of the NDCG@k, or the model where k is None; with `leaky` both."""
        of_model, of_surrogate = self.leaky or k is None, self.leaky or k is not None
        weights = self.surrogate.weights
        move = guided_move(
            scores_BK, labels_BK, weights, self.surrogate.shape, k=k, of_scores=of_model, of_weights=of_surrogate
        )
        weights.grad = move.d_weights
        if of_model:
            scores_BK.backward(move.d_scores_BK)  # type: ignore[no-untyped-call]
        moved = [*(self.moved if of_model else []), *([weights] if of_surrogate else [])]
        return move, apply_gradients(move.loss, moved, [optimizer], step=step, clip_norm=clip_norm)
