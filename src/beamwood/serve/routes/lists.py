"""`/v1/similar` and `/v1/score`: items like given ones, and given ones in order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.arrays import sound
from beamwood.retrieval.request import Request
from beamwood.retrieval.similar import similar_items
from beamwood.serve.answer.asking import StoredHistory, check_asking, check_needs, known_of
from beamwood.serve.answer.filter_form import allowed_and_where, filter_name, refusing
from beamwood.serve.answer.found import FoundItems, answer_items, sources_of
from beamwood.serve.answer.ids import indices_of, without_index
from beamwood.serve.answer.kept import owner_of
from beamwood.serve.answer.limited import check_filters
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.engine import Priority
from beamwood.serve.http.route import Call, Route
from beamwood.serve.messages import ListAnswer, Score, Similar
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service
from beamwood.serve.settings import Limits
from beamwood.types import ItemLists, SearchOptions

__all__ = ["routes"]

# Indices best first, their scores, and the unknown ids.
_Ordered = tuple[NDArray[np.int32], NDArray[np.float32], list[Any]]


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """The endpoints that order items."""
    return [
        Route("POST", "/v1/similar", _similar, "recommend", "Find similar items", ListAnswer, Similar, waits=True),
        Route("POST", "/v1/score", _score, "recommend", "Rank given items, best first", ListAnswer, Score, waits=True),
    ]


async def _similar(call: Call) -> ListAnswer:
    body, limits = call.body, call.service.settings.limits
    if (body.item is None) == (body.items is None):
        raise Problem("invalid_request", "give one of item and items", field="item")
    if body.k > limits.k:
        raise Problem("invalid_request", f"k={body.k} is above {limits.k}; ask for fewer", field="k")
    asked = [body.item] if body.items is None else body.items
    _check_length(asked, limits)
    check_filters(body.filter, limits)
    snapshot = call.snapshot
    return await _answer(call, snapshot, functools.partial(_like, snapshot, body, asked, limits))


async def _score(call: Call) -> ListAnswer:
    body, limits = call.body, call.service.settings.limits
    check_asking(body, limits)
    _check_length(body.items, limits)
    snapshot, arm = call.service.experiments.chosen(owner_of(body), call.snapshot)
    kept = await call.service.histories.kept(snapshot, body)
    answer = await _answer(call, snapshot, functools.partial(_ordered, snapshot, body, kept))
    answer.stale_history = kept.stale
    if arm is not None:
        answer.arm = call.noted["arm"] = arm
    return answer


def _check_length(items: Sequence[Any], limits: Limits) -> None:
    if not 1 <= len(items) <= limits.k:
        raise Problem("invalid_request", f"items has {len(items)} ids; give 1 to {limits.k}", field="items")


async def _answer(call: Call, snapshot: Snapshot, order: Callable[[], _Ordered]) -> ListAnswer:
    body = call.body
    snapshot.fields.check(body.fields)

    def work(pressure: float) -> ListAnswer:  # noqa: ARG001
        with refusing(snapshot, body.filter if isinstance(body, Similar) else None):
            indices, scores, unknown = order()
            sources = sources_of(snapshot, indices, sound(scores))
        found = FoundItems(indices.tolist(), scores.tolist(), sources, [None] * len(indices))
        return ListAnswer(
            request_id=call.request_id,
            model=snapshot.model,
            snapshot=snapshot.number,
            items=answer_items(snapshot, found, len(indices), body.fields),
            unknown_items=unknown,
        )

    ran = await call.run(work, deadline=call.deadline(body.deadline_ms), priority=Priority.CALLER)
    answer: ListAnswer = ran.value
    _note_for_log(call, body, answer)
    return answer


def _note_for_log(call: Call, body: Similar | Score, answer: ListAnswer) -> None:
    noted = call.noted
    noted["count"], noted["snapshot"] = len(answer.items), answer.snapshot
    if isinstance(body, Score):
        if body.user is not None:
            noted["user"] = call.service.log.user(body.user)
        return
    noted["k"] = body.k
    if body.filter is not None:
        noted["filter"] = filter_name(body.filter)


def _like(snapshot: Snapshot, body: Similar, asked: Sequence[Any], limits: Limits) -> _Ordered:
    places = indices_of(snapshot.names.items, asked)
    unknown, known = without_index(asked, places), places[places >= 0]
    if len(known) == 0:
        field = "item" if body.items is None else "items"
        raise Problem("unknown_item", f"the item {asked[0]!r} is unknown; give one of the catalogue", field=field)
    allowed, where = allowed_and_where(body.filter, snapshot, most_ids=limits.filter_ids)
    prepared = snapshot.names.filters.prepared(allowed, where)
    options = SearchOptions(allowed=None if prepared is None else prepared.mask, prepared=prepared)
    try:
        hits = similar_items(snapshot.searcher, known, min(body.k, snapshot.num_items), options, by=body.by)
    except ArtefactError:
        raise
    except InputError as error:
        raise Problem("invalid_request", str(error), field="by") from None
    there = hits.items[0] >= 0
    return hits.items[0][there], hits.scores[0][there], unknown


def _ordered(snapshot: Snapshot, body: Score, kept: StoredHistory) -> _Ordered:
    known = known_of(snapshot, body, kept)
    places = indices_of(snapshot.names.items, body.items)
    unknown, own = without_index(body.items, places), np.unique(places[places >= 0])
    own = own[snapshot.names.filters.may_show(own)]
    needs = snapshot.needs
    check_needs(needs, body)
    request = Request(
        histories=ItemLists.unchecked(np.array([0, len(known.history)], np.int64), known.history),
        k=1,
        users=[known.user] if needs.users and body.user is not None else None,
        context=None if body.context is None else {name: [value] for name, value in body.context.items()},
        on_unknown="ignore",
    )
    query = snapshot.names.resolve(request, needs)[0]
    scores = snapshot.searcher.score(query, own[None])[0] if len(own) else np.empty(0, np.float32)
    order = np.lexsort((own, -scores))
    return own[order], scores[order], unknown + [each for each in known.unknown_items if each not in unknown]
