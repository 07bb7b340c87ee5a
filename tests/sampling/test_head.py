"""Head negatives: never masked, never tail items, and with the stated distribution for every method of drawing."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from beamwood.errors import InputError
from beamwood.sampling.head import HEAD_MODES, head_negatives

NONE = torch.zeros(1, 0, dtype=torch.int64)


def given(values_BN):
    """A matrix as the function pi."""
    return lambda rows, items: values_BN[rows] if items is None else values_BN[rows].gather(1, items)


@pytest.mark.parametrize("num_items", [30, 300])
@pytest.mark.parametrize("ceiling", [None, 4.0])
@pytest.mark.parametrize("mode", HEAD_MODES)
def test_only_open_head_items(mode, ceiling, num_items):
    """Some rows are almost certain of two items, so draws repeat."""
    generator = torch.Generator().manual_seed(0)
    pi = torch.randn(50, num_items, generator=generator).clamp(max=4)
    pi[::5, :2] += 60.0 if ceiling is None else 0.0
    head = torch.rand(num_items, generator=generator) < 0.6
    head[:2] = True
    banned = torch.randint(2, num_items, (50, 9), generator=generator)
    chosen = head_negatives(given(pi), head, banned, 4, generator, mode, ceiling)
    masked = torch.zeros(50, num_items, dtype=torch.bool).scatter(1, banned, True)
    assert head[chosen].all()
    assert not torch.gather(masked, 1, chosen).any()
    assert all(len(set(row)) == 4 for row in chosen.tolist())
    if mode == "top":
        best = pi.masked_fill(~head[None] | masked, -torch.inf).topk(4, dim=1).indices
        assert torch.equal(chosen, best)
    if mode == "gumbel" and ceiling is None:
        assert (chosen[::5, :2].sort(dim=1).values == torch.tensor([0, 1])).all()


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("times", [0, 1, 6])
@pytest.mark.parametrize("way", ["inversion", "rejection", "uniform"])
def test_draws_follow_plackett_luce(monkeypatch, way, times, count):
    """Ordered sets drawn without replacement: p_i p_j / (1 - p_i) and so on."""
    import beamwood.sampling.head as module

    # With few draws many rows have too few distinct items and are completed; with none, all are, by noise.
    monkeypatch.setattr(module, "num_draws", lambda count: times * count)
    monkeypatch.setattr(module, "BLOCK_CELLS", 60_000)
    generator = torch.Generator().manual_seed(1)
    pi = torch.tensor([3.0, 0.0, 1.0, -1.0, 0.5, 2.0])
    head = torch.tensor([True, True, True, True, True, False])
    draws, mode = 40_000, "uniform" if way == "uniform" else "gumbel"
    banned = torch.zeros(draws, 1, dtype=torch.int64)
    ceiling = 2.0 if way == "rejection" else None
    chosen = head_negatives(given(pi.expand(draws, -1)), head, banned, count, generator, mode, ceiling)
    p = torch.softmax(
        torch.where(head & (torch.arange(6) > 0), pi if mode == "gumbel" else torch.zeros(6), -torch.inf), 0
    )
    p = p.double().numpy()
    orders = list(itertools.permutations(range(1, 5), count))
    expected = [np.prod([p[i] / (1 - sum(p[j] for j in order[:k])) for k, i in enumerate(order)]) for order in orders]
    powers = torch.tensor([6**k for k in range(count)])
    codes = (chosen * powers).sum(dim=1)
    observed = [int((codes == (torch.tensor(order) * powers).sum()).sum()) for order in orders]
    assert sum(observed) == draws
    assert stats.chisquare(observed, np.array(expected) / sum(expected) * draws).pvalue > 1e-4


def test_inversion_over_many_items():
    """First draws follow exp(pi) over a thousand items, some with hardly any weight."""
    generator = torch.Generator().manual_seed(2)
    pi = torch.randn(1000, generator=generator) * 2
    pi[128:256] -= 200
    head = torch.rand(1000, generator=generator) < 0.8
    chosen = head_negatives(given(pi.expand(60_000, -1)), head, NONE.expand(60_000, 0), 1, generator)[:, 0]
    p = torch.softmax(pi.masked_fill(~head, -torch.inf).double(), 0)
    large = p > 2e-4
    observed = torch.bincount(chosen, minlength=1000)
    assert not observed[p == 0].any()
    observed = [*observed[large].tolist(), int(observed[~large].sum())]
    expected = [*(p[large] * 60_000).tolist(), float(p[~large].sum() * 60_000)]
    assert stats.chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-4


@pytest.mark.parametrize("ceiling", [None, 0.0])
@pytest.mark.parametrize("mode", HEAD_MODES)
def test_too_few_and_unknown_are_refused(mode, ceiling):
    pi, half = given(torch.zeros(1, 4)), torch.tensor([True, True, False, False])
    assert sorted(head_negatives(pi, half, NONE, 2, torch.Generator(), mode, ceiling)[0].tolist()) == [0, 1]
    for count in (3, 5):
        with pytest.raises(InputError, match=rf"has 2 head items .* fewer than {count}; lower loss\.num_negatives"):
            head_negatives(pi, half, NONE, count, torch.Generator(), mode, ceiling)
    for head, banned in ((torch.ones(4, dtype=torch.bool), torch.arange(4)[None]), (half & ~half, NONE)):
        with pytest.raises(
            InputError, match=r"has 0 head items that are not masked.*; lower loss\.tail_share or model\.length"
        ):
            head_negatives(pi, head, banned, 1, torch.Generator(), mode, ceiling)
    with pytest.raises(InputError, match="did you mean 'gumbel'"):
        head_negatives(pi, half, NONE, 1, torch.Generator(), "gumbl")


@pytest.mark.parametrize("ceiling", [None, 1.0])
def test_nan_scores_are_left_to_the_loss_to_report(ceiling):
    chosen = head_negatives(
        given(torch.full((3, 9), torch.nan)),
        torch.ones(9, dtype=torch.bool),
        NONE.expand(3, 0),
        2,
        torch.Generator(),
        ceiling=ceiling,
    )
    assert all(len(set(row)) == 2 for row in chosen.tolist())
