"""Search by a mixture of logits: the best items of each pair of components, reordered by the exact mixture; no torch.

Shape legend: B rows, N items, M items a row, D width, Q and X components of a query and of an item, C their width, P =
Q X pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import slices
from beamwood.errors import InputError
from beamwood.kernels.arrays import sound
from beamwood.models import mol
from beamwood.models.parameters import check_declared
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.index import INDEXES, ExactIndex, Index, IndexInputs, IndexSettings, restore_index
from beamwood.retrieval.products import is_catalogue
from beamwood.retrieval.search_checks import check_items, check_search
from beamwood.retrieval.searchers.encoded import EncodedSearcher, StoredEncoded, restored_encoder
from beamwood.retrieval.stored import MOST, StoredPart, exported_part, part_of, prefixed
from beamwood.retrieval.top_k import join_hits, sort_candidates, top_k
from beamwood.types import FloatArray, Hits, IndexArray, Query, SearchOptions

__all__ = ["MixtureSearcher"]

Array = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
# Activations of the gates held at a time (16 MiB).
_BLOCK_CELLS = 2**22


class _Stored(StoredEncoded):
    mixture: dict[str, int]
    temperature: float = Field(gt=0)
    num_candidates: int | None = Field(ge=1, le=MOST)
    indexes: list[StoredPart]


class MixtureSearcher(EncodedSearcher):
    """The k items of the largest mixture among the `num_candidates` best of each pair of components.

    With None, or N or more, every item is scored, exactly. Each component of the items has its own index. `weights`:
    the parameters of `models.mol` by name. Source: "Retrieval with Learned Similarities", algorithm 2.
    """

    kind: ClassVar[str] = "mixture"

    def __init__(
        self,
        encoder: PlainEncoder,
        weights: Mapping[str, NDArray[Any]],
        sizes: mol.Sizes,
        *,
        temperature: float,
        num_candidates: int | None,
        indexes: list[Index] | None = None,
    ) -> None:
        self.encoder, self.sizes, self.temperature = encoder, sizes, temperature
        self.num_candidates = num_candidates
        check_declared(weights, mol.parameters(encoder.width, sizes))
        self.weights = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
        parts_NXC, self._gate_NP = mol.item_parts(self.weights, encoder.vectors, sizes)
        # Component-major, as each component has its own index.
        self._parts_XNC = np.ascontiguousarray(parts_NXC.transpose(1, 0, 2))
        self.indexes = [ExactIndex(each) for each in self._parts_XNC] if indexes is None else indexes

    def indexed(
        self, index: type[Index], settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> MixtureSearcher:
        """The same with an index for each component of the items, each searched with all components of a query."""
        queries, seconds = inputs.queries, inputs.seconds
        if queries is not None:
            inputs = replace(inputs, queries=lambda: self._components(queries()))
        if seconds is not None:
            inputs = replace(inputs, seconds=seconds / self.sizes.item_components)
        return MixtureSearcher(
            self.encoder,
            self.weights,
            self.sizes,
            temperature=self.temperature,
            num_candidates=self.num_candidates,
            indexes=[index(each, settings, inputs) for each in self._parts_XNC],
        )

    def _components(self, vectors_BD: FloatArray) -> Array:
        """float32[B Q, C], the components of the queries' vectors, concatenated."""
        parts_BQC: Array = mol.query_parts(self.weights, np.asarray(vectors_BD, np.float32), self.sizes)[0]
        return parts_BQC.reshape(-1, parts_BQC.shape[-1])

    @property
    def vectors(self) -> Array:
        """float32[N, D], the item vectors from which the components are computed."""
        return self.encoder.vectors

    def _encoded(self, query: Query) -> tuple[Array, Array]:
        """The components [B, Q, C] of each row, and the query's inputs to the gates [B, P]."""
        parts: tuple[Array, Array] = mol.query_parts(self.weights, self.encode(query), self.sizes)
        return parts

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        encoded, found = self._encoded(query), []
        wanted = self.num_items if self.num_candidates is None else max(self.num_candidates, k)
        if wanted >= self.num_items:
            for rows in slices(len(query), self._rows_at_a_time(self.num_items)):
                scores_BN = sound(self._of_all(*_rows(encoded, rows)))
                some = options.take(np.arange(rows.start, rows.stop))
                found.append(top_k(scores_BN, k, excluded=some.excluded, allowed=options.allowed))
            return join_hits(found, k)
        for rows in slices(len(query), self._rows_at_a_time(wanted * self.sizes.pairs)):
            some = options.take(np.arange(rows.start, rows.stop))
            found.append(self._among_best(*_rows(encoded, rows), k, wanted, some))
        return join_hits(found, k)

    def _among_best(self, parts_BQC: Array, gate_BP: Array, k: int, wanted: int, options: SearchOptions) -> Hits:
        """The best by the mixture among the `wanted` best of each pair of components."""
        hits = [
            index.search(np.ascontiguousarray(parts_BQC[:, place]), wanted, options)
            for index in self.indexes
            for place in range(parts_BQC.shape[1])
        ]
        items_BM = np.sort(np.concatenate([each.items for each in hits], axis=1), axis=1)
        # Without repeats.
        items_BM[:, 1:][items_BM[:, 1:] == items_BM[:, :-1]] = -1
        scores_BM = sound(self._of(parts_BQC, gate_BP, np.maximum(items_BM, 0)))
        best = sort_candidates(items_BM, np.where(items_BM < 0, -np.inf, scores_BM), k)
        return Hits(best.items, best.scores, sum((each.scored for each in hits), best.scored))

    def score(self, query: Query, items_BM: IndexArray) -> Array:
        """float32[B, M], the mixture of each given item; -inf where the item index is -1."""
        items_BM = np.asarray(items_BM)
        check_items(items_BM, len(query), self.num_items)
        encoded, all_of_them = self._encoded(query), is_catalogue(items_BM, self.num_items)
        scores = np.empty(items_BM.shape, np.float32)
        for rows in slices(len(query), self._rows_at_a_time(items_BM.shape[1])):
            parts_BQC, gate_BP = _rows(encoded, rows)
            if all_of_them:
                scores[rows] = self._of_all(parts_BQC, gate_BP)
            else:
                scores[rows] = self._of(parts_BQC, gate_BP, np.maximum(items_BM[rows], 0))
        scores[items_BM < 0] = -np.inf
        return scores

    def _of_all(self, parts_BQC: Array, gate_BP: Array) -> Array:
        """float32[B, N], the mixture of all items."""
        products_BNP = mol.component_products(parts_BQC, self._parts_XNC.transpose(1, 0, 2))
        scores: Array = mol.mixture_scores(self.weights, products_BNP, gate_BP, self._gate_NP, self.temperature)[0]
        return scores

    def _of(self, parts_BQC: Array, gate_BP: Array, items_BM: IndexArray) -> Array:
        """float32[B, M], the mixture of the given items."""
        own = self._parts_XNC[:, items_BM].transpose(1, 2, 0, 3)
        products_BMP = mol.component_products(parts_BQC, own)
        scores: Array = mol.mixture_scores(
            self.weights, products_BMP, gate_BP, self._gate_NP[items_BM], self.temperature
        )[0]
        return scores

    def _rows_at_a_time(self, num_items: int) -> int:
        held = max(self.sizes.gate_hidden, self.sizes.pairs, self.sizes.item_components * self.sizes.component_width)
        return _BLOCK_CELLS // max(1, num_items * held)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        config, arrays = self.export_encoder()
        stored: list[dict[str, Any]] = []
        arrays |= prefixed("mixture", self.weights)
        for number, index in enumerate(self.indexes):
            part, own = exported_part(index)
            stored.append(part)
            arrays |= prefixed(f"index.{number}", own)
        config |= {"mixture": self.sizes.model_dump(), "temperature": self.temperature, "indexes": stored}
        return config | {"num_candidates": self.num_candidates}, arrays

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, *, threads: int = 1) -> Self:  # noqa: ARG003
        stored = _Stored.model_validate(config)
        sizes = mol.Sizes.model_validate(stored.mixture)
        made = cls(
            restored_encoder(stored, arrays),
            part_of(arrays, "mixture"),
            sizes,
            temperature=stored.temperature,
            num_candidates=stored.num_candidates,
        )
        if len(stored.indexes) != sizes.item_components:
            raise InputError(f"there are {len(stored.indexes)} indexes of {sizes.item_components} components")
        made.indexes = [
            restore_index(part, vectors, part_of(arrays, f"index.{number}"), INDEXES)
            for number, (part, vectors) in enumerate(zip(stored.indexes, made._parts_XNC, strict=True))
        ]
        return made


def _rows(encoded: tuple[Array, Array], rows: slice) -> tuple[Array, Array]:
    return encoded[0][rows], encoded[1][rows]
