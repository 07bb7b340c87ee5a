"""A market with planted tastes whose conditional probabilities are known exactly.

Each user is a hidden Markov chain over S tastes: at every step the taste stays or drifts, then emits an item. Items
belong to categories, tastes prefer categories and single items, and popularity is skewed. So the probability of every
item given an observed history is a forward filter away, and the best possible retriever is computable.

Shape legend: S tastes, N items, B rows, H steps ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from beamwood.errors import InputError
from beamwood.types import FloatArray, Hits, IndexArray, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = ["BayesSearcher", "Market", "MarketConfig", "make_market"]


class MarketConfig(BaseModel):
    """Size and character of a market; probabilities of staying near 1 make tastes slow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_users: int = Field(3000, ge=2)
    num_items: int = Field(1000, ge=2)
    num_groups: int = Field(6, ge=1, description="groups of categories; a taste that drifts mostly stays in its group")
    categories_per_group: int = Field(5, ge=1)
    num_tastes: int = Field(30, ge=1)
    min_events: int = Field(30, ge=2)
    max_events: int = Field(120, ge=2)
    stay: float = Field(0.95, gt=0, lt=1, description="probability that the taste is the same at the next step")
    popularity_exponent: float = Field(0.8, ge=0, description="Zipf exponent of popularity within a category")
    category_focus: float = Field(3.0, ge=0, description="standard deviation of a taste's log preference of categories")
    item_focus: float = Field(1.0, ge=0, description="standard deviation of a taste's log preference of single items")


@dataclass(frozen=True)
class Market:
    """`start` [S], `drift` [S, S] rows summing to 1, `emission` [S, N] rows summing to 1, all float64.

    `log` has the columns user_id, item_id, timestamp; `item_frame` item_id and category. Item ids are 0..N-1, in an
    order that says nothing.
    """

    config: MarketConfig
    start: FloatArray
    drift: FloatArray
    emission: FloatArray
    log: pl.DataFrame
    item_frame: pl.DataFrame

    def beliefs(self, histories: ItemLists) -> FloatArray:
        """[B, S]: the exact distribution of the taste at the next step, given each observed history."""
        belief = np.tile(self.start, (len(histories), 1))
        lengths = histories.lengths
        for step in range(int(lengths.max()) if len(lengths) else 0):
            active = np.flatnonzero(lengths > step)
            seen = histories.items[histories.indptr[active] + step]
            weighted = belief[active] * self.emission[:, seen].T
            belief[active] = weighted / weighted.sum(axis=1, keepdims=True) @ self.drift
        return belief

    def next_probabilities(self, histories: ItemLists) -> FloatArray:
        """[B, N]: P(next item | history), exact."""
        return self.beliefs(histories) @ self.emission

    def appearance_probabilities(self, histories: ItemLists, horizons: IndexArray) -> FloatArray:
        """[B, N]: P(item is among the next `horizons[b]` items | history), exact.

        An item stays away for h steps with probability `belief . (diag(1 - emission_i) drift)^h 1`, a recursion that
        all users share.
        """
        if len(horizons) != len(histories) or (len(horizons) and np.min(horizons) < 1):
            raise InputError("horizons must be one number of steps, 1 or more, for each history")
        beliefs = self.beliefs(histories)
        result = np.empty((len(histories), self.emission.shape[1]))
        away = np.ones_like(self.emission)
        for step in range(1, int(np.max(horizons, initial=0)) + 1):
            away = (1 - self.emission) * (away if step == 1 else self.drift @ away)
            rows = np.flatnonzero(np.asarray(horizons) == step)
            result[rows] = 1 - beliefs[rows] @ away
        return result


def make_market(config: MarketConfig | None = None, *, seed: int = 0) -> Market:
    """Draw a market and its log. Equal configuration and seed give an equal market.

    Errors: fewer items than categories, `max_events` below `min_events`.
    """
    config = config or MarketConfig()
    if config.max_events < config.min_events:
        raise InputError(f"max_events={config.max_events} is below min_events={config.min_events}; raise it")
    num_categories = config.num_groups * config.categories_per_group
    if config.num_items < num_categories:
        raise InputError(f"num_items={config.num_items} is below the {num_categories} categories; raise it")
    rng = np.random.default_rng(seed)
    category = rng.permutation(np.arange(config.num_items) % num_categories)
    emission = _emission(config, category, rng)
    drift = _drift(config, rng)
    start = np.full(config.num_tastes, 1 / config.num_tastes)
    users, items, steps = _simulate(config, start, drift, emission, rng)
    log = pl.DataFrame({"user_id": users, "item_id": items, "timestamp": steps})
    names = [f"group {c // config.categories_per_group}, category {c}" for c in category.tolist()]
    item_frame = pl.DataFrame({"item_id": np.arange(config.num_items), "category": names})
    return Market(config, start, drift, emission, log, item_frame)


