"""A synthetic market with several tastes a user, contexts and sparse item pairs; its known optimum has no low rank.

Each event is a partner of the item before it, or an item of one of the user's tastes of the present context. The
formula, and why it is exact, stand in docs/lab/planted-market.md.

Shape legend: U users, N items, S tastes, C contexts, K tastes of a context, M partners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from beamwood.types import FloatArray, IndexArray

__all__ = ["SIZES", "TasteConfig", "TasteMarket", "make_taste_market"]


class TasteConfig(BaseModel):
    """Size and character of a market; the letters are those of the formula."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_items: int = Field(10_000, ge=4, description="N")
    num_users: int = Field(10_000, ge=2, description="U")
    min_events: int = Field(20, ge=1)
    max_events: int = Field(60, ge=1)
    items_per_taste: int = Field(50, ge=2, description="n")
    num_contexts: int = Field(4, ge=1, description="C")
    tastes_per_context: int = Field(2, ge=1, description="K: tastes of a user")
    exponent: float = Field(1.0, ge=0, description="a: exponent of the weights of a taste's items")
    partners: tuple[float, ...] = Field((0.6, 0.3, 0.1), min_length=1, description="w; as many as are named")
    pair_share: float = Field(0.3, ge=0, lt=1, description="b: probability of a partner")
    stay: float = Field(0.85, ge=0, le=1, description="q: probability that the context stays the same")

    @property
    def num_tastes(self) -> int:
        """S."""
        return self.num_items // self.items_per_taste

    @model_validator(mode="after")
    def _it_can_be_drawn(self) -> TasteConfig:
        if self.max_events < self.min_events:
            raise ValueError(f"max_events={self.max_events} is below min_events={self.min_events}; raise it")
        if self.num_items % (self.items_per_taste * self.num_contexts):
            unit = self.items_per_taste * self.num_contexts
            raise ValueError(
                f"num_items={self.num_items} is not a multiple of {unit}, the items of a taste of each context"
            )
        if self.tastes_per_context > self.num_tastes // self.num_contexts:
            known = self.num_tastes // self.num_contexts
            raise ValueError(
                f"tastes_per_context={self.tastes_per_context} is above the {known} that there are; lower it"
            )
        if len(self.partners) >= self.items_per_taste or not np.isclose(sum(self.partners), 1):
            raise ValueError("partners must be fewer than items_per_taste, and sum to 1")
        return self


SIZES: Mapping[str, TasteConfig] = MappingProxyType(
    {"small": TasteConfig(), "large": TasteConfig(num_items=1_000_000, num_users=100_000)}
)
"""Those that are measured."""


@dataclass(frozen=True)
class TasteMarket:
    """`items_SR` int64[S, n], the items of each taste by rank; `taste_of` and `rank_of` int64[N]; `weights` float64[n],
    e; `partners_NM` int64[N, M]; `tastes_UCK` int64[U, C, K], those of each user; `log` with the columns user_id,
    item_id, timestamp (a counter) and context. Item ids are 0..N-1.
    """

    config: TasteConfig
    items_SR: NDArray[np.int64]
    taste_of: NDArray[np.int64]
    rank_of: NDArray[np.int64]
    weights: FloatArray
    partners_NM: NDArray[np.int64]
    tastes_UCK: NDArray[np.int64]
    log: pl.DataFrame


def make_taste_market(config: TasteConfig | None = None, *, seed: int = 0) -> TasteMarket:
    """Draw a market and its log. Equal configuration and seed give an equal market."""
    config = config or TasteConfig()
    rng = np.random.default_rng(seed)
    size, num_tastes = config.items_per_taste, config.num_tastes
    items_SR = rng.permutation(config.num_items).reshape(num_tastes, size)
    taste_of, rank_of = np.empty(config.num_items, np.int64), np.empty(config.num_items, np.int64)
    taste_of[items_SR], rank_of[items_SR] = np.arange(num_tastes)[:, None], np.arange(size)
    weights = np.arange(1, size + 1, dtype=np.float64) ** -config.exponent
    weights /= weights.sum()
    partners_NM = _partners(config, rng)
    tastes_UCK = _tastes(config, rng)
    users, items, steps, contexts = _simulate(config, items_SR, weights, partners_NM, tastes_UCK, rng)
    log = pl.DataFrame({"user_id": users, "item_id": items, "timestamp": steps, "context": contexts})
    return TasteMarket(config, items_SR, taste_of, rank_of, weights, partners_NM, tastes_UCK, log)


