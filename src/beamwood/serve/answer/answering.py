"""One recommendation, on a search thread: from a body to a `Request`, and from hits to an answer.

Shape legend: N items, k results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.found import found_of
from beamwood.retrieval.request import Request
from beamwood.retrieval.rules import Rules, arranged, rules_of
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.tree import LaterHits, TreeSearcher
from beamwood.retrieval.top_k import num_allowed
from beamwood.serve.answer.asking import KnownHistory, StoredHistory, check_needs, known_of
from beamwood.serve.answer.explaining import explained
from beamwood.serve.answer.filter_form import allowed_and_where, refused
from beamwood.serve.answer.kept import rejected_of
from beamwood.serve.answer.rungs import Rung, rung_at
from beamwood.serve.answer.shares import with_share_of_new
from beamwood.serve.answer.snapshot import Snapshot, indices_of
from beamwood.serve.messages import Answer, Item, Recommend, Took
from beamwood.serve.problems import Problem, check_time
from beamwood.serve.settings import Limits
from beamwood.types import Hits, ItemLists, Query, Searcher, SearchOptions

__all__ = ["FoundItems", "Recommending", "answer_items", "recommended"]


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


def recommended(
    snapshot: Snapshot,
    body: Recommend,
    kept: StoredHistory,
    limits: Limits,
    pressure: float = 0.0,
    *,
    request_id: str,
    deadline: float = math.inf,
) -> tuple[Answer, FoundItems]:
    """The answer to a body, and all items found. Errors: `Problem` on what does not fit this snapshot, and where the
    `deadline` (by `time.monotonic`) passes between two steps.
    """
    return Recommending(snapshot, body, kept, limits, request_id=request_id, deadline=deadline)(pressure)


class Recommending:
    """One recommendation: as a whole on the calling thread, or in two steps around a search that the native core makes
    on its own threads. Errors: as `recommended`.
    """

    __slots__ = ("_asked", "_later", "_seconds", "body", "deadline", "kept", "limits", "request_id", "snapshot")

    def __init__(
        self,
        snapshot: Snapshot,
        body: Recommend,
        kept: StoredHistory,
        limits: Limits,
        *,
        request_id: str,
        deadline: float,
    ) -> None:
        self.snapshot, self.body, self.kept, self.limits = snapshot, body, kept, limits
        self.request_id, self.deadline = request_id, deadline
        self._asked: _Asked | None = None
        self._later: LaterHits | None = None
        self._seconds = 0.0

    def __call__(self, pressure: float) -> tuple[Answer, FoundItems]:
        """The answer to the body, and all items found."""
        began = time.perf_counter()
        with _refusing(self.snapshot, self.body):
            asked = _asked(self.snapshot, self.body, self.kept, self.limits, pressure)
            found = _found(self.snapshot, self.body, asked, self.limits, partial(check_time, self.deadline))
            return self._answered(asked, found, time.perf_counter() - began), found.items

    def begin(self, pressure: float) -> Any:
        """The native task of the search; None where the answer needs more, and is made as a whole."""
        began = time.perf_counter()
        snapshot, body = self.snapshot, self.body
        if body.dry_run or body.explain != "none" or not isinstance(snapshot.searcher, TreeSearcher):
            return None
        with _refusing(snapshot, body):
            asked = _asked(snapshot, body, self.kept, self.limits, pressure)
            if asked.rules is not None or _limits_new(snapshot, self.limits):
                return None
            later = snapshot.searcher.later(asked.query, asked.k, asked.options)
        if later is None:
            return None
        self._asked, self._later, self._seconds = asked, later, time.perf_counter() - began
        return later.search.task

    def end(self, searched: float) -> tuple[Answer, FoundItems]:
        """The answer, once the task of `begin` ran for `searched` seconds."""
        began = time.perf_counter()
        assert self._asked is not None
        assert self._later is not None
        with _refusing(self.snapshot, self.body):
            found = _found_by_model(self.snapshot, self._asked, self._later.hits())
            seconds = self._seconds + searched + time.perf_counter() - began
            return self._answered(self._asked, found, seconds), found.items

    def _answered(self, asked: _Asked, found: _Found, searched: float) -> Answer:
        snapshot, body, known, hits = self.snapshot, self.body, asked.known, found.hits
        ranked = 0.0 if hits is None else hits.rank_seconds
        items = answer_items(snapshot, found.items, body.k, body.fields)
        whole = None
        if body.explain != "none" and hits is not None:
            full, shown = body.explain == "full", found.items.items[: body.k]
            in_time = partial(check_time, self.deadline)
            whole = explained(snapshot, asked.query, hits, asked.options, items, shown, full=full, in_time=in_time)
        length, options = snapshot.history_length, asked.options
        return Answer(
            request_id=self.request_id,
            model=snapshot.model,
            snapshot=snapshot.number,
            source=found.source,  # type: ignore[arg-type]
            history_used=len(known.history) if length is None else min(length, len(known.history)),
            history_seq=known.seq,
            stale_history=known.stale,
            unknown_user=known.unknown_user,
            beam_width=asked.rung.beam_width,
            degraded=asked.rung is not snapshot.rungs[0] and body.beam_width is None and body.effort is None,
            allowed=None if options.allowed is None else options.of_filter(num_allowed, num_allowed),
            took_ms=Took(search=round(1000 * searched, 3), rank=round(1000 * ranked, 3)),
            items=items,
            unknown_items=known.unknown_items,
            explain=whole,
        )


@contextmanager
def _refusing(snapshot: Snapshot, body: Recommend) -> Iterator[None]:
    """A context in which errors of the package become refusals of the body."""
    try:
        yield
    except ArtefactError as error:
        raise Problem("internal", str(error)) from None
    except InputError as error:
        raise refused(error, snapshot, body.filter, body.promote) from None
    except (RecursionError, OverflowError) as error:
        message = f"the filter cannot be read ({error}); nest less, and give smaller numbers"
        raise Problem("invalid_request", message, field="filter") from None


@dataclass(slots=True, eq=False)
class _Asked:
    """What a body asks of the searcher."""

    known: KnownHistory
    rung: Rung
    rules: Rules | None
    query: Query
    k: int
    options: SearchOptions


@dataclass(slots=True, eq=False)
class _Found:
    """What was found, by which source; `hits`: the searcher's own, None without a search."""

    hits: Hits | None
    items: FoundItems
    source: str = "model"