def _emission(config: MarketConfig, category: IndexArray, rng: np.random.Generator) -> FloatArray:
    """Popularity within the category, times the taste's preference of the category and of the item."""
    num_categories = int(category.max()) + 1
    rank = np.empty(config.num_items)
    for number in range(num_categories):
        members = np.flatnonzero(category == number)
        rank[members] = rng.permutation(len(members)) + 1
    logits = -config.popularity_exponent * np.log(rank)[None, :]
    group_of_taste = np.arange(config.num_tastes) % config.num_groups
    near = (np.arange(num_categories) // config.categories_per_group)[None, :] == group_of_taste[:, None]
    liking = rng.normal(0, config.category_focus, (config.num_tastes, num_categories)) + 2 * near
    logits = logits + liking[:, category] + rng.normal(0, config.item_focus, (config.num_tastes, config.num_items))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _drift(config: MarketConfig, rng: np.random.Generator) -> FloatArray:
    """Stay, or move to another taste, three times likelier within the group."""
    group = np.arange(config.num_tastes) % config.num_groups
    move = rng.gamma(0.5, size=(config.num_tastes, config.num_tastes)) * (1 + 2 * (group[:, None] == group[None, :]))
    np.fill_diagonal(move, 0)
    totals = move.sum(axis=1, keepdims=True)
    move = np.divide(move, totals, out=np.zeros_like(move), where=totals > 0)
    return np.asarray(np.eye(len(move)) * (1 - (1 - config.stay) * (totals > 0)) + (1 - config.stay) * move)


def _simulate(
    config: MarketConfig, start: FloatArray, drift: FloatArray, emission: FloatArray, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Users, items and steps of all events, by user and then by step."""
    lengths = rng.integers(config.min_events, config.max_events + 1, config.num_users)
    taste = _draw(np.cumsum(start)[None], np.zeros(config.num_users, np.int64), rng)
    drift_sums, emission_sums = np.cumsum(drift, axis=1), np.cumsum(emission, axis=1)
    items = np.full((config.num_users, config.max_events), -1, np.int64)
    for step in range(config.max_events):
        items[:, step] = _draw(emission_sums, taste, rng)
        taste = _draw(drift_sums, taste, rng)
    users, steps = np.nonzero(np.arange(config.max_events)[None, :] < lengths[:, None])
    return users, items[users, steps], steps


def _draw(sums: FloatArray, rows: IndexArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """One draw for each entry of `rows`, from the distribution with the cumulative sums of that row."""
    uniform = rng.random(len(rows))
    result = np.empty(len(rows), np.int64)
    for row in np.unique(rows):
        chosen = rows == row
        result[chosen] = np.searchsorted(sums[row], uniform[chosen] * sums[row, -1], side="right")
    return np.asarray(np.minimum(result, sums.shape[1] - 1), dtype=np.int64)


class BayesSearcher:
    """The best possible retriever of a market: ranks items by P(item is in the user's future | history).

    The future is taken to be as long as the history, as it is when a user is cut in half. No retriever that sees only
    the history finds more labels among k in expectation.
    """

    kind: ClassVar[str] = "bayes"
    needs: ClassVar[QueryNeeds] = QueryNeeds()

    def __init__(self, market: Market) -> None:
        self.market = market

    @property
    def num_items(self) -> int:
        return int(self.market.emission.shape[1])

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k likeliest items of each row, by brute force; see `types.Searcher`."""
        scores = self._scores(query.histories)
        if options.allowed is not None:
            scores[:, ~options.allowed] = -np.inf
        if options.excluded is not None:
            scores[options.excluded.rows, options.excluded.items] = -np.inf
        items = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        best = np.take_along_axis(scores, items, axis=1).astype(np.float32)
        items = np.where(np.isfinite(best), items, np.int32(-1))
        padding = ((0, 0), (0, k - items.shape[1]))
        return Hits(
            np.pad(items, padding, constant_values=-1),
            np.pad(best, padding, constant_values=-np.inf),
            np.full(len(query), self.num_items, np.int64),
        )

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the probability of each given item; -inf where the item index is -1."""
        picked = np.take_along_axis(self._scores(query.histories), np.maximum(items_BM, 0), axis=1)
        return np.where(items_BM >= 0, picked, -np.inf).astype(np.float32)

    def _scores(self, histories: ItemLists) -> FloatArray:
        return self.market.appearance_probabilities(histories, np.maximum(histories.lengths, 1))
