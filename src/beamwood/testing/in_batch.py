"""The contract of in-batch samplers: candidates after the batch's items, finite losses that raise the positives.

Shape legend: B pairs of a batch, C candidates, D width.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import torch

from beamwood.sampling.in_batch import InBatchSampler, Pairs

__all__ = ["InBatchSamplerContract"]

_ITEMS, _PAIRS, _WIDTH = 30, 12, 4


class InBatchSamplerContract:
    """Set `sampler`, for a market of 30 items and batches of 12 pairs; each test uses a copy.

    For example:

        class TestMine(InBatchSamplerContract):
            sampler = Mine()
    """

    sampler: ClassVar[InBatchSampler]

    def items(self, seed: int) -> torch.Tensor:
        """int64[B], the positives of a batch."""
        return torch.randint(_ITEMS, (_PAIRS,), generator=torch.Generator().manual_seed(seed))

    def step(self, sampler: InBatchSampler, seed: int) -> tuple[Pairs, torch.Tensor]:
        """One step: its pairs, whose last candidate of the batch is masked for all, and their losses."""
        rng, items_B = torch.Generator().manual_seed(seed), self.items(seed)
        candidates_C = sampler.candidates(items_B, rng)
        vectors = torch.randn(_ITEMS + _PAIRS, _WIDTH, generator=torch.Generator().manual_seed(1))
        users_BD, items_CD = (
            each.clone().requires_grad_() for each in (vectors[_ITEMS:], vectors[:_ITEMS][candidates_C])
        )
        positive_B = (users_BD * items_CD[:_PAIRS]).sum(dim=1).detach().requires_grad_()
        masked_BC = items_B[:, None] == candidates_C
        masked_BC[:, _PAIRS - 1] = True
        pairs = Pairs(users_BD, items_CD, positive_B, candidates_C, masked_BC)
        return pairs, sampler.losses(pairs, rng)

    def test_candidates_begin_with_the_batch(self) -> None:
        items_B = self.items(2)
        candidates_C = copy.deepcopy(self.sampler).candidates(items_B, torch.Generator().manual_seed(2))
        assert candidates_C.dtype == torch.int64
        assert torch.equal(candidates_C[:_PAIRS], items_B)
        assert ((candidates_C >= 0) & (candidates_C < _ITEMS)).all()

    def test_each_pair_has_a_finite_loss(self) -> None:
        pairs, losses = self.step(copy.deepcopy(self.sampler), 3)
        assert losses.shape == pairs.positive_B.shape
        assert torch.isfinite(losses).all()

    def test_the_gradient_raises_the_positives(self) -> None:
        pairs, losses = self.step(copy.deepcopy(self.sampler), 4)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        grad_B = pairs.positive_B.grad
        assert grad_B is not None
        assert (grad_B < 0).all()

    def test_a_masked_candidate_is_no_negative(self) -> None:
        pairs, losses = self.step(copy.deepcopy(self.sampler), 5)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        grad_CD = pairs.items_CD.grad
        assert grad_CD is not None
        assert torch.isfinite(grad_CD).all()
        assert (grad_CD[_PAIRS - 1] == 0).all()
        assert (grad_CD != 0).any(), "no candidate is a negative"

    def test_losses_are_reproducible(self) -> None:
        ours, theirs = (self.step(copy.deepcopy(self.sampler), 6)[1] for _ in range(2))
        assert torch.equal(ours, theirs)

    def test_a_restored_state_continues(self) -> None:
        whole, resumed = copy.deepcopy(self.sampler), copy.deepcopy(self.sampler)
        for seed in (7, 8):
            self.step(whole, seed)
        state = copy.deepcopy(whole.state())
        resumed.load_state(state)
        results = [(self.step(whole, seed), self.step(resumed, seed)) for seed in (9, 10)]
        # The state is its owner's: whoever loads it again continues from there too.
        resumed.load_state(state)
        results += [(ours, self.step(resumed, seed)) for (ours, _), seed in zip(results, (9, 10), strict=True)]
        for (ours, losses), (theirs, others) in results:
            assert torch.equal(ours.candidates_C, theirs.candidates_C)
            assert torch.equal(losses, others)
