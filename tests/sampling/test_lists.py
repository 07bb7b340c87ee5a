"""Lists to rank: positives are the user's items, negatives are not, and the history precedes them."""

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.sampling.lists import FutureListSampler, ListSampler
from beamwood.types import ItemLists

HISTORIES = ItemLists.from_lists([[3, 1, 4, 1, 5], [], [9], [2, 6, 5, 3, 5, 8], list(range(10))])


def test_lists_of_users():
    sampler = ListSampler(HISTORIES, 10, num_positives=3, num_negatives=4)
    assert sampler.users.tolist() == [0, 2, 3]  # The others have no items, or all items.
    assert len(sampler) == 8  # 22 interactions in threes
    lists = sampler.sample(np.arange(8), torch.Generator().manual_seed(0))
    assert lists.items_BK.shape == (8, 7)
    assert lists.labels_BK.tolist() == [[1, 1, 1, 0, 0, 0, 0]] * 8
    assert lists.query.users.tolist() == [0, 2, 3, 0, 2, 3, 0, 2]
    for user, row in zip(lists.query.users, lists.items_BK, strict=True):
        assert set(row[:3]) <= set(HISTORIES[user].tolist())
        assert not set(row[3:]) & set(HISTORIES[user].tolist())


def test_positives_are_drawn_by_their_counts():
    sampler = ListSampler(ItemLists.from_lists([[0, 0, 0, 1]]), 5, num_positives=4, num_negatives=5)
    lists = sampler.sample(np.zeros(5000, int), torch.Generator().manual_seed(0))
    assert abs((lists.items_BK[:, :4] == 0).mean() - 0.75) < 0.02
    assert np.abs(np.bincount(lists.items_BK[:, 4:].ravel(), minlength=5)[2:] / 25_000 - 1 / 3).max() < 0.02


def test_lists_at_positions():
    sampler = FutureListSampler(HISTORIES, 10, length=2, horizon=2, num_positives=3, num_negatives=2)
    lists = sampler.sample(np.arange(len(sampler)), torch.Generator().manual_seed(0))
    assert len(sampler) == 4 + 5
    stops = sampler.examples.stop
    for row, (user, stop) in enumerate(zip(lists.query.users, stops, strict=True)):
        start, end = HISTORIES.indptr[user], HISTORIES.indptr[user + 1]
        assert lists.query.histories[row].tolist() == HISTORIES.items[max(start, stop - 2) : stop].tolist()
        assert set(lists.items_BK[row, :3]) <= set(HISTORIES.items[stop : min(end, stop + 2)].tolist())
        assert not set(lists.items_BK[row, 3:]) & set(HISTORIES[user].tolist())


def test_nothing_to_rank():
    with pytest.raises(InputError, match="some items but not all"):
        ListSampler(ItemLists.from_lists([[], [0, 1]]), 2, num_positives=5, num_negatives=5)
    with pytest.raises(InputError, match="no user has two interactions"):
        FutureListSampler(ItemLists.from_lists([[0], []]), 2, length=3, horizon=10, num_positives=5, num_negatives=5)
