"""Residual codes: enough codes reconstruct exactly, planted codes are found, each code reduces the error."""

import numpy as np
import pytest

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.index.codes import Blocks, Codes, Sums, residual_codes


def test_enough_codes_reconstruct_exactly():
    vectors = np.random.default_rng(0).normal(size=(200, 7)).astype(np.float32)
    made = residual_codes(vectors, 1, 200, np.random.default_rng(1))
    np.testing.assert_allclose(made.decoded(), vectors, atol=1e-6)
    few = np.repeat(vectors[:20], 9, axis=0)
    np.testing.assert_allclose(residual_codes(few, 2, 16, np.random.default_rng(1)).decoded(), few, atol=1e-4)


def test_planted_codes_are_found():
    rng = np.random.default_rng(2)
    tables = rng.normal(size=(3, 8, 16)) * np.array([100.0, 10.0, 1.0])[:, None, None]
    # All combinations are equally frequent, so the mean contribution of later codes is constant.
    planted = np.array([*np.ndindex(8, 8, 8)], np.uint8)
    vectors = Sums(tables.astype(np.float32)).decode(planted)
    made = residual_codes(vectors, 3, 8, rng)
    assert np.square(made.decoded() - vectors).mean() < 1e-3
    # The codes equal the planted ones up to a permutation.
    for place in range(3):
        assert len({*zip(planted[:, place].tolist(), made.codes[:, place].tolist(), strict=True)}) == 8


def test_each_code_reduces_the_error():
    vectors = np.random.default_rng(3).normal(size=(1000, 12)).astype(np.float32)
    errors = [
        float(np.square(residual_codes(vectors, num, 16, np.random.default_rng(0)).decoded() - vectors).mean())
        for num in (1, 2, 4, 8)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 2


def test_product_codes_cover_blocks_of_columns():
    rng = np.random.default_rng(4)
    tables, codes = rng.normal(size=(3, 5, 2)).astype(np.float32), rng.integers(5, size=(50, 3)).astype(np.uint8)
    blocks, query = Blocks(tables, 5), rng.normal(size=5).astype(np.float32)
    decoded = blocks.decode(codes)
    expected = [np.concatenate([tables[m, code] for m, code in enumerate(row)])[:5] for row in codes]
    assert np.array_equal(decoded, np.array(expected))
    sums = np.take_along_axis(blocks.products(query).T, codes.astype(int), axis=0).sum(axis=1)
    np.testing.assert_allclose(sums, decoded @ query, rtol=1e-5, atol=1e-5)


def test_invalid_codes_are_refused():
    tables = np.zeros((3, 5, 2), np.float32)
    for codes in (np.full((4, 3), 5, np.uint8), np.zeros((4, 2), np.uint8), np.zeros((4, 3), np.int64)):
        with pytest.raises(ArtefactError, match="code"):
            Codes(codes, Sums(tables))
    with pytest.raises(InputError, match="1 to 256 codewords"):
        residual_codes(np.zeros((4, 2), np.float32), 2, 257, np.random.default_rng(0))
