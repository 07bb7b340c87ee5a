"""ROTLEX: all buckets give exact search, training beats k-means at equal products, capacities hold."""

import tracemalloc
from typing import ClassVar

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.retrieval.index import IndexInputs, IvfIndex, RotlexIndex, rotlex, settings_of
from beamwood.retrieval.index.rotlex import bucket_parents, capped_buckets, strongest
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


@pytest.fixture
def training(case):
    """A training of one epoch, so that its running means differ from their start."""
    vectors, queries = (each[:200].astype(np.float32) for each in case)
    given = {"num_children": 3, "num_epochs": 1, "hidden": 8}
    made = rotlex._Training(vectors, settings_of(RotlexIndex, given), IndexInputs(0, lambda: queries))
    made.run()
    return made


def encoded_by_its_equations(training, name, x_BD, *, running=False):
    """float64[B, H]: twice a linear map, batch normalisation by the batch's means or the running ones, and SiLU."""
    w = {key: value.detach().double().numpy() for key, value in (training.weights | training.means).items()}
    x = x_BD.astype(float) * training.scale
    for layer in (f"{name}.first", f"{name}.second"):
        x = x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"]
        mean, variance = (w[f"{layer}.mean"], w[f"{layer}.variance"]) if running else (x.mean(axis=0), x.var(axis=0))
        x = (x - mean) / np.sqrt(variance + 1e-5) * w[f"{layer}.gain"] + w[f"{layer}.shift"]
        x = x / (1 + np.exp(-x))
    return x


def softmax_of(training, hidden_BH, nodes):
    odds = np.exp(hidden_BH @ training.weights[nodes].detach().double().numpy().T)
    return odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["query", "item"])
def test_the_loss_equals_its_definition(training, name):
    """A softmax of each level against the buckets of the ten items with the largest products."""
    rows = np.arange(7, 40)
    x = training.examples[name][rows]
    nearest = np.argsort(-(x @ training.vectors.T), axis=1)[:, :10]
    hidden, expected = encoded_by_its_equations(training, name, x), 0.0
    for nodes, of_bucket in (("lower", np.arange(9)), ("upper", training.parent_C)):
        odds = softmax_of(training, hidden, nodes)
        found = [[odds[row, of_bucket[training.bucket_N[i]]] for i in own] for row, own in enumerate(nearest)]
        expected -= np.log(found).mean()
    assert training.loss(name, rows).item() == pytest.approx(expected, rel=1e-4)


def test_items_move_to_the_buckets_that_their_queries_and_they_themselves_choose(training):
    """P(b | i): the mean softmax over the queries with i among their 15 nearest, and of i as a query."""
    shares = {}
    for nodes in ("lower", "upper"):
        own = softmax_of(training, encoded_by_its_equations(training, "item", training.vectors, running=True), nodes)
        queries = training.examples["query"]
        of_queries = softmax_of(training, encoded_by_its_equations(training, "query", queries, running=True), nodes)
        nearest = np.argsort(-(queries @ training.vectors.T), axis=1)[:, :15]
        shares[nodes] = np.array(
            [
                np.mean([own[item], *of_queries[(nearest == item).any(axis=1)]], axis=0)
                for item in range(len(training.vectors))
            ]
        )
    np.testing.assert_allclose(shares["lower"].sum(axis=1), 1)
    room = -(-3 * len(training.vectors) // (2 * 9))
    expected = capped_buckets(*strongest(shares["lower"]), training.bucket_N.copy(), room)
    before = training.bucket_N.copy()
    training._regroup()
    assert (training.bucket_N != before).any()
    assert np.array_equal(training.bucket_N, expected)
    assert np.array_equal(training.parent_C, bucket_parents(shares["lower"].T @ shares["upper"]))


def test_regrouping_works_in_blocks_of_items(case, monkeypatch):
    """The same buckets, without a share of each bucket for each item or for each vote of a query."""
    vectors, queries = case
    given, found = settings_of(RotlexIndex, {"num_children": 12, "num_epochs": 1, "hidden": 8}), []
    for cells in (2**25, 2**15):
        monkeypatch.setattr(rotlex, "_BLOCK_CELLS", cells, raising=False)
        training = rotlex._Training(vectors, given, IndexInputs(0, lambda: queries))
        tracemalloc.start()
        try:
            training._regroup()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        found.append((training.bucket_N, training.parent_C))
    assert peak < 8 * 4 * len(vectors) * 144
    assert all(np.array_equal(*pair) for pair in zip(*found, strict=True))


def test_a_search_encodes_as_the_training_did(training):
    """Normalisation is folded into the stored maps."""
    queries = training.examples["query"][:9]
    arrays, x = training.exported(), queries
    for layer in ("first", "second"):
        x = x @ arrays[f"{layer}.weight"].T + arrays[f"{layer}.bias"]
        x = x / (1 + np.exp(-x))
    np.testing.assert_allclose(x, encoded_by_its_equations(training, "query", queries, running=True), atol=1e-4)
    assert np.array_equal(arrays["nodes"], training.weights["lower"].detach().numpy())


def test_the_strongest_assignments_win_and_capacities_hold():
    wishes = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.7, 0.6, 0.0], [0.5, 0.4, 0.1]])
    assert capped_buckets(*strongest(wishes), np.array([2, 2, 2, 2], np.int32), 2).tolist() == [0, 0, 1, 1]
    assert capped_buckets(*strongest(wishes), np.array([2, 2, 2, 2], np.int32), 1).tolist() == [0, 2, 1, 2]


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
