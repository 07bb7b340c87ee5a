"""Ranking losses against plain loops, their gradients, and their effect on a list."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.losses.ranking import (
    approx_ndcg,
    bpr,
    gumbel_approx_ndcg,
    list_mle,
    list_softmax,
    logistic,
    neural_sort,
    pairwise_logistic,
)

PLAIN = {
    "logistic": logistic,
    "pairwise": pairwise_logistic,
    "softmax": list_softmax,
    "approx": approx_ndcg,
    "neural_sort": neural_sort,
}


def lists(rows=7, width=6, seed=0, graded=False):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4 if graded else 2, (rows, width), generator=generator).double()
    return scores, labels


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def loop_logistic(s, y):
    return sum(-yi * math.log(sigmoid(si)) - (1 - yi) * math.log(1 - sigmoid(si)) for si, yi in zip(s, y, strict=True))


def loop_pairwise(s, y):
    pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if y[i] > y[j]]
    return sum(math.log(1 + math.exp(-(s[i] - s[j]))) for i, j in pairs) / len(pairs) if pairs else 0.0


def loop_softmax(s, y):
    total = sum(y)
    normal = sum(math.exp(x) for x in s)
    return -sum(yi / total * math.log(math.exp(si) / normal) for si, yi in zip(s, y, strict=True)) if total else 0.0


def loop_approx(s, y, temperature=0.1):
    ranks = [0.5 + sum(sigmoid((sj - si) / temperature) for sj in s) for si in s]
    dcg = sum((2**yi - 1) / math.log2(1 + r) for yi, r in zip(y, ranks, strict=True))
    ideal = sum((2**yi - 1) / math.log2(1 + r) for r, yi in enumerate(sorted(y, reverse=True), 1))
    return -dcg / ideal if ideal else 0.0


def loop_neural_sort(s, y, temperature=1.0):
    n = len(s)

    def permutation(v):
        rows = []
        for i in range(1, n + 1):
            logits = [((n + 1 - 2 * i) * v[j] - sum(abs(v[j] - x) for x in v)) / temperature for j in range(n)]
            top = max(logits)
            total = sum(math.exp(x - top) for x in logits)
            rows.append([x - top - math.log(total) for x in logits])
        return rows

    target, got = permutation(y), permutation(s)
    return -sum(math.exp(target[i][j]) * got[i][j] for i in range(n) for j in range(n)) / n


LOOPS = {
    "logistic": loop_logistic,
    "pairwise": loop_pairwise,
    "softmax": loop_softmax,
    "approx": loop_approx,
    "neural_sort": loop_neural_sort,
}


@pytest.mark.parametrize("name", sorted(PLAIN))
@pytest.mark.parametrize("width", [1, 2, 7])
@pytest.mark.parametrize("graded", [False, True])
def test_values_equal_loops(name, width, graded):
    scores, labels = lists(9, width, seed=width, graded=graded and name != "logistic")
    expected = [LOOPS[name](s, y) for s, y in zip(scores.tolist(), labels.tolist(), strict=True)]
    assert torch.allclose(PLAIN[name](scores, labels), torch.tensor(expected, dtype=torch.float64), rtol=1e-9)


def every_loss(scores, labels):
    def fresh():
        return torch.Generator().manual_seed(11)

    values = {name: loss(scores, labels) for name, loss in PLAIN.items()}
    values["list_mle"] = list_mle(scores, labels, fresh())
    values["gumbel"] = gumbel_approx_ndcg(scores, labels, fresh())
    values["bpr"] = bpr(scores[:, :2], scores[:, 2:4]).sum(dim=1)
    return values


NAMES = [*PLAIN, "list_mle", "gumbel", "bpr"]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_in_float64(name):
    scores, labels = lists(3, 5, seed=3)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: every_loss(s, labels)[name], (scores,), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_extreme_scores_and_lists_without_positives_stay_finite(name):
    scores = torch.tensor([[300.0, -300.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-80.0, 80.0, 80.0, 5.0]])
    labels = torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    scores.requires_grad_()
    loss = every_loss(scores, labels)[name]
    loss.sum().backward()
    assert loss.shape == (3,)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "bpr"])
def test_steps_down_the_gradient_put_positives_first(name):
    labels = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]]).repeat(4, 1)
    scores = 0.3 * torch.randn(4, 5, generator=torch.Generator().manual_seed(5))
    for _ in range(150):
        scores.requires_grad_()
        (gradient,) = torch.autograd.grad(every_loss(scores, labels)[name].sum(), scores)
        scores = (scores - 0.25 * gradient).detach()
    assert (scores[labels == 1].min() > scores[labels == 0].max()).item()


def test_bpr_equals_the_loop():
    a, b = torch.tensor([0.3, -2.0, 5.0]), torch.tensor([1.0, -2.0, -4.0])
    expected = [-math.log(sigmoid(x - y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert torch.allclose(bpr(a, b), torch.tensor(expected))


def test_list_mle_is_the_loop_where_labels_differ_and_one_of_the_orders_where_they_tie():
    scores, _ = lists(1, 4, seed=9)
    s = scores[0].tolist()

    def loop(order):
        return sum(math.log(sum(math.exp(s[j]) for j in order[i:])) - s[order[i]] for i in range(len(order)))

    distinct = torch.tensor([[2.0, 0.0, 3.0, 1.0]], dtype=torch.float64)
    assert math.isclose(list_mle(scores, distinct, torch.Generator()).item(), loop([2, 0, 3, 1]), rel_tol=1e-9)
    tied = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    possible = {round(loop(order), 8) for order in ([0, 2, 1, 3], [2, 0, 1, 3], [0, 2, 3, 1], [2, 0, 3, 1])}
    generator = torch.Generator().manual_seed(1)
    seen = {round(list_mle(scores, tied, generator).item(), 8) for _ in range(60)}
    assert seen == possible


def test_list_mle_is_a_likelihood():
    """Over all orders of a list the probabilities sum to one."""
    from itertools import permutations

    scores, _ = lists(1, 4, seed=2)
    total = 0.0
    for order in permutations(range(4)):
        labels = torch.zeros(1, 4, dtype=torch.float64)
        for place, item in enumerate(order):
            labels[0, item] = 4 - place
        total += math.exp(-list_mle(scores, labels, torch.Generator()).item())
    assert math.isclose(total, 1, rel_tol=1e-9)


def test_approx_ndcg_converges_to_ndcg_at_low_temperature():
    scores = torch.tensor([[3.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    true = (1 / math.log2(3) + 1 / math.log2(4)) / (1 / math.log2(2) + 1 / math.log2(3))
    assert math.isclose(-approx_ndcg(scores, labels, temperature=1e-3).item(), true, rel_tol=1e-9)


def test_gumbel_equals_the_loop_over_its_copies():
    """Eight copies `log(softmax(s + G) + 1e-20)`, `G = -log(-log u)`, and the mean of their ApproxNDCG."""
    scores, labels = lists(4, 5, seed=6)
    got = gumbel_approx_ndcg(scores, labels, torch.Generator().manual_seed(7))
    uniform = torch.rand((4, 8, 5), generator=torch.Generator().manual_seed(7)).double()
    for row in range(4):
        losses = []
        for copy in range(8):
            noisy = [s - math.log(-math.log(u)) for s, u in zip(scores[row].tolist(), uniform[row, copy], strict=True)]
            total = sum(math.exp(x) for x in noisy)
            losses.append(loop_approx([math.log(math.exp(x) / total + 1e-20) for x in noisy], labels[row].tolist()))
        assert got[row].item() == pytest.approx(sum(losses) / 8, rel=1e-4)


def test_gumbel_is_approx_ndcg_of_plackett_luce_orders():
    """At low temperature the mean over noise is the expected NDCG of an order drawn by the scores."""
    scores = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    first = sigmoid(1.0)
    expected = first + (1 - first) / math.log2(3)
    got = -gumbel_approx_ndcg(scores, labels, torch.Generator().manual_seed(0), num_samples=20000, temperature=1e-3)
    assert abs(got.item() - expected) < 4 * 0.37 * math.sqrt(first * (1 - first) / 20000)


@given(st.integers(0, 10_000), st.sampled_from(sorted(PLAIN)))
@settings(max_examples=40, deadline=None)
def test_losses_do_not_depend_on_the_order_of_a_list(seed, name):
    scores, labels = lists(3, 6, seed=seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(PLAIN[name](scores, labels), PLAIN[name](scores[:, order], labels[:, order]))


@given(st.integers(0, 10_000), st.sampled_from([n for n in sorted(PLAIN) if n != "logistic"]))
@settings(max_examples=40, deadline=None)
def test_all_losses_but_the_logistic_depend_only_on_score_differences(seed, name):
    scores, labels = lists(3, 6, seed=seed)
    assert torch.allclose(PLAIN[name](scores, labels), PLAIN[name](scores + 3.0, labels))
