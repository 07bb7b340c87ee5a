"""ROTLEX: all buckets give exact search, training beats k-means at equal products, capacities hold."""

from typing import ClassVar

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.retrieval.index import IndexInputs, IvfIndex, RotlexIndex, settings_of
from beamwood.retrieval.index.rotlex import bucket_parents, capped_buckets
from beamwood.retrieval.products import best_products
from beamwood.testing import IndexContract

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'beamwood[train]')")


class TestRotlex(IndexContract):
    index = RotlexIndex
    num_items = 600
    settings: ClassVar = {"num_children": 4, "num_epochs": 3, "regroup_every": 1, "hidden": 16, "num_probed": 10}
    recall = 0.5
    exhaustive: ClassVar = {"num_probed": 16}
    efforts: ClassVar = [{"num_probed": num} for num in (1, 6, 16)]


@pytest.fixture(scope="module")
def case():
    """Queries have few directions and items differ in length, so products and distances rank items differently."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1500, 24)) * rng.lognormal(0, 0.4, size=(1500, 1))
    queries = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 24)) + 0.3 * rng.normal(size=(2000, 24))
    return vectors.astype(np.float32), queries.astype(np.float32)


def curve(index, queries, exact):
    """Products and recall at several efforts."""
    points = []
    for num in range(1, 12):
        index.num_probed = num
        hits = index.search(queries, 10)
        recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(hits.items, exact.items, strict=True)])
        points.append((float(hits.scored.mean()), float(recall)))
    return np.array(points).T


def test_it_has_a_higher_recall_than_k_means_at_equal_products(case):
    vectors, queries = case
    exact = best_products(queries[:200], vectors, 10)
    given = {"num_children": 7, "num_epochs": 20, "regroup_every": 7, "hidden": 32}
    learned = RotlexIndex(vectors, settings_of(RotlexIndex, given), IndexInputs(0, lambda: queries[200:]))
    plain = IvfIndex(vectors, settings_of(IvfIndex, {"num_buckets": 49}))
    ours, theirs = (curve(index, queries[:200], exact) for index in (learned, plain))
    at = np.linspace(max(ours[0].min(), theirs[0].min()), min(ours[0].max(), theirs[0].max()), 9)
    gain = np.interp(at, *ours) - np.interp(at, *theirs)
    assert gain.mean() > 0.1


def test_the_strongest_assignments_win_and_capacities_hold():
    wishes = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.7, 0.6, 0.0], [0.5, 0.4, 0.1]])
    assert capped_buckets(wishes, np.array([2, 2, 2, 2], np.int32), 2).tolist() == [0, 0, 1, 1]
    assert capped_buckets(wishes, np.array([2, 2, 2, 2], np.int32), 1).tolist() == [0, 2, 1, 2]


def test_parents_have_equal_numbers_of_children():
    parents = bucket_parents(np.random.default_rng(1).random((25, 5)))
    assert np.bincount(parents).tolist() == [5] * 5
    liking = np.kron(np.eye(3), np.ones((3, 1)))
    assert bucket_parents(liking).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_it_keeps_its_time_limit(case):
    vectors, queries = case
    made = RotlexIndex(vectors, settings_of(RotlexIndex, {"num_epochs": 10**6}), IndexInputs(0, lambda: queries, 0.01))
    assert made.search(queries[:2], 3).items.shape == (2, 3)


def test_without_queries_items_are_assigned_by_their_vectors(case):
    vectors, queries = case
    made = RotlexIndex(vectors, settings_of(RotlexIndex, {"num_epochs": 2}))
    everything = 10 * len(made.buckets)
    made.num_probed = everything
    assert np.array_equal(made.search(queries[:5], 7).items, best_products(queries[:5], vectors, 7).items)


def test_invalid_arrays_are_refused(case):
    vectors, _ = case
    config, arrays = RotlexIndex(vectors, settings_of(RotlexIndex, {"num_epochs": 1})).export()
    for change in (
        {"nodes": arrays["nodes"][1:]},
        {"first.weight": arrays["first.weight"][:, 1:]},
        {"second.bias": np.full_like(arrays["second.bias"], np.inf)},
        {"other": np.zeros(3, np.float32)},
    ):
        with pytest.raises(ArtefactError):
            RotlexIndex.restore(vectors, config, arrays | change)
