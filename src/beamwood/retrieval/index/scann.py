"""ScaNN: buckets of codes with an anisotropic loss, which keeps large products exact, and exact products of a few
items.

    loss(x, x') = eta |r_par|^2 + |r_perp|^2,  r = x - x',  r_par along x,  eta = (D - 1) t / (1 - t),  t = T^2 / |x|^2

Shape legend: N items, D width, C buckets, M blocks, K codewords, W columns of a block, P buckets opened, k results.
Source: Guo et al., "Accelerating Large-Scale Inference with Anisotropic Vector Quantization", theorems 3.2 and 3.3.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import slices
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.retrieval.index.buckets import best_of, probed_items
from beamwood.retrieval.index.codes import Blocks, Codes
from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, by_row, own_settings
from beamwood.retrieval.index.fields import NumBuckets, NumCodewords, NumProbed, StoredProbes, probed_of
from beamwood.retrieval.index.ivf import bucketed, restored_buckets
from beamwood.retrieval.index.kmeans import kmeans, nearest_centres
from beamwood.retrieval.stored import MOST
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = ["ScannIndex", "ScannSettings", "anisotropic_codes", "eta_of"]

# Rounds of updating codes and codewords, and passes over the blocks in each.
_ROUNDS, _PASSES = 8, 2
# The most vectors that codewords are learned from: of more, learning takes time and hardly lowers the loss.
_LEARNED = 100_000
_ROWS = 8192
# Products of pairs of columns held at a time (8 MiB).
_CELLS = 2**20


class ScannSettings(IndexSettings):
    """Buckets, codes, and the number of items reordered by exact products."""

    num_buckets: NumBuckets = None
    num_probed: NumProbed = None
    block_width: int = Field(2, ge=1, le=256, description="scann: vector columns per code")
    num_codewords: NumCodewords = None
    threshold: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="scann: T, threshold of relevant products, relative to a vector's typical norm; 0: none",
    )
    num_reordered: int = Field(
        100, ge=0, le=MOST, description="scann: candidates re-scored by exact products; 0: codes only"
    )


class _Stored(StoredProbes):
    num_reordered: int = Field(ge=0, le=MOST)


class ScannIndex:
    """Codes of the residuals from bucket centres, with the anisotropic loss.

    A product is that with the centre plus a sum over blocks, looked up in a table of the query's products with
    codewords. `scored` counts products with centres, sums of codes, and exact products of reordered items. With
    `num_reordered` 0 scores are those of the codes.
    """

    kind: ClassVar[str] = "scann"
    Settings: ClassVar[type[IndexSettings]] = ScannSettings
    modules: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[bool] = False

    def __init__(
        self, vectors_ND: FloatArray, settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> None:
        given = own_settings(ScannSettings, settings)
        rng = np.random.default_rng(inputs.seed)
        self.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        self.centres, self.buckets = bucketed(self.vectors, given.num_buckets, rng, inputs.seconds)
        self.num_probed = probed_of(given.num_probed, len(self.centres))
        self.num_reordered = given.num_reordered
        self._bucket_N = self.buckets.of_item()
        self.codes = anisotropic_codes(
            self.vectors - self.centres[self._bucket_N],
            self.vectors,
            block_width=min(given.block_width, self.vectors.shape[1]),
            num_words=given.num_codewords or 16,
            threshold=given.threshold,
            rng=rng,
        )

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `Index`."""
        return by_row(self._row, len(self.vectors), queries_BD, k, options)

    def _row(self, query_D: FloatArray, k: int, options: SearchOptions) -> Hits:
        by_centre_C = self.centres @ query_D
        order_C = np.argsort(-by_centre_C, kind="stable")
        items = probed_items(self.buckets, order_C, self.num_probed, k, options)
        scores = self._by_codes(query_D, by_centre_C, items)
        computed = len(by_centre_C) + len(items)
        if self.num_reordered:
            most = max(self.num_reordered, k)
            if len(items) > most:
                best = np.sort(np.argpartition(-scores, most)[:most])
                items = items[best]
            scores = np.asarray(self.vectors[items] @ query_D, np.float32)
            computed += len(items)
        hits = best_of(items, scores, k)
        return Hits(hits.items, hits.scores, np.array([computed], np.int64))

    def _by_codes(self, query_D: FloatArray, by_centre_C: FloatArray, items: NDArray[np.int32]) -> NDArray[np.float32]:
        """float32, each item's product by its codes."""
        assert isinstance(self.codes.decoder, Blocks)
        table = self.codes.decoder.products(query_D)
        scores: NDArray[np.float32] = by_centre_C[self._bucket_N[items]].astype(np.float32)
        for row, column in zip(table, self.codes.codes[items].T, strict=True):
            scores += row[column]
        return scores

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Centres, buckets, codes and codewords."""
        assert isinstance(self.codes.decoder, Blocks)
        config = {"num_probed": self.num_probed, "num_reordered": self.num_reordered}
        own: dict[str, NDArray[Any]] = {
            "centres": self.centres,
            "codes": self.codes.codes,
            "codewords": self.codes.decoder.tables_MKW,
        }
        return config, own | self.buckets.arrays()

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        restored, stored = cls.__new__(cls), _Stored.model_validate(config)
        restored.num_probed, restored.num_reordered = stored.num_probed, stored.num_reordered
        restored.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        restored.centres, restored.buckets = restored_buckets(arrays, vectors_ND)
        shape, width = shape_of(arrays, "codewords", 3), vectors_ND.shape[1]
        check_floats(arrays, {"codewords": (-(-width // shape[2]), *shape[1:])})
        tables = np.ascontiguousarray(arrays["codewords"], np.float32)
        shape_of(arrays, "codes", 2)
        restored.codes = Codes(arrays["codes"], Blocks(tables, width))
        restored._bucket_N = restored.buckets.of_item()
        restored.codes.check_rows(len(vectors_ND))
        return restored


def eta_of(vectors_ND: FloatArray, threshold: float) -> NDArray[np.float32]:
    """float32[N], the weight of an error along a vector relative to one across it.

    `threshold` is in units of the root mean squared length. The formula is a limit for many dimensions: for long
    vectors it falls below 1, for short ones it is unbounded. It is clipped to 1 .. D - 1.
    """
    squares_N = np.square(vectors_ND).sum(axis=1)
    width, mean = vectors_ND.shape[1], max(float(squares_N.mean()), 1e-30)
    t_N = np.minimum(threshold**2 * mean / np.maximum(squares_N, 1e-30), 0.5)
    eta_N: NDArray[np.float32] = np.maximum((width - 1) * t_N / (1 - t_N), 1).astype(np.float32)
    return eta_N


def anisotropic_codes(
    residuals_ND: FloatArray,
    vectors_ND: FloatArray,
    *,
    block_width: int,
    num_words: int,
    threshold: float,
    rng: np.random.Generator,
) -> Codes:
    """Codes of the residuals under the anisotropic loss, by alternating updates of codes and codewords.

    They start from k-means of each block. Each update is optimal given the others, so none increases the loss.
    Codewords are learned from at most 100,000 vectors; with more, all get codes of these codewords, in blocks.
    """
    width, num_items = residuals_ND.shape[1], len(residuals_ND)
    squares_N = np.maximum(np.square(vectors_ND).sum(axis=1), 1e-30)
    extra_N = ((eta_of(vectors_ND, threshold) - 1) / squares_N).astype(np.float32)
    some = slice(None) if num_items <= _LEARNED else np.sort(rng.choice(num_items, _LEARNED, replace=False))
    u_NMW, x_NMW = _blocked(residuals_ND[some], block_width), _blocked(vectors_ND[some], block_width)
    tables, codes = _learned(u_NMW, x_NMW, extra_N[some], num_words, rng)
    if num_items > _LEARNED:
        codes = np.empty((num_items, len(tables)), np.uint8)
        for rows in slices(num_items, _ROWS):
            u, x = _blocked(residuals_ND[rows], block_width), _blocked(vectors_ND[rows], block_width)
            for block, table_KW in enumerate(tables):
                codes[rows, block] = nearest_centres(u[:, block], table_KW)[0]
            _assign(u, x, extra_N[rows], tables, codes[rows])
    return Codes(codes, Blocks(tables, width))


def _blocked(rows_ND: FloatArray, block_width: int) -> NDArray[np.float32]:
    """float32[N, M, W], the columns of each block; zeros after the last column."""
    num_blocks = -(-rows_ND.shape[1] // block_width)
    padding = ((0, 0), (0, num_blocks * block_width - rows_ND.shape[1]))
    return np.pad(np.asarray(rows_ND, np.float32), padding).reshape(len(rows_ND), num_blocks, block_width)


def _learned(
    u_NMW: FloatArray, x_NMW: FloatArray, extra_N: FloatArray, num_words: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The codewords float32[M, K, W] of each block, and the codes uint8[N, M]."""
    num_blocks, block_width = u_NMW.shape[1:]
    tables = np.zeros((num_blocks, num_words, block_width), np.float32)
    codes = np.zeros((len(u_NMW), num_blocks), np.uint8)
    for block in range(num_blocks):
        centres = kmeans(u_NMW[:, block], num_words, rng)
        tables[block, : len(centres)] = centres
        codes[:, block] = nearest_centres(u_NMW[:, block], centres)[0]
    if (extra_N > 0).any():
        for _ in range(_ROUNDS):
            _assign(u_NMW, x_NMW, extra_N, tables, codes)
            _move(u_NMW, x_NMW, extra_N, tables, codes)
        _assign(u_NMW, x_NMW, extra_N, tables, codes)
    return tables, codes


