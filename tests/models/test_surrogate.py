"""The surrogate's forms: shapes, what depends on the order of a list, and that it can learn an NDCG."""

import pytest
import torch

from beamwood.errors import InputError
from beamwood.kernels.guided import list_ndcg
from beamwood.models.surrogate import FORMS, NdcgSurrogate


def lists(count=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([1.0] * 5 + [0.0] * 5).expand(count, -1)
    return torch.rand((count, 10), generator=generator), labels


def grow(model):
    """Away from the tiny start, where a gradient takes thousands of steps to get through five layers."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30)


@pytest.mark.parametrize("form", FORMS)
def test_learns_the_ndcg_of_lists(form):
    model = NdcgSurrogate(10, form=form, generator=torch.Generator().manual_seed(0))
    grow(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(600):
        p, y = lists(64, step)
        loss = (model(p, y) - list_ndcg(p, y)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    p, y = lists(500, 10_000)
    true = list_ndcg(p, y)
    predicted = model(p, y).detach()
    assert predicted.shape == (500,)
    assert predicted.abs().max() < 1
    error, spread = (predicted - true).square().mean(), true.var()
    # One layer a pair and a mean keep little of the order; the others see it.
    assert error < (1.05 if form == "nfm1" else 0.5) * spread


def test_what_depends_on_the_order_of_a_list():
    p, y = lists()
    order = torch.randperm(10, generator=torch.Generator().manual_seed(1))
    for form in FORMS:
        model = NdcgSurrogate(10, form=form, generator=torch.Generator().manual_seed(0))
        grow(model)
        same = torch.allclose(model(p, y), model(p[:, order], y[:, order]), atol=1e-6)
        assert same == (form == "nfm1")


def test_an_unknown_form():
    with pytest.raises(InputError, match=r"'ensembel' is unknown.*ensemble"):
        NdcgSurrogate(10, form="ensembel")