def _asked(snapshot: Snapshot, body: Recommend, kept: StoredHistory, limits: Limits, pressure: float) -> _Asked:
    known = known_of(snapshot, body, kept)
    rung = _rung(snapshot, body, pressure)
    wanted = min(max(body.k, limits.pages_k) if body.pages else body.k, snapshot.num_items)
    unwanted = rejected_of(snapshot, body, kept, known.user) if body.exclude_rejected else None
    request = _request(snapshot, body, known, unwanted, wanted, rung, limits)
    query, k, options = snapshot.names.resolve(request, snapshot.needs)
    if body.explain != "none":
        options = replace(options, explain=True)
    return _Asked(known, rung, rules_of(request, k, snapshot.names.filters), query, k, options)


def _rung(snapshot: Snapshot, body: Recommend, pressure: float) -> Rung:
    """How to search: as the body says, else narrowed by the pressure."""
    if body.beam_width is None and body.effort is None:
        return rung_at(snapshot.rungs, pressure)
    if body.beam_width is not None and body.effort is not None:
        raise Problem("invalid_request", "give beam_width or effort, not both", field="effort")
    tree = snapshot.tree
    if tree is None:
        field = "effort" if body.beam_width is None else "beam_width"
        raise Problem("invalid_request", f"this model has no tree; leave {field} out", field=field)
    if body.effort is not None:
        return Rung(tree.ways.of(body.effort).beam_width, effort=body.effort)
    assert body.beam_width is not None
    width = min(body.beam_width, snapshot.num_items)
    return Rung(width, width=width)


