"""Softmax losses against plain loops, and the sampled form's convergence to the full one."""

import math

import pytest
import torch

from beamwood.losses import softmax
from beamwood.losses.softmax import catalogue_softmax, full_softmax, sampled_softmax, shared_softmax, weighted_softmax
from beamwood.sampling.uniform import adaptive_counts, uniform_negatives


def plain(positive, negatives, log_q, dropped, log_q_positive):
    kept = [i for i in range(len(negatives)) if not dropped[i]]
    if not kept:
        return 0.0
    total = math.exp(positive)
    for i in kept:
        q = math.exp(log_q[i]) / (1 - math.exp(log_q_positive))
        total += math.exp(negatives[i] - math.log(len(kept) * q))
    return -math.log(math.exp(positive) / total)


def test_sampled_softmax_equals_the_loop():
    generator = torch.Generator().manual_seed(0)
    positive = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    negative = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    log_q = -1 - torch.rand(4, 6, generator=generator, dtype=torch.float64)
    log_q_positive = -1 - torch.rand(4, 3, generator=generator, dtype=torch.float64)
    dropped = torch.rand(4, 3, 6, generator=generator) < 0.4
    dropped[1, 2] = True
    loss = sampled_softmax(positive, negative, log_q, dropped, log_q_positive)
    p, n = positive.tolist(), negative.tolist()
    for b in range(4):
        for t in range(3):
            expected = plain(p[b][t], n[b], log_q[b].tolist(), dropped[b, t].tolist(), log_q_positive[b, t].item())
            assert math.isclose(loss[b, t].item(), expected, rel_tol=1e-9, abs_tol=1e-12)
    loss.sum().backward()
    assert torch.isfinite(positive.grad).all()
    assert torch.isfinite(negative.grad).all()
    assert positive.grad[1, 2] == 0
    assert torch.autograd.gradcheck(
        lambda p, n: sampled_softmax(p, n, log_q, dropped, log_q_positive), (positive, negative)
    )


def test_draws_that_rows_share_leave_out_the_target_of_each():
    generator, drawn = torch.Generator().manual_seed(1), torch.tensor([2, 0, 2, 1, 3])
    positive, targets = torch.randn(4, generator=generator, dtype=torch.float64), torch.tensor([2, 5, 0, 1])
    negative, log_q = torch.randn(4, 5, generator=generator, dtype=torch.float64), -math.log(6)
    losses = shared_softmax(positive, negative, targets, drawn, log_q)
    expected = [
        plain(positive[b].item(), negative[b].tolist(), [log_q] * 5, (drawn == targets[b]).tolist(), log_q)
        for b in range(4)
    ]
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))


def test_a_single_class_has_no_loss():
    positive, negative = torch.ones(2, requires_grad=True), torch.ones((2, 3), requires_grad=True)
    losses = shared_softmax(positive, negative, torch.zeros(2).long(), torch.zeros(3).long(), 0.0)
    losses.sum().backward()
    for values in (losses, positive.grad, negative.grad):
        assert not values.any()


@pytest.mark.parametrize("log_q_target", [0.0, -1e-9, -1e-4, -300.0])
def test_a_target_that_is_nearly_always_drawn_stays_finite(log_q_target):
    """Walks may draw the target with a probability that float32 rounds to 1; and others with one that underflows."""
    positive, negative = torch.zeros((1, 1), requires_grad=True), torch.tensor([[1.0, 2.0]], requires_grad=True)
    log_q = torch.tensor([[-250.0, -1e-9]])
    loss = sampled_softmax(positive, negative, log_q, None, torch.tensor([[log_q_target]]))
    loss.sum().backward()
    for values in (loss, positive.grad, negative.grad):
        assert torch.isfinite(values).all()


def test_every_class_drawn_once_is_the_full_softmax():
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = torch.arange(5)[:, None]
    full = full_softmax(logits, targets)
    assert torch.allclose(full[:, 0], torch.nn.functional.cross_entropy(logits, targets[:, 0], reduction="none"))
    nodes = torch.arange(9).expand(5, 9)
    log_q = torch.full((5, 9), -math.log(9), dtype=torch.float64)
    sampled = sampled_softmax(
        logits.gather(1, targets), logits, log_q, nodes[:, None] == targets[..., None], log_q[:, :1]
    )
    assert torch.allclose(sampled, full)