def _partners(config: TasteConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[N, M], distinct in a row, and none the row's own item."""
    own = np.arange(config.num_items)[:, None]
    drawn = _distinct(config.num_items, len(config.partners), config.num_items - 1, rng)
    # Of the others: those from the own item on are one further.
    return drawn + (drawn >= own)


def _tastes(config: TasteConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[U, C, K], the tastes of each user by context: those that leave the context as their remainder."""
    contexts, of_context = config.num_contexts, config.num_tastes // config.num_contexts
    drawn = _distinct(config.num_users * contexts, config.tastes_per_context, of_context, rng)
    shaped = drawn.reshape(config.num_users, contexts, config.tastes_per_context)
    return shaped * contexts + np.arange(contexts)[None, :, None]


def _distinct(num_rows: int, count: int, below: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[num_rows, count], evenly drawn below a bound, distinct in a row, in any order."""
    drawn = rng.integers(0, below, (num_rows, count))
    while True:
        ordered = np.sort(drawn, axis=1)
        again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if len(again) == 0:
            return drawn
        drawn[again] = rng.integers(0, below, (len(again), count))


def _simulate(
    config: TasteConfig,
    items_SR: NDArray[np.int64],
    weights: FloatArray,
    partners_NM: NDArray[np.int64],
    tastes_UCK: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[IndexArray, IndexArray, IndexArray, IndexArray]:
    """Users, items, steps and contexts of all events, by user and then by step."""
    num_users, length = config.num_users, config.max_events
    lengths = rng.integers(config.min_events, length + 1, num_users)
    context = rng.integers(0, config.num_contexts, num_users)
    items, contexts = np.empty((num_users, length), np.int64), np.empty((num_users, length), np.int64)
    for step in range(length):
        if step:
            anew = rng.random(num_users) >= config.stay
            context = np.where(anew, rng.integers(0, config.num_contexts, num_users), context)
        banned = partners_NM[items[:, step - 1]] if step else np.full((num_users, 1), -1)
        items[:, step] = _by_taste(items_SR, weights, tastes_UCK, context, banned, rng)
        if step:
            pairs = np.flatnonzero(rng.random(num_users) < config.pair_share)
            place = rng.choice(len(config.partners), len(pairs), p=config.partners)
            items[pairs, step] = banned[pairs, place]
        contexts[:, step] = context
    users, steps = np.nonzero(np.arange(length)[None, :] < lengths[:, None])
    return users, items[users, steps], steps, contexts[users, steps]


def _by_taste(
    items_SR: NDArray[np.int64],
    weights: FloatArray,
    tastes_UCK: NDArray[np.int64],
    context: IndexArray,
    banned: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """int64[U], an item of one of each user's tastes of the context; a banned one is drawn again, of the same taste."""
    num_users, sums = len(tastes_UCK), np.cumsum(weights)
    which = rng.integers(0, tastes_UCK.shape[2], num_users)
    taste = tastes_UCK[np.arange(num_users), context, which]
    items, waiting = np.empty(num_users, np.int64), np.arange(num_users)
    while len(waiting):
        rank = np.minimum(np.searchsorted(sums, rng.random(len(waiting)) * sums[-1], side="right"), len(sums) - 1)
        items[waiting] = items_SR[taste[waiting], rank]
        waiting = waiting[(items[waiting, None] == banned[waiting]).any(axis=1)]
    return items
