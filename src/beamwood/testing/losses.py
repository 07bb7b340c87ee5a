"""The contract of losses of a tree level: a finite value for every draw, and a gradient that raises the target's score.

Shape legend: B histories, T targets a history, M nodes drawn a level, n nodes of a level.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from beamwood.losses.levels import LevelDraw, LevelLoss

__all__ = ["LevelLossContract"]

_ROWS, _NODES, _DRAWS = 6, 9, 4


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

    def drawn(self, draw: LevelDraw, scores_Bn: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        """The level's loss over drawn nodes, by the scores of the whole level."""
        nodes = draw.scored(targets_BT)
        assert nodes is not None
        z_BT = torch.ones(targets_BT.shape, dtype=torch.bool)
        return self.loss.loss(draw, torch.gather(scores_Bn, 1, nodes), targets_BT, z_BT, None).mean()

    def sampled(self, nodes: torch.Tensor, targets_BT: torch.Tensor, real: torch.Tensor | None = None) -> LevelDraw:
        """Uniform draws with their log q."""
        log_q = torch.full(nodes.shape, -math.log(_NODES))
        return LevelDraw(1, nodes, log_q, log_q[:, :1].expand(targets_BT.shape), real)

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

    def test_the_gradient_of_drawn_nodes_raises_the_target(self) -> None:
        """And no other node than these has one."""
        _, scores, targets = self.level()
        nodes = (targets + torch.arange(1, 1 + _DRAWS)) % _NODES
        self.drawn(self.sampled(nodes, targets), scores, targets).backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        assert torch.isfinite(scores.grad).all()
        assert (torch.gather(scores.grad, 1, targets) < 0).all()
        assert (torch.gather(scores.grad, 1, nodes) > 0).all()

    def test_draws_that_equal_the_target_are_no_negatives(self) -> None:
        _, scores, targets = self.level()
        value = self.drawn(self.sampled(targets.expand(-1, _DRAWS), targets), scores, targets)
        value.backward()  # type: ignore[no-untyped-call]
        assert torch.isfinite(value)
        assert scores.grad is not None
        assert (torch.gather(scores.grad, 1, targets) <= 0).all()

    def test_draws_that_do_not_count_have_no_gradient(self) -> None:
        """Those that `LevelDraw.real` leaves out."""
        _, scores, targets = self.level()
        nodes = (targets + torch.arange(1, 1 + _DRAWS)) % _NODES
        real = (torch.arange(_DRAWS) > 0).expand(nodes.shape)
        self.drawn(self.sampled(nodes, targets, real), scores, targets).backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        assert (torch.gather(scores.grad, 1, nodes[:, :1]) == 0).all()
