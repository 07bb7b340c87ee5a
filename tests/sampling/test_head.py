"""Head negatives: never masked, never tail, and distributed as stated."""

import itertools

import pytest
import torch
from scipy import stats

from beamwood.errors import InputError
from beamwood.sampling.head import HEAD_MODES, head_negatives


@pytest.mark.parametrize("mode", HEAD_MODES)
def test_only_open_head_items(mode):
    generator = torch.Generator().manual_seed(0)
    pi = torch.randn(50, 30, generator=generator)
    head = torch.rand(30, generator=generator) < 0.6
    masked = torch.rand(50, 30, generator=generator) < 0.3
    chosen = head_negatives(pi, head, masked, 4, generator, mode)
    assert head[chosen].all()
    assert not torch.gather(masked, 1, chosen).any()
    assert all(len(set(row)) == 4 for row in chosen.tolist())
    if mode == "top":
        best = pi.masked_fill(~head[None] | masked, -torch.inf).topk(4, dim=1).indices
        assert torch.equal(chosen, best)


@pytest.mark.parametrize("mode", ["gumbel", "uniform"])
def test_draws_follow_plackett_luce(mode):
    """Ordered pairs drawn without replacement have the probability p_i p_j / (1 - p_i)."""
    generator = torch.Generator().manual_seed(1)
    pi = torch.tensor([0.0, 1.0, -1.0, 0.5, 2.0])
    head = torch.tensor([True, True, True, True, False])
    chosen = head_negatives(pi.expand(40_000, -1), head, torch.zeros(40_000, 5, dtype=torch.bool), 2, generator, mode)
    p = torch.softmax(torch.where(head, pi if mode == "gumbel" else torch.zeros(5), -torch.inf), 0)
    pairs = list(itertools.permutations(range(4), 2))
    expected = [p[i].item() * p[j].item() / (1 - p[i].item()) for i, j in pairs]
    codes = chosen[:, 0] * 5 + chosen[:, 1]
    observed = [int((codes == i * 5 + j).sum()) for i, j in pairs]
    assert stats.chisquare(observed, [e * 40_000 / sum(expected) for e in expected]).pvalue > 1e-4


def test_too_few_and_unknown_are_refused():
    with pytest.raises(InputError, match="fewer than 3; lower num_negatives"):
        head_negatives(
            torch.zeros(1, 4), torch.tensor([True, True, False, False]), torch.zeros(1, 4, dtype=bool), 3, None
        )
    with pytest.raises(InputError, match=r"has 0 head items that are not masked.*; lower tail_share or length"):
        head_negatives(torch.zeros(1, 4), torch.ones(4, dtype=bool), torch.ones(1, 4, dtype=bool), 1, None)
    with pytest.raises(InputError, match="did you mean 'gumbel'"):
        head_negatives(torch.zeros(1, 4), torch.ones(4, dtype=bool), torch.zeros(1, 4, dtype=bool), 1, None, "gumbl")
