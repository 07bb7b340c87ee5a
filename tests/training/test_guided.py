"""GuidedRec's step: the true NDCG against a loop, and the parts updated in each move."""

import math

import pytest
import torch
from torch import nn

from beamwood.kernels.guided import list_ndcg
from beamwood.losses.ranking import logistic
from beamwood.models.surrogate import NdcgSurrogate
from beamwood.training.guided import GuidedStep

LABELS = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(6, -1)


def test_ndcg_equals_a_loop_and_ties_get_no_credit():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (50, 8), generator=generator).float()
    labels = torch.randint(0, 3, (50, 8), generator=generator).float()
    got = list_ndcg(scores, labels, k=5)
    for row in range(50):
        order = sorted(range(8), key=lambda i: (-scores[row, i].item(), labels[row, i].item()))
        gain = [2 ** labels[row, i].item() - 1 for i in order]
        dcg = sum(g / math.log2(r + 2) for r, g in enumerate(gain[:5]))
        ideal = sum(g / math.log2(r + 2) for r, g in enumerate(sorted(gain, reverse=True)[:5]))
        assert math.isclose(got[row].item(), dcg / ideal if ideal else 0.0, rel_tol=1e-6)
    constant = list_ndcg(torch.zeros((1, 4)), LABELS[:1])
    assert constant.item() < 0.7  # Positives count last, although they are first in the list.


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn((6, 4), generator=torch.Generator().manual_seed(0)))

    def forward(self):
        return 1 * self.table  # Not the table itself, which later updates would change.


def step_of(*, beta=1.0, k=10, with_logloss=True, leaky=False):
    model = Scores()
    surrogate = NdcgSurrogate(4, form="ensemble", std=0.01, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():  # Away from the tiny initial values, where gradients vanish in rounding.
        for parameter in surrogate.parameters():
            parameter.mul_(30)
    both = nn.ModuleList([model, surrogate])
    optimizers = (
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.optim.SGD((both if leaky else model).parameters(), lr=0.1),
        torch.optim.SGD((both if leaky else surrogate).parameters(), lr=0.1),
    )
    step = GuidedStep(model, surrogate, optimizers, beta=beta, k=k, with_logloss=with_logloss, leaky=leaky)
    return model, surrogate, step


def test_a_step_equals_its_updates_computed_by_hand():
    model, surrogate, guided = step_of(beta=0.5, k=4)
    twin, twin_surrogate, _ = step_of()
    result, facts = guided(model, LABELS, step=1)
    (0.5 * logistic(twin(), LABELS).sum()).backward()
    with torch.no_grad():
        twin.table -= 0.1 * twin.table.grad
    twin.zero_grad()
    true = list_ndcg(twin().detach(), LABELS, k=4)
    p = torch.sigmoid(twin())
    predicted = twin_surrogate(p.detach(), LABELS)
    (0.5 * (predicted - true).square().sum()).backward()
    with torch.no_grad():
        for parameter in twin_surrogate.parameters():
            parameter -= 0.1 * parameter.grad
    loss = -twin_surrogate(p, LABELS).sum()
    (gradient,) = torch.autograd.grad(loss, [twin.table])
    torch.testing.assert_close(model.table.detach(), twin.table.detach() - 0.1 * gradient)
    for ours, theirs in zip(surrogate.parameters(), twin_surrogate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert math.isclose(result.loss, loss.item(), rel_tol=1e-5)
    assert math.isclose(facts.true_ndcg, true.mean().item(), rel_tol=1e-5)
    assert math.isclose(facts.predicted_ndcg, predicted.mean().item(), rel_tol=1e-5)


def test_a_leaky_step_scores_again_before_the_model_moves():
    """Surrogate and model move by the error of the NDCG, then both by the prediction for the moved model's scores."""
    model, surrogate, guided = step_of(leaky=True, with_logloss=False, k=4)
    twin, twin_surrogate, _ = step_of()
    guided(model, LABELS, step=1)
    both = [*twin.parameters(), *twin_surrogate.parameters()]
    for loss in (
        lambda predicted, true: 0.5 * (predicted - true).square().sum(),
        lambda predicted, true: -predicted.sum(),
    ):
        true = list_ndcg(twin().detach(), LABELS, k=4)
        gradients = torch.autograd.grad(loss(twin_surrogate(torch.sigmoid(twin()), LABELS), true), both)
        with torch.no_grad():
            for parameter, gradient in zip(both, gradients, strict=True):
                parameter -= 0.1 * gradient
    for ours, theirs in zip([*model.parameters(), *surrogate.parameters()], both, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_logloss_the_model_learns_only_from_the_surrogate():
    model, surrogate, guided = step_of(with_logloss=False)
    with torch.no_grad():
        for parameter in surrogate.parameters():
            parameter.zero_()
    before = model.table.detach().clone()
    _, facts = guided(model, LABELS, step=1)
    # A surrogate of zeros has a gradient only for its last bias.
    assert torch.equal(model.table.detach(), before)
    assert facts.logloss == 0


@pytest.mark.parametrize("leaky", [False, True])
def test_leaky_updates_each_part_by_the_other(leaky):
    model, surrogate, guided = step_of(leaky=leaky, with_logloss=False)
    moved = []
    original = guided._move

    def watched(*given, **options):
        parts = {"model": model, "surrogate": surrogate}
        before = {name: [p.detach().clone() for p in part.parameters()] for name, part in parts.items()}
        result = original(*given, **options)
        moved.append(
            {
                name
                for name, part in parts.items()
                if any(not torch.equal(a, b) for a, b in zip(before[name], part.parameters(), strict=True))
            }
        )
        return result

    guided._move = watched
    guided(model, LABELS, step=1)
    assert moved == ([{"model", "surrogate"}] * 2 if leaky else [{"surrogate"}, {"model"}])