def _request(
    snapshot: Snapshot,
    body: Recommend,
    known: KnownHistory,
    unwanted: NDArray[np.int32] | None,
    k: int,
    rung: Rung,
    limits: Limits,
) -> Request:
    allowed, where = allowed_and_where(body.filter, snapshot, most_ids=limits.filter_ids)
    snapshot.fields.checked(body.fields)
    exclude = None if unwanted is None else snapshot.names.items.decode(unwanted)
    if body.exclude:
        places = indices_of(snapshot.names.items, body.exclude).tolist()
        given = [each for each, at in zip(body.exclude, places, strict=True) if at >= 0]
        exclude = given + (exclude or [])
    promote = [
        {"where": _condition(snapshot, each.filter, place, limits), "share": each.share, "name": each.name}
        for place, each in enumerate(body.promote)
    ]
    needs = snapshot.needs
    check_needs(needs, body)
    asked = [known.user] if needs.users and (known.user is not None or body.user is not None) else None
    context = None if body.context is None else {name: [value] for name, value in body.context.items()}
    history = ItemLists.unchecked(np.array([0, len(known.history)], np.int64), known.history)
    return Request(
        histories=history,
        k=k,
        users=asked,
        allowed=allowed,
        context=context,
        seen="remove" if body.exclude_seen else "keep",
        on_unknown="ignore",
        where=where,
        exclude=exclude,
        max_per_category=body.max_per_category,
        diversity=body.diversity,
        promote=promote,
        effort=rung.effort,
        beam_width=rung.width,
    )


def _condition(snapshot: Snapshot, given: Any, place: int, limits: Limits) -> dict[str, Any]:
    allowed, where = allowed_and_where(given, snapshot, most_ids=limits.filter_ids)
    if allowed is not None or where is None:
        message = "a promotion's filter says category, all_of, none_of or where"
        raise Problem("invalid_request", message, field=f"promote[{place}].filter")
    return where


def _limits_new(snapshot: Snapshot, limits: Limits) -> bool:
    """Whether items added after the fit may have a share of an answer only."""
    return limits.new_item_share < 1 and snapshot.num_items > snapshot.known


def _found(snapshot: Snapshot, body: Recommend, asked: _Asked, limits: Limits, in_time: Callable[[], None]) -> _Found:
    if body.dry_run:
        return _Found(None, FoundItems([], [], [], []))
    query, k, options, rules = asked.query, asked.k, asked.options, asked.rules
    share = limits.new_item_share
    if rules is None:
        hits = snapshot.searcher.search(query, k, options)
        if _limits_new(snapshot, limits):
            hits = with_share_of_new(snapshot, query, hits, k, options, share)
        return _found_by_model(snapshot, asked, hits)
    if _limits_new(snapshot, limits):
        rules = replace(rules, known=snapshot.fitted_alone, num_others=math.ceil(share * k))
    hits, promotions = arranged(snapshot.searcher, query, k, options, rules, before_search=in_time)
    return _found_by_model(snapshot, asked, hits, promotions[0] if promotions else [])


def _found_by_model(snapshot: Snapshot, asked: _Asked, hits: Hits, named: Sequence[str | None] = ()) -> _Found:
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
            return _Found(hits, found.followed_by(more), "mixed" if items else "popular")
    return _Found(hits, found, source)


def _source(snapshot: Snapshot, query: Query, hits: Hits, count: int) -> tuple[str, list[str]]:
    """The source of the answer, and of each of `count` items found: the model, or the counts that it falls back to."""
    if isinstance(snapshot.model_alone, NeighbourSearcher):
        filled = snapshot.model_alone.by_popularity(hits)[0][hits.items[0] >= 0]
        if filled.any():
            own = ["popular" if each else "model" for each in filled.tolist()]
            return "popular" if filled.all() else "mixed", own
    source = "popular" if _is_popular(snapshot, query) else "model"
    return source, [source] * count


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
    ids = snapshot.names.items.decode(places)
    rows = zip(ids, found.scores[:count], found.sources[:count], found.promotions[:count], strict=True)
    items = [
        Item(item, score, rank, source, promotion)  # type: ignore[arg-type]
        for rank, (item, score, source, promotion) in enumerate(rows, start=shown + 1)
    ]
    if wanted:
        for item, fields in zip(items, snapshot.fields.of(places, wanted), strict=True):
            item.fields = fields
    return items
