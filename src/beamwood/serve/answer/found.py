"""From the hits of a search to the items of an answer, with their sources.

Shape legend: N items, k results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from beamwood.retrieval.arrange import arranged
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.found import found_of
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.serve.answer.ids import told_ids
from beamwood.serve.answer.request_form import Asked
from beamwood.serve.answer.shares import with_share_of_new
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Item, Recommend
from beamwood.serve.settings import Limits
from beamwood.types import Hits, ItemLists, Query, Searcher, SearchOptions

__all__ = ["Found", "FoundItems", "answer_items", "found_by_model", "found_by_search", "limits_new", "sources_of"]


@dataclass(frozen=True, slots=True)
class FoundItems:
    """Items by index with scores and sources, as many as were requested; pages cut them."""

    items: list[int]
    scores: list[float]
    sources: list[str]
    promotions: list[str | None]
    scored: int = 0

    def followed_by(self, more: FoundItems) -> FoundItems:
        """These, then more."""
        sources, promotions = self.sources + more.sources, self.promotions + more.promotions
        return FoundItems(self.items + more.items, self.scores + more.scores, sources, promotions, self.scored)

    def among(self, filters: Filters) -> FoundItems:
        """The items that may be shown."""
        rows = zip(self.items, self.scores, self.sources, self.promotions, strict=True)
        shown = filters.may_show(np.array(self.items, np.int64))
        kept = [row for row, there in zip(rows, shown.tolist(), strict=True) if there]
        items, scores, sources, promotions = ([row[part] for row in kept] for part in range(4))
        return FoundItems(items, scores, sources, promotions, self.scored)  # type: ignore[arg-type]


@dataclass(slots=True, eq=False)
class Found:
    """What was found, by which source; `hits`: the searcher's own, None without a search."""

    hits: Hits | None
    items: FoundItems
    source: str = "model"


def limits_new(snapshot: Snapshot, limits: Limits) -> bool:
    """Whether items added after the fit may have a share of an answer only."""
    return limits.new_item_share < 1 and snapshot.num_items > snapshot.known


def found_by_search(
    snapshot: Snapshot, body: Recommend, asked: Asked, limits: Limits, in_time: Callable[[], None]
) -> Found:
    """What the searcher finds, after rules and the share of new items; nothing for a dry run.

    Errors: those of the search, and of `in_time`, which is called between two searches.
    """
    if body.dry_run:
        return Found(None, FoundItems([], [], [], []))
    query, k, options, rules = asked.query, asked.k, asked.options, asked.rules
    share = limits.new_item_share
    if rules is None:
        hits = snapshot.searcher.search(query, k, options)
        if limits_new(snapshot, limits):
            hits = with_share_of_new(snapshot, query, hits, k, options, share)
        return found_by_model(snapshot, asked, hits)
    if limits_new(snapshot, limits):
        rules = replace(rules, known=snapshot.fitted_alone, num_others=math.ceil(share * k))
    hits, promotions = arranged(snapshot.searcher, query, k, options, rules, before_search=in_time)
    return found_by_model(snapshot, asked, hits, promotions[0] if promotions else [])


def found_by_model(snapshot: Snapshot, asked: Asked, hits: Hits, named: Sequence[str | None] = ()) -> Found:
    """What the hits of a search are; `named`: the promotion of each, none without promotions."""
    query, k, options = asked.query, asked.k, asked.options
    there, scores = found_of(hits)
    items = there.tolist()
    source, own = _source(snapshot, query, hits, len(items))
    sources = _sources(snapshot, items, own, named)
    found = FoundItems(items, scores, sources, list(named) or [None] * len(items), int(hits.scored[0]))
    if len(items) < k and asked.rules is None and source != "popular" and snapshot.popular is not None:
        more = _filled(snapshot.popular, query, k, options, there)
        if more is not None:
            return Found(hits, found.followed_by(more), "mixed" if items else "popular")
    return Found(hits, found, source)


def _source(snapshot: Snapshot, query: Query, hits: Hits, count: int) -> tuple[str, list[str]]:
    """The source of the answer, and of each of `count` items found: the model, or the counts that it falls back to."""
    own = _by_counts(snapshot, hits)
    if own is not None and "popular" in own:
        return "mixed" if "model" in own else "popular", own
    source = "popular" if _is_popular(snapshot, query) else "model"
    return source, [source] * count


def sources_of(snapshot: Snapshot, items: NDArray[np.int32], scores: NDArray[np.float32]) -> list[str]:
    """The source of each item that the model has scored for a history: the model, its counts, or a later addition."""
    own = _by_counts(snapshot, Hits(items[None], scores[None], np.zeros(1, np.int64)))
    return _sources(snapshot, items.tolist(), ["model"] * len(items) if own is None else own, ())


def _by_counts(snapshot: Snapshot, hits: Hits) -> list[str] | None:
    """The source of each item found by a counting method, which falls back to counts; None for another one."""
    if not isinstance(snapshot.model_alone, NeighbourSearcher):
        return None
    filled = snapshot.model_alone.by_popularity(hits)[0][hits.items[0] >= 0]
    return ["popular" if each else "model" for each in filled.tolist()]


def _sources(snapshot: Snapshot, items: list[int], sources: list[str], named: Sequence[str | None]) -> list[str]:
    """The source of each item: its own, unless it was added after the fit or by a `named` promotion."""
    if snapshot.num_items > snapshot.known:
        sources = ["new_item" if item >= snapshot.known else own for item, own in zip(items, sources, strict=True)]
    return (
        [each if name is None else "promoted" for each, name in zip(sources, named, strict=True)] if named else sources
    )


def _filled(
    popular: Searcher, query: Query, k: int, options: SearchOptions, found: NDArray[np.int32]
) -> FoundItems | None:
    """The most popular of the allowed items that the model did not find, up to k in total; None where none are left."""
    own = ItemLists.from_lists([found]).distinct()
    excluded = own if options.excluded is None else options.excluded.union(own)
    hits = popular.search(query, k - len(found), SearchOptions(excluded, options.allowed, prepared=options.prepared))
    there = hits.items[0] >= 0
    items = hits.items[0][there].tolist()
    count = len(items)
    return FoundItems(items, [0.0] * count, ["popular"] * count, [None] * count) if items else None


def _is_popular(snapshot: Snapshot, query: Query) -> bool:
    """Whether the fallback answers, as the model has no answer for such a query."""
    if isinstance(snapshot.model_alone, PopularitySearcher):
        return True
    searcher = snapshot.searcher
    return (
        isinstance(searcher, Blend) and searcher.fallback is not None and not bool(searcher.parts[0].is_open(query)[0])
    )


def answer_items(snapshot: Snapshot, found: FoundItems, count: int, wanted: list[str], *, shown: int = 0) -> list[Item]:
    """The first `count` items found, with the wanted fields; `shown`: the number of items on earlier pages."""
    places = np.array(found.items[:count], np.int64)
    ids = told_ids(snapshot.names.items, places)
    rows = zip(ids, found.scores[:count], found.sources[:count], found.promotions[:count], strict=True)
    items = [
        Item(item, score, rank, source, promotion)  # type: ignore[arg-type]
        for rank, (item, score, source, promotion) in enumerate(rows, start=shown + 1)
    ]
    if wanted:
        for item, fields in zip(items, snapshot.fields.of(places, wanted), strict=True):
            item.fields = fields
    return items
