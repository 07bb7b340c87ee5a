"""ScaNN: the loss equals the paper's and never rises, enough codes are exact, reordering raises recall."""

import itertools
import tracemalloc
from typing import ClassVar

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.retrieval.index import ScannIndex, scann, settings_of
from beamwood.retrieval.index.kmeans import kmeans
from beamwood.retrieval.index.scann import anisotropic_codes, eta_of
from beamwood.retrieval.products import best_products
from beamwood.testing import IndexContract

SMALL = {"num_buckets": 20, "block_width": 2}


class TestReordered(IndexContract):
    index = ScannIndex
    settings: ClassVar = SMALL | {"num_probed": 14}
    recall = 0.8
    exhaustive: ClassVar = {"num_probed": 20, "num_reordered": 3000}
    efforts: ClassVar = [{"num_probed": num} for num in (1, 5, 20)]


class TestCodesAlone(IndexContract):
    index = ScannIndex
    settings: ClassVar = SMALL | {"num_probed": 20, "num_reordered": 0}
    recall = 0.5
    exact_scores = False
    efforts: ClassVar = [{"num_probed": 2}, {"num_probed": 20}]


def loss_of(residuals_ND, decoded_ND, vectors_ND, eta_N):
    """float64[N], `eta |r_par|^2 + |r_perp|^2` of the residual, parallel and orthogonal to each vector."""
    left = residuals_ND.astype(np.float64) - decoded_ND
    squares = np.maximum(np.square(vectors_ND.astype(np.float64)).sum(axis=1), 1e-30)
    along = np.square((left * vectors_ND).sum(axis=1)) / squares
    return np.square(left).sum(axis=1) + (eta_N - 1) * along


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(1500, 9)).astype(np.float32)


def coded(vectors, **changes):
    given = {"block_width": 2, "num_words": 8, "threshold": 0.6} | changes
    return anisotropic_codes(vectors, vectors, rng=np.random.default_rng(1), **given)


def test_the_loss_equals_the_papers():
    """Compared with its two parts in loops."""
    rng = np.random.default_rng(2)
    x, decoded = rng.normal(size=(2, 5, 4))
    eta = eta_of(x, 0.5)
    for row, value in enumerate(loss_of(x, decoded, x, eta)):
        unit, left = x[row] / np.linalg.norm(x[row]), x[row] - decoded[row]
        along = (left @ unit) * unit
        t = min(0.25 * np.square(x).sum(axis=1).mean() / np.square(x[row]).sum(), 0.5)
        expected = max(3 * t / (1 - t), 1)
        assert eta[row] == pytest.approx(expected, rel=1e-5)
        assert value == pytest.approx(expected * along @ along + (left - along) @ (left - along), rel=1e-5)


def test_parallel_errors_are_smaller_with_a_higher_weight(vectors):
    eta = eta_of(vectors, 0.6)
    assert eta.mean() > 2
    losses, along = {}, {}
    for threshold in (0.0, 0.6):
        decoded = coded(vectors, threshold=threshold).decoded()
        losses[threshold] = loss_of(vectors, decoded, vectors, eta).mean()
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        along[threshold] = np.square(((vectors - decoded) * unit).sum(axis=1)).mean()
    assert losses[0.6] < 0.95 * losses[0.0]
    assert along[0.6] < 0.7 * along[0.0]


def test_no_iteration_raises_the_loss(vectors, monkeypatch):
    eta, losses = eta_of(vectors, 0.6), []
    for rounds in range(5):
        monkeypatch.setattr("beamwood.retrieval.index.scann._ROUNDS", rounds)
        losses.append(loss_of(vectors, coded(vectors).decoded(), vectors, eta).mean())
    assert all(later <= before * (1 + 1e-5) for before, later in itertools.pairwise(losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("threshold", [0.0, 0.6])
def test_codewords_of_many_vectors_are_learned_from_some(vectors, monkeypatch, threshold):
    """The others get codes of the same codewords, at nearly the same loss."""
    eta, sizes = eta_of(vectors, threshold), []
    whole = coded(vectors, threshold=threshold)
    monkeypatch.setattr(scann, "_LEARNED", 700, raising=False)
    monkeypatch.setattr(scann, "_ROWS", 400)
    monkeypatch.setattr(scann, "kmeans", lambda x, *rest: sizes.append(len(x)) or kmeans(x, *rest))
    some = coded(vectors, threshold=threshold)
    assert set(sizes) == {700}
    losses = [loss_of(vectors, made.decoded(), vectors, eta).mean() for made in (whole, some)]
    assert losses[1] < 1.05 * losses[0]


def test_enough_codes_are_exact():
    rng = np.random.default_rng(3)
    words = rng.normal(size=(3, 8, 2)).astype(np.float32)
    planted = rng.integers(8, size=(500, 3))
    vectors = words[np.arange(3), planted].reshape(500, 6)
    made = coded(vectors)
    np.testing.assert_allclose(made.decoded(), vectors, atol=1e-4)
    # Then the index is exact too, without exact products.
    index = ScannIndex(vectors, settings_of(ScannIndex, SMALL | {"num_buckets": 1, "num_reordered": 0}))
    queries = rng.normal(size=(10, 6)).astype(np.float32)
    found, exact = index.search(queries, 5), best_products(queries, vectors, 5)
    np.testing.assert_allclose(found.scores, exact.scores, atol=1e-3)


def test_scored_counts_sums_of_codes_and_products(vectors):
    index = ScannIndex(vectors, settings_of(ScannIndex, SMALL | {"num_probed": 20, "num_reordered": 30}))
    assert index.search(vectors[:3], 10).scored.tolist() == [20 + 1500 + 30] * 3


def test_invalid_codes_are_refused(vectors):
    index = ScannIndex(vectors, settings_of(ScannIndex, SMALL))
    config, arrays = index.export()
    wrong = {
        "codes": [arrays["codes"][1:], arrays["codes"].astype(np.int64), np.full_like(arrays["codes"], 200)],
        "codewords": [arrays["codewords"][1:], np.full_like(arrays["codewords"], np.nan)],
        "centres": [arrays["centres"][:, 1:], arrays["centres"][1:]],
    }
    for name, others in wrong.items():
        for other in others:
            with pytest.raises(ArtefactError):
                ScannIndex.restore(vectors, config, arrays | {name: other})


def test_learning_holds_the_column_pairs_of_few_vectors(monkeypatch):
    """64 x 64 for each of 4,000 vectors would be 131 MB."""
    monkeypatch.setattr(scann, "_ROUNDS", 1)
    vectors = np.random.default_rng(0).normal(size=(4000, 64)).astype(np.float32)
    tracemalloc.start()
    try:
        coded(vectors, block_width=64)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
