"""`/`: the page of the service, its stylesheet, its script, and the figures that it keeps up to date."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from msgspec import Struct

from beamwood.serve.answer.asking import StoredHistory, check_asking
from beamwood.serve.answer.limited import check_limits
from beamwood.serve.engine import Priority
from beamwood.serve.http.route import Call, Plain, Route
from beamwood.serve.page.asked import FIELDS, FormFields
from beamwood.serve.page.render import file_of, page_of
from beamwood.serve.page.view import View, view_of
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service

__all__ = ["Live", "routes"]

_HTML = "text/html; charset=utf-8"


class Live(Struct):
    """Current metrics; `search_ms`: recent mean; `refused`: number of rejected requests and
    batch rows, `answered`: of all other requests."""

    answered: int
    refused: int
    narrowed: int
    in_flight: int
    waiting: int
    search_ms: float
    model: str
    snapshot: int


def routes(service: Service) -> list[Route]:
    """The page and what it loads; none with --no-page."""
    if not service.settings.page:
        return []
    return [
        Route("GET", "/", _page, "recommend", "The page", query=FIELDS, hidden=True),
        Route("GET", "/page.css", _style, None, "Its stylesheet", hidden=True, quiet=True),
        Route("GET", "/page.js", _script, None, "Its script", hidden=True, quiet=True),
        Route("GET", "/page/live", _live, "metrics", "Its figures", Live, hidden=True, quiet=True),
    ]


async def _page(call: Call) -> Plain:
    asked, snapshot, view, problem = FormFields.of(call.query), None, View(), None
    try:
        snapshot = call.snapshot
        view = await _view(call, asked, call.deadline(None))
    except Problem as refused:
        problem = refused
    if problem is not None and snapshot is not None:
        # What refused it may be its deadline. A service that is too busy for this one too tells of the first.
        with suppress(Problem):
            view = await _view(call, FormFields(find=asked.find), time.monotonic() + call.service.settings.timeout)
    content = await asyncio.to_thread(page_of, asked, snapshot=snapshot, view=view, problem=problem)
    return Plain(content, _HTML, problem)


async def _view(call: Call, asked: FormFields, deadline: float) -> View:
    service, snapshot = call.service, call.snapshot
    # A condition may be long.
    body, kept = await asyncio.to_thread(asked.body, snapshot), StoredHistory()
    if body is not None:
        check_asking(body, service.settings.limits)
        check_limits(body, snapshot.num_items, service.settings.limits)
        kept = await service.histories.kept(snapshot, body)

    def work(pressure: float) -> View:  # noqa: ARG001
        return view_of(snapshot, asked, body, kept, service.settings.limits, request_id=call.request_id)

    ran = await call.run(work, deadline=deadline, priority=Priority.CALLER)
    found: View = ran.value
    return found


async def _style(call: Call) -> Plain:  # noqa: ARG001
    return Plain(file_of("page.css"), "text/css; charset=utf-8")


async def _script(call: Call) -> Plain:  # noqa: ARG001
    return Plain(file_of("page.js"), "text/javascript; charset=utf-8")


async def _live(call: Call) -> Live:
    service, metrics, snapshot = call.service, call.service.metrics, call.snapshot
    return Live(
        service.answered,
        int(metrics.rejected.total),
        int(metrics.degraded.total),
        service.in_flight,
        service.admission.waiting + sum(map(service.engine.waiting, Priority)),
        round(1000 * service.engine.seconds, 3),
        snapshot.model,
        snapshot.number,
    )