def test_mean_gradient_under_softmax_sampling_is_the_full_gradient():
    """Theorem 2 of DTR: unbiased when q is proportional to exp(o) over the negatives, biased when uniform."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.tensor([0.5, 2.0, -1.0, 0.0, 1.5], dtype=torch.float64, requires_grad=True)
    full = torch.autograd.grad(full_softmax(logits[None], torch.tensor([[0]])).sum(), logits)[0]
    errors = {}
    for name, q in (("softmax", torch.softmax(logits.detach()[1:], 0)), ("uniform", torch.full((4,), 0.25))):
        q = q.double()
        draws = torch.multinomial(q, 200_000 * 2, replacement=True, generator=generator).view(-1, 2) + 1
        loss = sampled_softmax(logits[:1].expand(len(draws), 1), logits[draws], torch.log(q[draws - 1]))
        errors[name] = (torch.autograd.grad(loss.mean(), logits)[0] - full).abs().max().item()
    assert errors["softmax"] < 0.003
    assert errors["uniform"] > 0.02


def test_uniform_negatives_are_uniform():
    generator = torch.Generator().manual_seed(3)
    candidates = torch.tensor([4, 7, 9, 10])
    nodes, log_q = uniform_negatives(1000, 40, candidates, generator)
    counts = torch.bincount(nodes.flatten(), minlength=11)[candidates].double()
    chi_square = ((counts - 10_000) ** 2 / 10_000).sum()
    assert counts.sum() == 40_000
    assert chi_square < 16.3
    assert torch.allclose(log_q.exp(), torch.tensor(0.25))


def test_adaptive_counts_follow_the_appendix():
    assert adaptive_counts(70, 13, 0.0) == [70] * 13
    counts = adaptive_counts(70, 10, 1.0)
    weights = [1 + level for level in range(1, 11)]
    assert counts == [round(w / sum(weights) * 700) for w in weights]


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_weighted_softmax_equals_the_plain_formula(rows):
    generator = torch.Generator().manual_seed(rows)
    positive = torch.randn(rows, generator=generator, dtype=torch.float64) * 5
    scores = torch.randn(rows, 9, generator=generator, dtype=torch.float64) * 5
    log_weight = torch.randn(rows, 9, generator=generator, dtype=torch.float64)
    own = torch.randn(rows, generator=generator, dtype=torch.float64)
    log_weight[:, 2] = -torch.inf
    masked = torch.rand(rows, 9, generator=generator) < 0.3
    masked[0] = True  # A row without candidates has loss 0.
    results = []
    for fast in (True, False):
        p, s = positive.clone().requires_grad_(), scores.clone().requires_grad_()
        if fast:
            losses = weighted_softmax(p, s, log_weight, own, masked)
        else:
            a = torch.where(masked | torch.isneginf(log_weight), -torch.inf, s + log_weight)
            losses = torch.logsumexp(torch.cat([(p + own)[:, None], a], dim=1), dim=1) - p - own
        (losses * torch.arange(1, rows + 1)).sum().backward()
        results.append((losses.detach(), p.grad, torch.nan_to_num(s.grad)))
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-10)
    assert abs(results[0][0][0]) < 1e-12


@pytest.mark.parametrize("far", [0.0, 500.0])
def test_weighted_softmax_with_counts_and_far_scores_that_do_not_count(far):
    generator = torch.Generator().manual_seed(3)
    positive, scores = torch.randn(6, generator=generator), torch.randn(6, 9, generator=generator)
    counts = torch.randint(0, 3, (6, 9), generator=generator).float()
    counts[:, 0] = 0
    scores[:, 0] += far
    scores[:, 1] += far
    masked = torch.zeros(6, 9, dtype=torch.bool)
    masked[:, 1] = True
    scores.requires_grad_()
    losses = weighted_softmax(positive, scores, counts, None, masked, counts=True)
    losses.sum().backward()
    kept = torch.where(masked, 0, counts)
    expected = (
        torch.log(torch.exp(positive) + (kept * torch.exp(scores.detach()).nan_to_num(posinf=0)).sum(1)) - positive
    )
    assert torch.allclose(losses.detach(), expected, atol=1e-5)
    assert torch.isfinite(scores.grad).all()
    assert not scores.grad[:, :2].any()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cells", [1, 10, 50, 2**20])
def test_chunked_softmax_equals_the_whole_one(monkeypatch, cells, masked):
    monkeypatch.setattr(softmax, "BLOCK_CELLS", cells)
    generator = torch.Generator().manual_seed(1)
    queries, vectors = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (11, 23))
    targets = torch.randint(23, (11,), generator=generator)
    none = torch.rand((11, 23), generator=generator) < (0.4 if masked else 0)
    none[2] = masked  # Everything but the target is excluded, so the loss is 0.
    dropped = none.clone()
    dropped[torch.arange(11), targets] = False
    results = []
    for loss in (
        lambda q, v: catalogue_softmax(q, v, targets, none.nonzero().T if masked else None),
        lambda q, v: full_softmax((q @ v.T).masked_fill(dropped, -torch.inf), targets[:, None])[:, 0],
    ):
        q, v = queries.clone().requires_grad_(), vectors.clone().requires_grad_()
        values = loss(q, v)
        (values * torch.linspace(0.5, 2, len(values))).sum().backward()
        results.append((values.detach().double(), q.grad, v.grad))
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
