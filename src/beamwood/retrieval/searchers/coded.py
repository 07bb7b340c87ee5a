"""Search by codes: a beam over the prefixes of items' codes, scored by a decoder; without torch.

Shape legend: B rows, N items, M items a row, D width, S codes an item, K codewords of a place, T pairs of a row and a
prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import blocks
from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_floats, shape_of, sound
from beamwood.kernels.links import log_softmax
from beamwood.models import code_decoder
from beamwood.models.parameters import check_declared
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.ragged import places_in_rows
from beamwood.retrieval.search_checks import check_items, check_search
from beamwood.retrieval.searchers.encoded import EncodedSearcher, StoredEncoded, restored_encoder
from beamwood.retrieval.stored import MOST
from beamwood.retrieval.top_k import join_hits, sort_candidates
from beamwood.tree.prefixes import Prefixes
from beamwood.types import BoolArray, Hits, IndexArray, Query, SearchOptions, pairs_in

__all__ = ["CodeSearcher"]

Array = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
# Logits held at a time (16 MiB).
_BLOCK_CELLS = 2**22


class _Stored(StoredEncoded):
    beam_width: int = Field(ge=1, le=MOST)


class CodeSearcher(EncodedSearcher):
    """The k items of the largest log-probability that a beam of `beam_width` prefixes finds; exact from N on.

    Prefixes without an allowed item are skipped. `words`: the codewords [K, D] of each place, `weights`: the parameters
    of `models.code_decoder` by name. A row whose beam ends with too few items is searched exhaustively.
    """

    kind: ClassVar[str] = "codes"

    def __init__(
        self,
        encoder: PlainEncoder,
        codes_NS: IndexArray,
        words: list[NDArray[Any]],
        weights: Mapping[str, NDArray[Any]],
        *,
        beam_width: int,
    ) -> None:
        self.encoder, self.beam_width, self.prefixes = encoder, beam_width, Prefixes.of(codes_NS)
        codes, width = self.prefixes.codes, encoder.width
        if codes.shape != (encoder.num_items, len(words)):
            raise ArtefactError(f"codes have shape {codes.shape}; expected {(encoder.num_items, len(words))}")
        counts = [len(each) for each in words]
        check_floats(
            {f"words.{n}": each for n, each in enumerate(words)},
            {f"words.{n}": (c, width) for n, c in enumerate(counts)},
        )
        if (codes.max(axis=0) >= counts).any():
            raise ArtefactError(f"codes go up to {codes.max(axis=0).tolist()}, the places have {counts} words")
        check_declared(weights, code_decoder.parameters(width, counts))
        self.words = [np.ascontiguousarray(each, np.float32) for each in words]
        self.weights = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
        self._leaves = self.prefixes.leaves()

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        states_BD, parts, beam = self.encode(query), [], max(self.beam_width, k)
        alive = None if options.allowed is None else options.of_filter(self, self._alive)
        for rows in blocks(len(query), self._rows_at_a_time(min(beam, self.num_items))):
            some = options.take(rows)
            hits = self._walk(states_BD[rows], k, beam, alive, some)
            short = np.flatnonzero(hits.items[:, -1] < 0)
            if beam < self.num_items and len(short):
                whole = [
                    self._walk(states_BD[rows[row : row + 1]], k, self.num_items, alive, some.take(np.array([row])))
                    for row in short.tolist()
                ]
                again = join_hits(whole, k)
                hits.items[short], hits.scores[short] = again.items, again.scores
                hits.scored[short] += again.scored
            parts.append(hits)
        return join_hits(parts, k)

    def _alive(self, allowed: BoolArray) -> tuple[BoolArray, ...]:
        return tuple(self.prefixes.alive(place, allowed) for place in range(self.prefixes.num_places))

    def _walk(
        self, states_BD: Array, k: int, beam: int, alive: Sequence[BoolArray] | None, options: SearchOptions
    ) -> Hits:
        """The best leaves that a beam reaches."""
        prefixes, size = self.prefixes, len(states_BD)
        # Pairs of a row and a prefix, sorted by row; initially the empty prefix for each row.
        rows_T, nodes_T = np.arange(size), np.zeros(size, np.int64)
        totals_T, states_TD, scored = np.zeros(size, np.float32), states_BD, np.zeros(size, np.int64)
        for place in range(prefixes.num_places):
            shares_TK = self._log_shares(place, states_TD)
            nodes, counts = prefixes.children(place, nodes_T)
            parent = np.repeat(np.arange(len(nodes_T)), counts)
            if alive is not None:
                parent, nodes = parent[alive[place][nodes]], nodes[alive[place][nodes]]
            rows, totals = rows_T[parent], totals_T[parent] + shares_TK[parent, prefixes.words[place][nodes]]
            scored += np.bincount(rows, minlength=size)
            last = place + 1 == prefixes.num_places
            if last and options.excluded is not None:
                keep = ~pairs_in(rows, prefixes.item_of_leaf[nodes], options.excluded)
                parent, nodes, rows, totals = parent[keep], nodes[keep], rows[keep], totals[keep]
            kept = _best_of_rows(rows, totals, nodes, k if last else beam, size) if not last else np.arange(len(rows))
            rows_T, nodes_T, totals_T = rows[kept], nodes[kept], totals[kept]
            if not last:
                chosen = self.words[place][prefixes.words[place][nodes_T]]
                states_TD = code_decoder.next_states(self.weights, place, states_TD[parent[kept]], chosen)
        counts = np.bincount(rows_T, minlength=size)
        place_T = places_in_rows(counts)
        items_BM = np.full((size, max(1, int(counts.max(initial=0)))), -1, np.int32)
        scores_BM = np.full(items_BM.shape, -np.inf, np.float32)
        items_BM[rows_T, place_T], scores_BM[rows_T, place_T] = prefixes.item_of_leaf[nodes_T], totals_T
        best = sort_candidates(items_BM, scores_BM, k)
        return Hits(best.items, best.scores, scored)

    def _log_shares(self, place: int, states_TD: Array) -> Array:
        """float32[T, K], the log-probability of each codeword of a place."""
        logits_TK = code_decoder.logits(self.weights, place, states_TD, self.words[place])
        return sound(np.asarray(log_softmax(logits_TK), np.float32))

    def score(self, query: Query, items_BM: IndexArray) -> Array:
        """float32[B, M], the log-probability of each given item; -inf where the item index is -1."""
        items_BM = np.asarray(items_BM)
        check_items(items_BM, len(query), self.num_items)
        states_BD, scores = self.encode(query), np.empty(items_BM.shape, np.float32)
        for rows in blocks(len(query), self._rows_at_a_time(items_BM.shape[1])):
            scores[rows] = self._along(states_BD[rows], self._leaves[np.maximum(items_BM[rows], 0)])
        scores[items_BM < 0] = -np.inf
        return scores

    def _along(self, states_BD: Array, leaves_BM: NDArray[np.int32]) -> Array:
        """float32[B, M], the log-probabilities of given leaves; each prefix of a row is computed once."""
        prefixes, size = self.prefixes, len(states_BD)
        totals_BM = np.zeros(leaves_BM.shape, np.float32)
        pair_BM, states_TD = np.broadcast_to(np.arange(size)[:, None], leaves_BM.shape), states_BD
        for place in range(prefixes.num_places):
            nodes_BM = prefixes.nodes_of[place][leaves_BM].astype(np.int64)
            totals_BM += self._log_shares(place, states_TD)[pair_BM, prefixes.words[place][nodes_BM]]
            if place + 1 == prefixes.num_places:
                break
            count = len(prefixes.words[place])
            keys, first, where = np.unique(
                np.arange(size)[:, None] * count + nodes_BM, return_index=True, return_inverse=True
            )
            chosen = self.words[place][prefixes.words[place][keys % count]]
            states_TD = code_decoder.next_states(self.weights, place, states_TD[pair_BM.ravel()[first]], chosen)
            pair_BM = where.reshape(leaves_BM.shape)
        return totals_BM

    def _rows_at_a_time(self, held: int) -> int:
        return _BLOCK_CELLS // max(1, held * max(map(len, self.words)))

    def export(self) -> tuple[dict[str, Any], Arrays]:
        config, arrays = self.export_encoder()
        words = {f"words.{place}": each for place, each in enumerate(self.words)}
        arrays |= {"codes": self.prefixes.codes} | words | self.weights
        return config | {"beam_width": self.beam_width}, arrays

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, *, threads: int = 1) -> Self:  # noqa: ARG003
        stored = _Stored.model_validate(config)
        encoder = restored_encoder(stored, arrays)
        num_places = shape_of(arrays, "codes", 2)[1]
        if arrays["codes"].dtype != np.int32:
            raise ArtefactError(f"codes are {arrays['codes'].dtype}; expected int32")
        words = [arrays[f"words.{place}"] for place in range(num_places)]
        known = {"codes", *(f"words.{place}" for place in range(num_places))}
        weights = {n: each for n, each in arrays.items() if n not in known and not n.startswith("encoder.")}
        return cls(encoder, arrays["codes"], words, weights, beam_width=stored.beam_width)


def _best_of_rows(
    rows_T: IndexArray, totals_T: Array, nodes_T: IndexArray, count: int, num_rows: int
) -> NDArray[np.int64]:
    """The positions of each row's `count` largest, ties by the lower node; sorted by row."""
    order = np.lexsort((nodes_T, -totals_T, rows_T))
    return order[places_in_rows(np.bincount(rows_T, minlength=num_rows)) < count]
