"""Vectors as N x M codes of one byte, and a decoder that reconstructs them.

Shape legend: N vectors, M codes a vector, K codewords, D width, W columns of a block, B rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.index.kmeans import kmeans, nearest_centres
from beamwood.types import FloatArray, IndexArray

__all__ = ["Blocks", "Codes", "Decoder", "Sums", "residual_codes"]

_ROWS = 4096


class Decoder(Protocol):
    """Reconstructs vectors from codes."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """M codes, K codewords, D columns of a vector."""
        ...

    def decode(self, codes_BM: NDArray[np.uint8]) -> NDArray[np.float32]:
        """float32[B, D]."""
        ...


@dataclass(frozen=True, slots=True)
class Sums:
    """A vector is the sum of one codeword from each table, float32[M, K, D]."""

    tables_MKD: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int, int]:
        """See `Decoder`."""
        num_codes, num_words, width = self.tables_MKD.shape
        return num_codes, num_words, width

    def decode(self, codes_BM: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See `Decoder`."""
        total: NDArray[np.float32] = np.zeros((len(codes_BM), self.tables_MKD.shape[2]), np.float32)
        for table_KD, column in zip(self.tables_MKD, codes_BM.T, strict=True):
            total += table_KD[column]
        return total


@dataclass(frozen=True, slots=True)
class Blocks:
    """A vector is the concatenation of one codeword from each table, float32[M, K, W], cut to D columns."""

    tables_MKW: NDArray[np.float32]
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """See `Decoder`."""
        return self.tables_MKW.shape[0], self.tables_MKW.shape[1], self.width

    def decode(self, codes_BM: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See `Decoder`."""
        side_BMW = self.tables_MKW[np.arange(len(self.tables_MKW)), codes_BM]
        return np.ascontiguousarray(side_BMW.reshape(len(codes_BM), -1)[:, : self.width])

    def products(self, query_D: FloatArray) -> NDArray[np.float32]:
        """float32[M, K], the product of a query's columns with each codeword, whose sums are products with vectors."""
        num_blocks, _, columns = self.tables_MKW.shape
        padded = np.zeros(num_blocks * columns, np.float32)
        padded[: self.width] = query_D
        return (self.tables_MKW @ padded.reshape(num_blocks, columns, 1))[:, :, 0]


@dataclass(frozen=True, slots=True)
class Codes:
    """`codes` uint8[N, M] of N vectors, and their decoder. Errors: codes outside the decoder's tables."""

    codes: NDArray[np.uint8]
    decoder: Decoder

    def __post_init__(self) -> None:
        num_codes, num_words, _ = self.decoder.shape
        if self.codes.dtype != np.uint8 or self.codes.ndim != 2 or self.codes.shape[1] != num_codes:
            raise ArtefactError(
                f"codes are {self.codes.dtype} of shape {self.codes.shape}; expected uint8, {num_codes} each"
            )
        if self.codes.size and int(self.codes.max()) >= num_words:
            raise ArtefactError(f"a code is {int(self.codes.max())} of {num_words}")

    def __len__(self) -> int:
        return len(self.codes)

    def check_rows(self, num_items: int) -> None:
        """Raise `ArtefactError` unless there is a row of codes for each item."""
        if len(self.codes) != num_items:
            raise ArtefactError(f"there are codes of {len(self.codes)} items, expected {num_items}")

    def decoded(self, rows: IndexArray | None = None) -> NDArray[np.float32]:
        """float32[B, D], the vectors of some rows, or of all."""
        codes = self.codes if rows is None else self.codes[rows]
        parts = [self.decoder.decode(codes[rows]) for rows in slices(len(codes), _ROWS)]
        return np.concatenate(parts) if parts else np.empty((0, self.decoder.shape[2]), np.float32)


def residual_codes(
    vectors_ND: FloatArray, num_codes: int, num_words: int, rng: np.random.Generator, *, rounds: int = 20
) -> Codes:
    """Residual quantisation: each code is the nearest of K centres to the residual of the codes before it.

    Errors: `InputError` on more than 256 codewords, or none. Source: Chen et al., "Approximate Nearest Neighbor Search
    by Residual Vector Quantization".
    """
    if not 1 <= num_words <= 256 or num_codes < 1:
        raise InputError(f"{num_codes} codes of {num_words}: give 1 code or more, of 1 to 256 codewords (a byte each)")
    left = np.array(vectors_ND, np.float32)
    tables = np.zeros((num_codes, num_words, left.shape[1]), np.float32)
    codes = np.empty((len(left), num_codes), np.uint8)
    for place in range(num_codes):
        centres = kmeans(left, num_words, rng, rounds=rounds)
        nearest = nearest_centres(left, centres)[0]
        tables[place, : len(centres)], codes[:, place] = centres, nearest
        left -= centres[nearest]
    return Codes(codes, Sums(tables))
