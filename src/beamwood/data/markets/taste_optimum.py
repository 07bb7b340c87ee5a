"""The best possible retriever of a market of tastes: the exact probability of every item as the next one.

Shape legend: B rows, N items, S tastes, C contexts, K tastes of a context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks
from beamwood.data.markets.tastes import TasteMarket
from beamwood.errors import InputError
from beamwood.types import FloatArray, Hits, IndexArray, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = ["TasteOptimum", "next_probabilities"]

# Rows whose probabilities are held at a time, by their number of values (64 MiB).
_VALUES = 2**23


def next_probabilities(
    market: TasteMarket, histories: ItemLists, contexts: NDArray[np.int64] | None = None
) -> FloatArray:
    """float64[B, N]: P(next item | history), exact; rows sum to 1.

    `histories` are whole, from a user's first event on, and not empty. `contexts` int64[B], that of the next event;
    None: it is not known. Errors: an empty history.
    """
    if (histories.lengths == 0).any():
        raise InputError("a history is empty; give each at least one event")
    return np.stack(
        [
            _row(market, histories[row], None if contexts is None else int(contexts[row]))
            for row in range(len(histories))
        ]
    )


def _row(market: TasteMarket, items: NDArray[np.int32], context: int | None) -> FloatArray:
    config, last = market.config, int(items[-1])
    tastes = _seen_tastes(market, items)
    taste_S = _taste_probabilities(market, np.unique(tastes[tastes >= 0]), _contexts(market, tastes, context))
    partners = market.partners_NM[last]
    own = market.taste_of[partners]
    left_S = np.ones(config.num_tastes)
    np.subtract.at(left_S, own, market.weights[market.rank_of[partners]])
    share_S = np.where(taste_S > 0, taste_S / left_S, 0.0)
    row: FloatArray = (1 - config.pair_share) * share_S[market.taste_of] * market.weights[market.rank_of]
    row[partners] = config.pair_share * np.asarray(config.partners)
    return row


def _seen_tastes(market: TasteMarket, items: NDArray[np.int32]) -> NDArray[np.int64]:
    """int64 of each event its taste, -1 where it is a partner of the one before."""
    tastes = market.taste_of[items].copy()
    pairs = (market.partners_NM[items[:-1]] == items[1:, None]).any(axis=1)
    tastes[1:][pairs] = -1
    return tastes


def _contexts(market: TasteMarket, tastes: NDArray[np.int64], context: int | None) -> FloatArray:
    """float64[C], P(context of the next event)."""
    config = market.config
    if context is not None:
        certain: FloatArray = np.eye(config.num_contexts)[context]
        return certain
    # The first event is always by taste.
    last = int(np.flatnonzero(tastes >= 0)[-1])
    stays = config.stay ** (len(tastes) - last)
    known = np.full(config.num_contexts, (1 - stays) / config.num_contexts)
    known[tastes[last] % config.num_contexts] += stays
    return known


def _taste_probabilities(market: TasteMarket, seen: NDArray[np.int64], context_C: FloatArray) -> FloatArray:
    """float64[S], P(taste of the next event, if it is by taste)."""
    config = market.config
    contexts, wanted, of_context = (
        config.num_contexts,
        config.tastes_per_context,
        config.num_tastes // config.num_contexts,
    )
    known_C = np.bincount(seen % contexts, minlength=contexts)
    unseen_C = np.divide(
        (wanted - known_C) / wanted, of_context - known_C, out=np.zeros(contexts), where=of_context > known_C
    )
    taste_S: FloatArray = (context_C * unseen_C)[np.arange(config.num_tastes) % contexts]
    taste_S[seen] = context_C[seen % contexts] / wanted
    return taste_S


@dataclass(frozen=True)
class _Context:
    """The context column, unencoded."""

    name: str = "context"
    key: str = "context"

    def encode(self, values: Any | None, num_rows: int) -> NDArray[Any]:
        """int64[num_rows]. Errors: a log that was read without the column."""
        if values is None:
            raise InputError("the optimum that knows contexts needs the column 'context'; read the log with it")
        column: NDArray[Any] = values.to_numpy().astype(np.int64)
        assert len(column) == num_rows
        return column

    def unseen(self, text: str) -> None:
        """The optimum knows every context."""
        del text


class TasteOptimum:
    """Ranks items by P(next item | history), with `knows_context` also given the context of the next event.

    No retriever that sees the same finds the next item more often.
    """

    kind: ClassVar[str] = "taste-optimum"

    def __init__(self, market: TasteMarket, *, knows_context: bool = False) -> None:
        self.market, self.knows_context = market, knows_context

    @property
    def num_items(self) -> int:
        return self.market.config.num_items

    @property
    def needs(self) -> QueryNeeds:
        """The context column, if the context is known."""
        return QueryNeeds(context=(_Context(),)) if self.knows_context else QueryNeeds()

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k likeliest items of each row, by brute force; see `types.Searcher`."""
        items = np.full((len(query), k), -1, np.int32)
        scores = np.full((len(query), k), -np.inf, np.float32)
        for rows in blocks(len(query), _VALUES // self.num_items):
            found = self._probabilities(query.take(rows))
            for place, row in enumerate(rows):
                values = found[place]
                if options.allowed is not None:
                    values[~options.allowed] = -np.inf
                if options.excluded is not None:
                    values[options.excluded[int(row)]] = -np.inf
                best = _best(values, k)
                items[row, : len(best)], scores[row, : len(best)] = best, values[best]
        return Hits(items, scores, np.full(len(query), self.num_items, np.int64))

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the probability of each given item; -inf where the item index is -1."""
        picked = np.take_along_axis(self._probabilities(query), np.maximum(items_BM, 0), axis=1)
        return np.where(items_BM >= 0, picked, -np.inf).astype(np.float32)

    def _probabilities(self, query: Query) -> FloatArray:
        contexts = None if query.context is None else query.context["context"]
        return next_probabilities(self.market, query.histories, contexts if self.knows_context else None)


def _best(values: FloatArray, k: int) -> IndexArray:
    """The k largest among the allowed items, ties by lower item."""
    least = np.partition(values, len(values) - min(k, len(values)))[len(values) - min(k, len(values))]
    near = np.flatnonzero(values >= least) if np.isfinite(least) else np.flatnonzero(np.isfinite(values))
    return near[np.argsort(-values[near], kind="stable")][:k]