def _along(u_NMW: FloatArray, x_NMW: FloatArray, tables: FloatArray, codes: NDArray[np.uint8]) -> FloatArray:
    """[N, M], the residual of each block along the vector: `<u - codeword, x>` of its columns."""
    decoded = tables[np.arange(len(tables)), codes]
    return np.asarray(((u_NMW - decoded) * x_NMW).sum(axis=2), np.float32)


def _assign(
    u_NMW: FloatArray, x_NMW: FloatArray, extra_N: FloatArray, tables: FloatArray, codes: NDArray[np.uint8]
) -> None:
    """Give each block in turn the codeword with the least loss, given the others; in place."""
    for rows in slices(len(codes), _ROWS):
        u, x, extra, own = u_NMW[rows], x_NMW[rows], extra_N[rows], codes[rows]
        along_NM = _along(u, x, tables, own)
        total_N = along_NM.sum(axis=1)
        for _ in range(_PASSES):
            for block, table_KW in enumerate(tables):
                rest_N = total_N - along_NM[:, block]
                by_word_NK = (u[:, block] * x[:, block]).sum(axis=1)[:, None] - x[:, block] @ table_KW.T
                across_NK = np.square(table_KW).sum(axis=1) - 2 * (u[:, block] @ table_KW.T)
                best = (across_NK + extra[:, None] * np.square(rest_N[:, None] + by_word_NK)).argmin(axis=1)
                own[:, block] = best
                along_NM[:, block] = np.take_along_axis(by_word_NK, best[:, None], axis=1)[:, 0]
                total_N = rest_N + along_NM[:, block]


