"""What every sampler of a tree's levels owes: live nodes of each level, the same for a seed, by the log q that it says.

Shape legend: B histories, T targets a history, M draws a row, n nodes of a level.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from scipy import stats

from beamwood.losses.levels import LevelDraw
from beamwood.models.din import DinScorer
from beamwood.sampling.levels import LeafHistories, LevelSampler
from beamwood.tree import Tree, random_tree

__all__ = ["LevelSamplerContract"]

_ITEMS, _BRANCHING, _LENGTH = 90, 3, 5
# Draws whose expected number is below this are counted together.
_FEW, _LEAST_P = 5, 1e-5


class LevelSamplerContract:
    """Give `sampler`, for the `tree` of 90 items or another.

    For example:

        class TestMine(LevelSamplerContract):
            sampler = Mine(num_negatives=6)
    """

    sampler: ClassVar[LevelSampler]
    tree: ClassVar[Tree] = random_tree(_ITEMS, np.random.default_rng(1), branching=_BRANCHING)

    def draws(self, num_rows: int, *, alike: bool = False, seed: int = 4) -> tuple[list[LevelDraw], torch.Tensor]:
        """The draws of every level for so many rows, with their targets; `alike`: every row is the first."""
        tree, rng = self.tree, np.random.default_rng(2)
        items, wanted = (rng.integers(0, tree.num_items, (num_rows, size)) for size in (_LENGTH, 3))
        leaves, targets = (torch.from_numpy(tree.leaves_of(each).astype(np.int64)) for each in (items, wanted))
        leaves[0, :2] = -1
        if alike:
            leaves, targets = (each[:1].expand(num_rows, -1) for each in (leaves, targets))
        start = torch.Generator().manual_seed(0)
        scorer = DinScorer(tree.shape, width=6, attention_hidden=5, windows=(3, 2), mlp=(7,), generator=start)
        rng_of_draws = torch.Generator().manual_seed(seed)
        return self.sampler(scorer, tree, LeafHistories(leaves), targets, rng_of_draws), targets

    def test_draws_are_live_nodes_of_each_level_in_order(self) -> None:
        """What stands for no node is said by `real`."""
        draws, targets = self.draws(5)
        assert [draw.level for draw in draws] == list(range(1, self.tree.shape.depth + 1))
        for draw in draws:
            if draw.nodes is None:
                continue
            assert draw.nodes.dtype == torch.int64
            assert len(draw.nodes) == len(targets)
            assert ((draw.nodes >= 0) & (draw.nodes < self.tree.shape.level_size(draw.level))).all()
            live = torch.from_numpy(self.tree.live_counts[draw.level] > 0)[draw.nodes]
            assert (live if draw.real is None else live | ~draw.real).all(), "a node without an item is drawn"

    def test_draws_are_reproducible(self) -> None:
        (ours, _), (theirs, _) = self.draws(5), self.draws(5)
        for one, other in zip(ours, theirs, strict=True):
            assert (one.nodes is None) == (other.nodes is None)
            assert one.nodes is None or other.nodes is None or torch.equal(one.nodes, other.nodes)

    def test_log_q_is_the_log_probability_of_a_draw(self) -> None:
        """Of one history, by a chi-square of each level; a target's log q is that of its node."""
        draws, targets = self.draws(2000, alike=True)
        for draw in draws:
            if draw.nodes is None or draw.log_q is None:
                continue
            assert draw.log_q.shape == draw.nodes.shape
            q_n = self._q_of(draw)
            drawn_n = np.bincount(draw.nodes.numpy().ravel(), minlength=len(q_n))
            total = int(drawn_n.sum())
            often = q_n * total >= _FEW
            counts = [*drawn_n[often], drawn_n[~often].sum()]
            expected = [*(q_n[often] * total), max(total - q_n[often].sum() * total, 1e-9)]
            if counts[-1] == 0 or expected[-1] < _FEW:
                counts, expected = counts[:-1], [each * sum(counts[:-1]) / sum(expected[:-1]) for each in expected[:-1]]
            p = float(stats.chisquare(counts, np.array(expected) * sum(counts) / sum(expected)).pvalue)
            assert p > _LEAST_P, f"level {draw.level}: draws do not follow log_q (p {p:.1e})"
            assert draw.log_q_targets is not None, "log_q has no log_q_targets beside it"
            assert draw.log_q_targets.shape == targets.shape
            nodes = targets[0].numpy() // self.tree.shape.leaves_below(draw.level)
            known = q_n[nodes] > 0
            own = np.exp(draw.log_q_targets[0].detach().numpy().astype(float))
            np.testing.assert_allclose(own[known], q_n[nodes][known], rtol=1e-3)

    def _q_of(self, draw: LevelDraw) -> np.ndarray:
        """float64[n]: the chance that its draws say of each node, 0 of those that were not drawn."""
        assert draw.nodes is not None
        assert draw.log_q is not None
        nodes, q = draw.nodes.numpy().ravel(), np.exp(draw.log_q.detach().numpy().astype(float).ravel())
        q_n = np.zeros(self.tree.shape.level_size(draw.level))
        q_n[nodes] = q
        assert np.allclose(q_n[nodes], q, rtol=1e-3), "one node of one history has two chances"
        assert q_n.sum() < 1.001, f"level {draw.level}: the chances of log_q sum to {q_n.sum():.3f}"
        return q_n
