"""Answers under rules: searched and picked item by item until k are found.

Shape legend: N items, C candidates, k results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from beamwood.kept import Prepared
from beamwood.models.ops import unit
from beamwood.retrieval.item_vectors import item_vectors
from beamwood.retrieval.new_items.added import have_places
from beamwood.retrieval.rules import Rules
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.top_k import no_hits
from beamwood.types import BoolArray, Hits, ItemLists, Query, Searcher, SearchOptions

__all__ = ["arranged"]

# Candidates for each wanted item.
_CANDIDATES = 3


def arranged(
    searcher: Searcher,
    query: Query,
    k: int,
    options: SearchOptions,
    rules: Rules,
    *,
    before_search: Callable[[], None] | None = None,
) -> tuple[Hits, list[list[str | None]]]:
    """The answer of each row under the rules, and for each item the name of its promotion, or None.

    Without diversity the allowed items are taken in the order of scores, each if its categories have room; a search
    that runs short is repeated without full categories, until there are k items or nothing is left. An item of several
    categories fills each of them, so a list may end below k where another choice would not. Promoted items are spread
    evenly over the places, those of each promotion too, and count in their categories. `before_search` is called before
    each search, and may end the work by an error.
    """
    hits, seconds = no_hits(len(query), k), 0.0
    named: list[list[str | None]] = []
    for row in range(len(query)):
        rows = np.array([row])
        picking = _Picking(searcher, query.take(rows), options.take(rows), rules, before_search)
        promoted = _mixed([(each.name, picking.pick(each.count, each.filter)) for each in rules.promotions])
        rest = [(*pick, None) for pick in picking.pick(k - len(promoted), None)]
        listed = _placed(promoted, rest, k)
        for place, (item, score, _) in enumerate(listed):
            hits.items[row, place], hits.scores[row, place] = item, score
        hits.scored[row], seconds = picking.scored, seconds + picking.rank_seconds
        named.append([name for _, _, name in listed])
    return replace(hits, rank_seconds=seconds), named


Placed = tuple[int, float, str | None]


def _mixed(picked: Sequence[tuple[str, list[tuple[int, float]]]]) -> list[Placed]:
    """The items of all promotions, those of each in order and evenly among the others."""
    at = [((2 * number + 1) / len(picks), (*pick, name)) for name, picks in picked for number, pick in enumerate(picks)]
    return [each for _, each in sorted(at, key=itemgetter(0))]


def _placed(promoted: Sequence[Placed], rest: Sequence[Placed], k: int) -> list[Placed]:
    """The promoted items spread over k places, the others in order between them."""
    places = {(number * k + k // 2) // len(promoted): each for number, each in enumerate(promoted)}
    others, listed = iter(rest), list[Placed]()
    for place in range(k):
        following = places.pop(place, None) or next(others, None)
        if following is not None:
            listed.append(following)
    return listed


class _Picking:
    """One row's answer under construction."""

    def __init__(
        self,
        searcher: Searcher,
        query: Query,
        options: SearchOptions,
        rules: Rules,
        before_search: Callable[[], None] | None,
    ) -> None:
        self.searcher, self.query, self.options, self.rules = searcher, query, options, rules
        self.before_search = before_search
        self.taken: list[int] = []
        self.counts: Counter[int] = Counter()
        self.scored, self.rank_seconds = 0, 0.0
        # How many items that are not known there may be, None: any number.
        self.others_left: int | None = None

    def pick(self, wanted: int, among: Prepared | None) -> list[tuple[int, float]]:
        """At most `wanted` items with their scores, of `among` if given."""
        if among is not None or self.rules.known is None:
            return self._pick(wanted, among)
        self.others_left = self.rules.num_others
        picked = self._pick(wanted, None)
        self.others_left = None
        return picked + self._pick(wanted - len(picked), None)

    def _pick(self, wanted: int, among: Prepared | None) -> list[tuple[int, float]]:
        picked: list[tuple[int, float]] = []
        while len(picked) < wanted:
            items, scores = self._search(wanted - len(picked), among)
            before = len(picked)
            chosen = self._diverse(items, scores) if self.rules.diversity else zip(items, scores, strict=True)
            for item, score in chosen:
                if len(picked) < wanted and self._has_room(item):
                    picked.append((item, score))
                    self._take(item)
            if len(picked) == before:
                break
        return picked

    def _search(self, wanted: int, among: Prepared | None) -> tuple[list[int], list[float]]:
        """The best items that are neither taken nor of a full category."""
        if self.before_search is not None:
            self.before_search()
        options, caps = self.options, self.rules.caps
        if among is not None:
            options = _within(options, among)
        mask = options.allowed
        full = set() if caps is None else caps.full(self.counts)
        if caps is not None and full:
            mask = ~caps.column.having(full) if mask is None else mask & ~caps.column.having(full)
        if self.others_left == 0 and self.rules.known is not None:
            mask = self.rules.known.mask if mask is None else mask & self.rules.known.mask
        excluded = options.excluded
        if self.taken:
            own = ItemLists.from_lists([self.taken])
            excluded = own.distinct() if excluded is None else excluded.union(own)
        options = replace(options, excluded=excluded, allowed=mask)
        count = min(_CANDIDATES * wanted, self.searcher.num_items)
        hits = self.searcher.search(self.query, count, options)
        self.scored, self.rank_seconds = self.scored + int(hits.scored[0]), self.rank_seconds + hits.rank_seconds
        found = hits.items[0] >= 0
        return hits.items[0][found].tolist(), hits.scores[0][found].astype(float).tolist()

    def _has_room(self, item: int) -> bool:
        caps = self.rules.caps
        if self.others_left == 0 and not self._is_known(item):
            return False
        return caps is None or all(map(partial(caps.has_room, self.counts), caps.column.of_item(item)))

    def _is_known(self, item: int) -> bool:
        return self.rules.known is None or bool(self.rules.known.mask[item])

    def _take(self, item: int) -> None:
        self.taken.append(item)
        if self.others_left is not None and not self._is_known(item):
            self.others_left -= 1
        if self.rules.caps is not None:
            self.counts.update(self.rules.caps.column.of_item(item))

    def _diverse(self, items: list[int], scores: list[float]) -> Iterator[tuple[int, float]]:
        """The items by maximal marginal relevance: relevance in 0..1 minus similarity to taken items.

        Each is yielded once all before it were taken or skipped. New items without a place come last. Source: Carbonell
        and Goldstein, 1998.
        """
        if not items:
            return
        weight, left = self.rules.diversity, have_places(self.searcher, np.array(items))
        last, relevance = np.flatnonzero(~left).tolist(), self._relevance(np.array(scores), left)
        own = unit(item_vectors(self.searcher, np.array(items)))
        likeness = self._max_cosine(own)
        while left.any():
            best = int(np.argmax(np.where(left, (1 - weight) * relevance - weight * likeness, -np.inf)))
            left[best], before = False, len(self.taken)
            yield items[best], scores[best]
            if len(self.taken) > before:
                likeness = own @ own[best] if before == 0 else np.maximum(likeness, own @ own[best])
        yield from ((items[at], scores[at]) for at in last)

    def _relevance(self, scores_C: NDArray[np.float64], placed_C: BoolArray) -> NDArray[np.float64]:
        """float64[C], the scores, best first, as 0..1 between the extremes of those that measure something.

        Those of a blend beyond its own candidates only keep an order, and are 0 here.
        """
        judged = self.searcher.num_candidates if isinstance(self.searcher, Blend) else None
        own = scores_C[:judged][placed_C[:judged]]
        lowest, spread = own.min(initial=np.inf), np.ptp(own) if len(own) else 0.0
        scaled = (scores_C - lowest) / spread if spread > 0 else (scores_C >= lowest).astype(np.float64)
        clipped: NDArray[np.float64] = np.clip(scaled, 0, 1)
        return clipped

    def _max_cosine(self, own: NDArray[np.float32]) -> NDArray[np.float32]:
        """The largest cosine of each with the taken items; 0 without any."""
        if not self.taken:
            return np.zeros(len(own), np.float32)
        taken = unit(item_vectors(self.searcher, np.array(self.taken)))
        nearest_one: NDArray[np.float32] = (own @ taken.T).max(axis=1)
        return nearest_one


def _within(options: SearchOptions, among: Prepared) -> SearchOptions:
    """The options with what both they and `among` allow; where that is `among`, with its derived arrays."""
    if options.allowed is not None:
        both = options.allowed & among.mask
        among = among if np.array_equal(both, among.mask) else Prepared(both)
    return replace(options, allowed=among.mask, prepared=among)
