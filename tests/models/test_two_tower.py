"""The towers: padding has no effect, and both forms of the score."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from beamwood.models.pairs import IdVectors
from beamwood.models.two_tower import MeanTower, TwoTower, UserTable


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_padding_is_not_in_the_mean_and_has_no_gradient() -> None:
    tower = MeanTower(5, 4, generator())
    histories = torch.tensor([[-1, -1, 2], [1, 3, 4], [-1, -1, -1]])
    vectors = tower(torch.zeros(3), histories)
    table = tower.items.weight.detach()
    torch.testing.assert_close(vectors[0].detach(), table[2])
    torch.testing.assert_close(vectors[1].detach(), table[[1, 3, 4]].mean(dim=0))
    assert torch.equal(vectors[2], torch.zeros(4))
    vectors.sum().backward()
    gradient = tower.items.weight.grad
    assert gradient is not None
    assert torch.equal(gradient[-1], torch.zeros(4))
    assert torch.equal(gradient[0], torch.zeros(4))


@pytest.mark.parametrize("normalise", [False, True])
def test_score_is_the_product_over_the_temperature(normalise: bool) -> None:
    model = TwoTower(
        UserTable(3, 4, generator()), IdVectors(5, 4, generator=generator()), normalise=normalise, temperature=0.25
    )
    scores = model.user_vectors(torch.arange(3), torch.empty((3, 0))) @ model.item_vectors(torch.arange(5)).T
    users, items = (part.detach().numpy() for part in (model.users.users.weight, model.items.ids.weight[:-1]))
    for user in range(3):
        for item in range(5):
            expected = float(users[user] @ items[item])
            if normalise:
                expected /= float(np.linalg.norm(users[user]) * np.linalg.norm(items[item]))
            assert float(scores[user, item].detach()) == pytest.approx(expected / 0.25, abs=1e-5)
    np.testing.assert_array_equal(model.all_item_vectors(), model.item_vectors(torch.arange(5)).detach().numpy())


def test_same_generator_same_towers() -> None:
    first, second = (MeanTower(6, 4, generator()) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