def _move(
    u_NMW: FloatArray, x_NMW: FloatArray, extra_N: FloatArray, tables: FloatArray, codes: NDArray[np.uint8]
) -> None:
    """Move each block's codewords in turn to the least loss of their items; in place.

    That is `(sum_i I + a_i x_i x_i') w = sum_i u_i + a_i x_i (rest_i + <u_i, x_i>)`.
    """
    along_NM = _along(u_NMW, x_NMW, tables, codes).astype(np.float64)
    num_words, width = tables.shape[1:]
    for block in range(len(tables)):
        u, x, own = u_NMW[:, block].astype(np.float64), x_NMW[:, block].astype(np.float64), codes[:, block]
        rest_N = along_NM.sum(axis=1) - along_NM[:, block]
        pulls = u + (extra_N * (rest_N + (u * x).sum(axis=1)))[:, None] * x
        left, right = np.zeros((num_words, width, width)), np.zeros((num_words, width))
        np.add.at(right, own, pulls)
        for rows in slices(len(own), _CELLS // width**2):
            np.add.at(left, own[rows], extra_N[rows, None, None] * x[rows, :, None] * x[rows, None, :])
        counts = np.bincount(own, minlength=num_words)
        used = counts > 0
        left += counts[:, None, None] * np.eye(width)
        tables[block, used] = np.linalg.solve(left[used], right[used][:, :, None])[:, :, 0]
        along_NM[:, block] = ((u - tables[block, own]) * x).sum(axis=1)
