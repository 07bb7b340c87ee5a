"""`/v1/recommend` and `/v1/recommend/batch`."""

from __future__ import annotations

import asyncio
import time

from beamwood.serve.answer.answering import Recommending
from beamwood.serve.answer.asking import check_asking
from beamwood.serve.answer.cursor import add_cursor, next_page, rest_asked
from beamwood.serve.answer.filter_form import filter_name
from beamwood.serve.answer.found import FoundItems
from beamwood.serve.answer.kept import owner_of
from beamwood.serve.answer.limited import check_limits
from beamwood.serve.engine import Priority
from beamwood.serve.http.route import Call, Route
from beamwood.serve.messages import Answer, Batch, BatchAnswer, Recommend, Row
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service
from beamwood.serve.store.event import owner_text, read_owner

__all__ = ["answer_one", "note_for_log", "routes"]

# Rows of a batch that are under way, for each search thread.
_ROWS_AT_ONCE = 8
# Up to so many items a search takes no longer than for one.
_FEW = 100


def routes(service: Service) -> list[Route]:
    """The endpoints that recommend."""
    limits = service.settings.limits
    return [
        Route(
            "POST",
            "/v1/recommend",
            _recommend,
            "recommend",
            "Recommend k items for a user",
            Answer,
            Recommend,
            waits=True,
        ),
        Route(
            "POST",
            "/v1/recommend/batch",
            _batch,
            "recommend",
            f"Recommend for at most {limits.batch_rows} requests, at lower priority than /v1/recommend",
            BatchAnswer,
            Batch,
            body_bytes=limits.body_bytes * 16,
            is_long=True,
        ),
    ]


async def _recommend(call: Call) -> Answer:
    answer = await answer_one(
        call, call.body, call.request_id, Priority.CALLER, call.deadline(call.body.deadline_ms), began=call.began
    )
    note_for_log(call, call.body, answer)
    return answer


async def answer_one(
    call: Call, body: Recommend, request_id: str, priority: Priority, deadline: float, *, began: float
) -> Answer:
    """The answer to one request, with its times. Errors: `Problem`."""
    service, limits = call.service, call.service.settings.limits
    snapshot, arm = service.experiments.chosen(owner_of(body), call.snapshot)
    experiment = service.experiments.name
    check_limits(body, snapshot.num_items, limits)
    if body.cursor is not None:
        return await _next_page(service, body, request_id, began=began)
    check_asking(body, limits)
    asked = time.monotonic()
    kept = await service.histories.kept(snapshot, body)
    stored = time.monotonic() - asked
    work = Recommending(snapshot, body, kept, limits, request_id=request_id, deadline=deadline)
    ran = await call.run(work, deadline=deadline, priority=priority, plain=_is_plain(body))
    answer: Answer = ran.value[0]
    found: FoundItems = ran.value[1]
    answer.arm = arm
    service.counted(body, answer, found)
    service.outcomes.note(snapshot, body, answer, kept.tombstone, experiment=experiment)
    if body.pages:
        owner = owner_of(body)
        name = None if owner is None else owner_text(owner)
        add_cursor(answer, found, snapshot, service.secret, count=body.k, owner=name, erased=kept.tombstone)
    took, stages = answer.took_ms, call.stages
    stages["store"] = stages.get("store", 0.0) + stored
    if took.rank > 0:
        stages["rank"] = stages.get("rank", 0.0) + took.rank / 1000
    took.queue, took.store = round(1000 * (call.waited + ran.queued), 3), round(1000 * stored, 3)
    took.total = round(1000 * (time.monotonic() - began), 3)
    return answer


async def _next_page(service: Service, body: Recommend, request_id: str, *, began: float) -> Answer:
    """The page of a cursor. Errors: `Problem`; it is gone where its owner was erased since, or merged into a user."""
    rest = rest_asked(body, service.secret)
    owner = None if rest.owner is None else read_owner(rest.owner)
    histories = service.histories
    if owner is not None and not await histories.is_as_before(owner, rest.erased, rest.seq, body.deadline_ms):
        raise Problem("gone", "the cursor's history is gone; ask for the first page again", field="cursor")
    answer, snapshot = next_page(service.models.find, body, rest, service.secret, request_id)
    chosen, arm = service.experiments.chosen(owner, service.models.answering())
    answer.arm = arm if chosen.key == snapshot.key else None
    answer.took_ms.total = round(1000 * (time.monotonic() - began), 3)
    service.metrics.sources.inc(answer.source)
    service.catalogue.count(answer.items)
    service.outcomes.note(snapshot, body, answer, rest.erased, experiment=service.experiments.name, page_of=owner)
    return answer


def note_for_log(call: Call, body: Recommend, answer: Answer) -> None:
    """What the log says of a request."""
    noted = call.noted
    noted["k"], noted["history"], noted["count"] = body.k, answer.history_used, len(answer.items)
    noted["source"], noted["snapshot"] = answer.source, answer.snapshot
    if body.user is not None:
        noted["user"] = call.service.log.user(body.user)
    if body.filter is not None:
        noted["filter"] = filter_name(body.filter)
    if answer.degraded:
        noted["degraded"] = True
    if answer.arm is not None:
        noted["arm"] = answer.arm


def _is_plain(body: Recommend) -> bool:
    """Does a body ask for nothing that makes a search longer?"""
    rules = body.max_per_category is not None or body.diversity > 0 or body.promote
    wider = body.effort is not None or body.beam_width is not None or body.pages or body.k > _FEW
    return not (rules or wider or body.filter is not None or body.explain != "none")


async def _batch(call: Call) -> BatchAnswer:
    requests, most = call.body.requests, call.service.settings.limits.batch_rows
    if not 1 <= len(requests) <= most:
        message = f"requests has {len(requests)} rows; give 1 to {most}"
        raise Problem("invalid_request", message, field="requests")
    rows, left = [Row()] * len(requests), iter(enumerate(requests))

    async def feed() -> None:
        for number, body in left:
            rows[number] = await _row(call, body, number)

    # A few at a time, so that the loop is never held up by all of them at once.
    async with asyncio.TaskGroup() as feeding:
        for _ in range(min(len(requests), _ROWS_AT_ONCE * call.service.engine.threads)):
            feeding.create_task(feed())
    call.noted["rows"], call.noted["failed"] = len(rows), sum(row.ok is None for row in rows)
    return BatchAnswer(call.request_id, rows)


async def _row(call: Call, body: Recommend, number: int) -> Row:
    request_id = f"{call.request_id}.{number}"
    try:
        if body.explain == "full":
            # The paths of all rows together would be gigabytes.
            message = 'explain="full" is for single requests; send it to /v1/recommend, or ask for "scores"'
            raise Problem("invalid_request", message, field="explain")
        deadline = call.deadline(body.deadline_ms, len(call.body.requests))
        began = time.monotonic()
        return Row(ok=await answer_one(call, body, request_id, Priority.BATCH, deadline, began=began))
    except Problem as problem:
        call.service.metrics.rejected.inc(problem.code)
        return Row(error=problem.failure(request_id))
