"""The contract of losses of a tree level: a finite value for every draw, and a gradient that raises the target's score.

Shape legend: B histories, T targets a history, M nodes drawn a level, n nodes of a level.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from beamwood.losses.levels import LevelDraw, LevelLoss

__all__ = ["LevelLossContract"]

_ROWS, _NODES = 6, 9


class LevelLossContract:
    """Set `loss`.

    For example:

        class TestMine(LevelLossContract):
            loss = MINE
    """

    loss: ClassVar[LevelLoss]

    def level(self) -> tuple[LevelDraw, torch.Tensor, torch.Tensor]:
        """A whole level, its scores and one target a row."""
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(_ROWS, _NODES, generator=generator, requires_grad=True)
        return LevelDraw(1, None), scores, torch.randint(_NODES, (_ROWS, 1), generator=generator)

    def mean(self, scores_Bn: torch.Tensor, targets_BT: torch.Tensor, *, positive: bool = True) -> torch.Tensor:
        """The level's loss."""
        z_BT = torch.full(targets_BT.shape, positive)
        live_n = torch.ones(_NODES, dtype=torch.bool)
        return self.loss.loss(LevelDraw(1, None), scores_Bn, targets_BT, z_BT, live_n).mean()

    def test_loss_is_finite_and_not_negative(self) -> None:
        _, scores, targets = self.level()
        for scale in (0.0, 1.0, 30.0):
            value = self.mean(scores * scale, targets)
            assert torch.isfinite(value)
            assert float(value.detach()) >= 0

    def test_the_gradient_raises_the_target(self) -> None:
        _, scores, targets = self.level()
        self.mean(scores, targets).backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        assert torch.isfinite(scores.grad).all()
        assert (torch.gather(scores.grad, 1, targets) < 0).all()

    def test_better_scores_cost_less(self) -> None:
        _, scores, targets = self.level()
        better = scores.detach().scatter_add(1, targets, torch.full(targets.shape, 5.0))
        assert float(self.mean(better, targets)) < float(self.mean(scores, targets).detach())
