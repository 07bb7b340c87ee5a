"""The mixture of a new item, by the available information."""

import numpy as np

from beamwood.retrieval.new_items.sources import WITHIN, Sources, items_near


def test_items_near_an_event():
    history = np.arange(100, 140)
    assert items_near(history, 0).tolist() == list(range(101, 101 + WITHIN))
    assert items_near(history, 20).tolist() == [*range(110, 120), *range(121, 131)]
    assert items_near(np.array([7]), 0).tolist() == []


def test_the_most_frequent_neighbours_have_weights_by_frequency():
    near = [np.array([3, 3, 5]), np.array([5, 3, 9]), np.array([-1, 40])]
    assert Sources(np.ones(10)).events(near) == {3: 3.0, 5: 2.0, 9: 1.0}
    assert Sources(np.ones(10)).events([]) == {}


def test_ties_prefer_popular_items():
    counts = np.arange(30.0)
    found = Sources(counts).events([np.arange(30)])
    assert sorted(found) == list(range(20, 30)), "ten of thirty items, each near once"
    assert set(Sources(counts).events([np.arange(30), np.array([2])])) == {2, *range(21, 30)}
    for mixture in (Sources(counts).category(np.arange(30)), Sources(counts).vector(np.arange(30))):
        assert mixture == dict.fromkeys(range(29, 19, -1), 1.0)
