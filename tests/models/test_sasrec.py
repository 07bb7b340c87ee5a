"""SASRec: its torch-free twin, causality, padding, and the chunked loss."""

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.kernels.transformer import TransformerEncoder
from beamwood.losses import softmax
from beamwood.losses.softmax import catalogue_softmax, full_softmax
from beamwood.models.sasrec import SasRec


@pytest.fixture
def model():
    generator = torch.Generator().manual_seed(0)
    model = SasRec(40, width=12, length=9, num_blocks=2, num_heads=3, dropout=0.3, generator=generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def histories(rng, rows=7, length=9):
    items = rng.integers(0, 40, (rows, length))
    items[np.arange(length) < length - np.concatenate([[0, 1, 9], rng.integers(1, 10, rows - 3)])[:, None]] = -1
    return items


def test_the_twin_without_torch_is_equal(model):
    items = histories(np.random.default_rng(0))
    encoder = TransformerEncoder(model.export(), num_heads=3)
    with torch.no_grad():
        expected = model(torch.from_numpy(items))[:, -1].numpy()
    got = encoder.encode(items)
    real = (items >= 0).any(axis=1)
    assert np.allclose(got[real], expected[real], atol=1e-5)
    assert not got[~real].any()
    one = np.stack([encoder.encode(row[None])[0] for row in items])
    assert np.allclose(one, got, atol=1e-5)


def test_later_items_and_padding_change_nothing_before(model):
    items = torch.from_numpy(histories(np.random.default_rng(1)))
    changed = items.clone()
    changed[:, -1] = 5
    with torch.no_grad():
        assert torch.allclose(model(items)[:, :-1], model(changed)[:, :-1], atol=1e-6)
        alone = torch.full((1, 9), -1)
        alone[0, -2:] = torch.tensor([3, 4])
        assert torch.allclose(model(alone)[:, -1], model(torch.tensor([[3, 4]]))[:, -1], atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cells", [1, 10, 50, 2**20])
def test_chunked_softmax_equals_the_whole_one(monkeypatch, cells, masked):
    monkeypatch.setattr(softmax, "BLOCK_CELLS", cells)
    generator = torch.Generator().manual_seed(1)
    queries, vectors = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (11, 23))
    targets = torch.randint(23, (11,), generator=generator)
    none = torch.rand((11, 23), generator=generator) < (0.4 if masked else 0)
    none[2] = masked  # the whole row: what is left is the target, and the loss 0
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


def test_wrong_width():
    with pytest.raises(InputError, match="not a multiple"):
        SasRec(10, width=10, num_heads=4)
