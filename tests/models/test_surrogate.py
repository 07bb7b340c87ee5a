"""The surrogate's forms: their equations, dependence on the order of a list, and learning of NDCG."""

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.kernels.guided import list_ndcg
from beamwood.models.surrogate import FORMS, NdcgSurrogate


def lists(count=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([1.0] * 5 + [0.0] * 5).expand(count, -1)
    return torch.rand((count, 10), generator=generator), labels


def by_its_equations(form, p_K, y_K, layers):
    """GuidedRec, equations 4-8 and figure 3 for one list, in NumPy; `layers` hold matrix and bias by name."""

    def dense(x, name):
        matrix, bias = layers[name]
        return np.tanh(matrix @ x + bias)

    parts = []
    if form in ("mlp", "ensemble"):
        parts.append(dense(dense(np.concatenate([p_K, y_K]), "v1"), "v2"))
    if form != "mlp":
        z_KD = np.stack([dense(np.array(pair), "g") for pair in zip(p_K, y_K, strict=True)])
        size = len(p_K)
        parts.append(dense(z_KD.sum(axis=0) / size if form == "nfm1" else z_KD @ z_KD.T @ np.ones(size) / size, "e"))
    return dense(dense(np.prod(parts, axis=0), "h1"), "h2")[0]


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_equals_its_equations(form, size):
    """Also for lists of one item, and for labels that are all 1 or all 0."""
    model = NdcgSurrogate(size, form=form, std=None, generator=torch.Generator().manual_seed(size))
    rng = np.random.default_rng(size)
    with torch.no_grad():
        model.weights += torch.from_numpy(0.3 * rng.normal(size=len(model.weights))).float()
    layers = {
        name: [part.detach().double().numpy() for part in layer]
        for name, layer in model.shape.split(model.weights).items()
    }
    p, y = rng.random((6, size)), rng.integers(0, 2, (6, size)).astype(float)
    y[0], y[1] = 0, 1
    got = model(torch.from_numpy(p).float(), torch.from_numpy(y).float()).detach().numpy()
    expected = [by_its_equations(form, *lists, layers) for lists in zip(p, y, strict=True)]
    np.testing.assert_allclose(got, expected, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_learns_the_ndcg_of_lists(form):
    model = NdcgSurrogate(10, form=form, std=None, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1000):
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
    # One layer per pair and a mean keep less of the order.
    assert error < (0.9 if form == "nfm1" else 0.5) * spread


@pytest.mark.parametrize("form", FORMS)
def test_the_small_initialisation_is_constant_over_lists(form):
    spreads = {}
    for std in (0.01, None):
        model = NdcgSurrogate(10, form=form, std=std, generator=torch.Generator().manual_seed(0))
        spreads[std] = float(model(*lists(500)).std())
    assert spreads[0.01] < 1e-6 < 1e-3 < spreads[None]


def test_dependence_on_the_order_of_a_list():
    p, y = lists()
    order = torch.randperm(10, generator=torch.Generator().manual_seed(1))
    for form in FORMS:
        model = NdcgSurrogate(10, form=form, std=None, generator=torch.Generator().manual_seed(0))
        same = torch.allclose(model(p, y), model(p[:, order], y[:, order]), atol=1e-6)
        assert same == (form == "nfm1")


def test_an_unknown_form():
    with pytest.raises(InputError, match=r"'ensembel' is unknown.*ensemble"):
        NdcgSurrogate(10, form="ensembel", std=None, generator=torch.Generator())
