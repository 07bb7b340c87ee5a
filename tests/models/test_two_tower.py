"""The towers: features against loops, padding that counts for nothing, and the score's two forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from beamwood.models.two_tower import ItemFeatures, ItemTower, MeanTower, TwoTower, UserTable


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_item_vector_is_the_sum_of_its_parts() -> None:
    numbers = np.array([[1.0], [3.0], [np.nan], [5.0]])
    given = np.random.default_rng(0).standard_normal((4, 2))
    tower = ItemTower(4, 3, ItemFeatures(np.array([0, 1, -1, 0]), numbers, given), generator())
    # By hand: known numbers 1, 3, 5 have mean 3 and variance 8 / 3; the missing one counts as the mean.
    scaled = np.array([-2.0, 0.0, 0.0, 2.0]) / np.sqrt(8 / 3)
    dense = np.column_stack([scaled, [0, 0, 1, 0], given])
    expected = (
        tower.ids.weight.detach().numpy()
        + tower.categories.weight.detach().numpy()[[1, 2, 0, 1]]
        + dense @ tower.dense.weight.detach().numpy().T
    )
    np.testing.assert_allclose(tower(torch.arange(4)).detach().numpy(), expected, atol=1e-6)


def test_a_constant_column_adds_nothing_and_no_nan() -> None:
    features = ItemFeatures(numbers=np.full((3, 1), 7.0))
    assert features.dense is not None
    assert torch.equal(features.dense, torch.zeros((3, 2)))


def test_padding_is_no_part_of_the_mean_and_has_no_gradient() -> None:
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
        UserTable(3, 4, generator()), ItemTower(5, 4, None, generator()), normalise=normalise, temperature=0.25
    )
    scores = model.user_vectors(torch.arange(3), torch.empty((3, 0))) @ model.item_vectors(torch.arange(5)).T
    users, items = (part.detach().numpy() for part in (model.users.users.weight, model.items.ids.weight))
    for user in range(3):
        for item in range(5):
            expected = float(users[user] @ items[item])
            if normalise:
                expected /= float(np.linalg.norm(users[user]) * np.linalg.norm(items[item]))
            assert float(scores[user, item].detach()) == pytest.approx(expected / 0.25, abs=1e-5)
    np.testing.assert_array_equal(model.all_item_vectors(), model.item_vectors(torch.arange(5)).detach().numpy())


def test_same_generator_same_towers() -> None:
    first, second = (ItemTower(6, 4, ItemFeatures(np.arange(6) % 2), generator()) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
