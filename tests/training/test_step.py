"""One step: the mean loss, clipping by the global norm, and no update by a non-finite number."""

import math

import pytest
import torch
from torch import nn

from beamwood.training.lazy_adam import LazyAdam
from beamwood.training.step import NonFiniteError, train_step


class Model(nn.Module):
    def __init__(self, *, sparse=True):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, 4, sparse=sparse, dtype=torch.float64)
        self.dense = nn.Linear(4, 1, dtype=torch.float64)
        self.unused = nn.Parameter(torch.ones(2))

    def loss(self, rows, *, per_example=True):
        losses = self.dense(self.table(rows)).squeeze(-1).sub(1).square()
        return losses if per_example else losses.mean()

    def optimizers(self):
        return [
            LazyAdam([self.table.weight], lr=0.1),
            torch.optim.Adam([*self.dense.parameters(), self.unused], lr=0.1),
        ]


ROWS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])


@pytest.fixture(autouse=True)
def _own_random_state():
    with torch.random.fork_rng():
        yield


def trained(*, per_example):
    model = Model()
    optimizers = model.optimizers()
    results = [
        train_step(lambda: model.loss(ROWS, per_example=per_example), model, optimizers, step=step, clip_norm=0.05)
        for step in (1, 2, 3)
    ]
    return model, results


def test_losses_of_examples_equal_their_mean():
    each, of_each = trained(per_example=True)
    mean, of_mean = trained(per_example=False)
    assert all(map(torch.equal, each.state_dict().values(), mean.state_dict().values()))
    assert of_each == of_mean
    assert of_each[2].loss < of_each[0].loss


def test_norm_and_clipping_are_over_all_parameters_together():
    sparse, dense = Model(), Model(sparse=False)
    dense.loss(ROWS).mean().backward()
    parameters = [p for p in dense.parameters() if p.grad is not None]
    expected = math.sqrt(sum(float(p.grad.square().sum()) for p in parameters))
    # Plain gradient descent shows the clipped gradient itself.
    optimizer = torch.optim.SGD(sparse.parameters(), lr=1.0)
    result = train_step(lambda: sparse.loss(ROWS), sparse, [optimizer], step=1, clip_norm=expected / 4)
    assert result.grad_norm == pytest.approx(expected, rel=1e-12)
    for name, parameter in dense.named_parameters():
        if parameter.grad is not None:
            moved = parameter.detach() - dict(sparse.named_parameters())[name].detach()
            torch.testing.assert_close(moved, parameter.grad / 4, rtol=1e-9, atol=1e-12)
    assert all(parameter.grad is None for parameter in sparse.parameters())


def infinite_loss(model):
    return lambda: model.loss(ROWS).sum() * math.inf


def bad_gradient(model):
    # The square root at 0: a finite loss with an infinite gradient.
    return lambda: (model.dense.weight * 0).abs().sqrt().sum()


@pytest.mark.parametrize(("make", "loss"), [(infinite_loss, "inf"), (bad_gradient, "0")])
def test_a_non_finite_number_stops_before_the_update(make, loss):
    model = Model()
    optimizers = model.optimizers()
    train_step(lambda: model.loss(ROWS), model, optimizers, step=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moments = [{k: v.clone() for k, v in state.items()} for o in optimizers for state in o.state.values()]
    with pytest.raises(
        NonFiniteError, match=rf"step 2: the loss is {loss} .*lower learning_rate \(now 0.1\)"
    ) as caught:
        train_step(make(model), model, optimizers, step=2)
    assert caught.value.step == 2
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    after = [state for o in optimizers for state in o.state.values()]
    assert all(torch.equal(a[k], b[k]) for a, b in zip(moments, after, strict=True) for k in a)
