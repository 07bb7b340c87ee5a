"""One recommendation, on a search thread: from a body to a `Request`, and from hits to an answer.

Shape legend: N items, k results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.found import found_of
from beamwood.retrieval.request import Request
from beamwood.retrieval.rules import arranged, rules_of
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
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

__all__ = ["FoundItems", "answer_items", "recommended"]


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
    began = time.perf_counter()
    try:
        return _recommended(snapshot, body, kept, limits, request_id, pressure, began, partial(check_time, deadline))
    except ArtefactError as error:
        raise Problem("internal", str(error)) from None
    except InputError as error:
        raise refused(error, snapshot, body.filter, body.promote) from None
    except (RecursionError, OverflowError) as error:
        message = f"the filter cannot be read ({error}); nest less, and give smaller numbers"
        raise Problem("invalid_request", message, field="filter") from None


def _recommended(
    snapshot: Snapshot,
    body: Recommend,
    kept: StoredHistory,
    limits: Limits,
    request_id: str,
    pressure: float,
    began: float,
    in_time: Callable[[], None],
) -> tuple[Answer, FoundItems]:
    known = known_of(snapshot, body, kept)
    rung = _rung(snapshot, body, pressure)
    wanted = min(max(body.k, limits.pages_k) if body.pages else body.k, snapshot.num_items)
    unwanted = rejected_of(snapshot, body, kept, known.user) if body.exclude_rejected else None
    request = _request(snapshot, body, known, unwanted, wanted, rung, limits)
    query, k, options = snapshot.names.resolve(request, snapshot.needs)
    if body.explain != "none":
        options = replace(options, explain=True)
    if body.dry_run:
        hits, found, source = None, FoundItems([], [], [], []), "model"
    else:
        hits, found, source = _search(snapshot, request, query, k, options, limits.new_item_share, in_time)
    searched, ranked = time.perf_counter() - began, 0.0 if hits is None else hits.rank_seconds
    items = answer_items(snapshot, found, body.k, body.fields)
    whole = None
    if body.explain != "none" and hits is not None:
        full = body.explain == "full"
        whole = explained(snapshot, query, hits, options, items, found.items[: body.k], full=full, in_time=in_time)
    length = snapshot.history_length
    answer = Answer(
        request_id=request_id,
        model=snapshot.model,
        snapshot=snapshot.number,
        source=source,  # type: ignore[arg-type]
        history_used=len(known.history) if length is None else min(length, len(known.history)),
        history_seq=known.seq,
        stale_history=known.stale,
        unknown_user=known.unknown_user,
        beam_width=rung.beam_width,
        degraded=rung is not snapshot.rungs[0] and body.beam_width is None and body.effort is None,
        allowed=None if options.allowed is None else options.of_filter(num_allowed, num_allowed),
        took_ms=Took(search=round(1000 * searched, 3), rank=round(1000 * ranked, 3)),
        items=items,
        unknown_items=known.unknown_items,
        explain=whole,
    )
    return answer, found


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


def _search(
    snapshot: Snapshot,
    request: Request,
    query: Query,
    k: int,
    options: SearchOptions,
    share: float,
    in_time: Callable[[], None],
) -> tuple[Hits, FoundItems, str]:
    rules = rules_of(request, k, snapshot.names.filters)
    named: list[str | None] = []
    if rules is None:
        hits = snapshot.searcher.search(query, k, options)
        if share < 1 and snapshot.num_items > snapshot.known:
            hits = with_share_of_new(snapshot, query, hits, k, options, share)
    else:
        if share < 1 and snapshot.num_items > snapshot.known:
            rules = replace(rules, known=snapshot.fitted_alone, num_others=math.ceil(share * k))
        hits, promotions = arranged(snapshot.searcher, query, k, options, rules, before_search=in_time)
        named = promotions[0] if promotions else []
    there, scores = found_of(hits)
    items = there.tolist()
    source, own = _source(snapshot, query, hits, len(items))
    sources = _sources(snapshot, items, own, named)
    found = FoundItems(items, scores, sources, named or [None] * len(items), int(hits.scored[0]))
    if len(items) < k and rules is None and source != "popular" and snapshot.popular is not None:
        more = _filled(snapshot.popular, query, k, options, there)
        if more is not None:
            return hits, found.followed_by(more), "mixed" if items else "popular"
    return hits, found, source


def _source(snapshot: Snapshot, query: Query, hits: Hits, count: int) -> tuple[str, list[str]]:
    """The source of the answer, and of each of `count` items found: the model, or the counts that it falls back to."""
    if isinstance(snapshot.model_alone, NeighbourSearcher):
        filled = snapshot.model_alone.by_popularity(hits)[0][hits.items[0] >= 0]
        if filled.any():
            own = ["popular" if each else "model" for each in filled.tolist()]
            return "popular" if filled.all() else "mixed", own
    source = "popular" if _is_popular(snapshot, query) else "model"
    return source, [source] * count


def _sources(snapshot: Snapshot, items: list[int], sources: list[str], named: list[str | None]) -> list[str]:
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
