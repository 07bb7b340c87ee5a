"""`/v1/events`: interactions of users, stored before they are acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from beamwood.errors import InputError
from beamwood.serve.answer.ids import indices_of, without_index
from beamwood.serve.answer.kinds import Kinds
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.http.route import Call, Route
from beamwood.serve.messages import Body, Id
from beamwood.serve.problems import NOT_BLANK, Problem
from beamwood.serve.service import Service
from beamwood.serve.store.event import AHEAD_SECONDS, UNTYPED, Event, Session

__all__ = ["routes"]

# Seconds between events of one body without times, which tell equal ones apart.
_APART = 1e-6
# More would hold up the loop.
_MANY = 100


class NewEvent(Body):
    """An interaction of exactly one of user and session with an item."""

    item: Id
    user: Id | None = None
    session: str | None = None
    time: Annotated[
        str | float | None, Meta(description="Seconds since 1970, or ISO 8601 (UTC if no zone); defaults to now.")
    ] = None
    type: Annotated[
        Annotated[str, Meta(pattern=NOT_BLANK)] | None,
        Meta(description="Event type, as in the model's log; untyped events always count."),
    ] = None
    weight: Annotated[
        float, Meta(description="Stored for the next log; it changes no answer, and below 0 it rejects nothing.")
    ] = 1.0
    key: Annotated[
        str | None, Meta(description="Idempotency key; an event sent again with the same key counts once.")
    ] = None
    request_id: Annotated[str | None, Meta(description="request_id of the answer that led to the event.")] = None


class NewEvents(Body):
    """Events of any number of users and sessions."""

    events: list[NewEvent]


class Accepted(Struct, kw_only=True):
    """The stored events; `durable`: they survive a power loss; `seq`: the store's last sequence number.

    `uncounted_types`: types that are neither counted by the model nor negative; their events are in no history.
    """

    request_id: str
    accepted: int
    duplicates: int
    unknown_items: list[Any]
    uncounted_types: list[str]
    durable: bool
    seq: int


def routes(service: Service) -> list[Route]:
    """The endpoint that takes events."""
    limits = service.settings.limits
    summary = f"Append at most {limits.events:,} events in one transaction; the response follows the commit"
    return [
        Route("POST", "/v1/events", _events, "events", summary, Accepted, NewEvents, body_bytes=4 * limits.body_bytes)
    ]


async def _events(call: Call) -> Accepted:
    given, most = call.body.events, call.service.settings.limits.events
    if not 1 <= len(given) <= most:
        raise Problem("invalid_request", f"events has {len(given)} of them; give 1 to {most}", field="events")
    checked = partial(_checked, given, time.time())
    events = await asyncio.to_thread(checked) if len(given) > _MANY else checked()
    histories = call.service.histories
    began = time.monotonic()
    done = await histories.append(events)
    call.stages["store"], call.noted["count"] = time.monotonic() - began, done.accepted
    snapshot = call.service.models.current
    kinds = Kinds() if snapshot is None else snapshot.kinds
    counting = kinds.counting(events[at] for at in done.new)
    call.service.outcomes.follow(counting)
    call.service.first_events.follow(counting)
    return Accepted(
        request_id=call.request_id,
        accepted=done.accepted,
        duplicates=done.duplicates,
        unknown_items=[] if snapshot is None else _unknown_items(snapshot, events),
        uncounted_types=kinds.others(events),
        durable=histories.durable,
        seq=done.seq,
    )


def _unknown_items(snapshot: Snapshot, events: list[Event]) -> list[Any]:
    items = [event.item for event in events]
    return without_index(items, indices_of(snapshot.names.items, items))


def _checked(given: Sequence[NewEvent], now: float) -> list[Event]:
    return [_event(each, number, now + number * _APART) for number, each in enumerate(given)]


def _event(given: NewEvent, number: int, now: float) -> Event:
    """The event of a body. Errors: `Problem` with the field's path."""
    place = f"events[{number}]"
    if (given.user is None) == (given.session is None):
        raise Problem("invalid_request", f"{place} needs one of user and session", field=f"{place}.user")
    at = now if given.time is None else _seconds(given.time, f"{place}.time")
    if at > now + AHEAD_SECONDS:
        message = f"{place}.time={given.time!r} is more than a day ahead; give seconds since 1970, or ISO 8601"
        raise Problem("invalid_request", message, field=f"{place}.time")
    who = Session(given.session) if given.user is None and given.session is not None else given.user
    assert who is not None
    kind = UNTYPED if given.type is None else given.type
    try:
        return Event(who, given.item, at, kind, given.weight, given.key, given.request_id, given.time is not None)
    except InputError as error:
        field = str(error).split("=")[0].split(" ")[0]
        raise Problem("invalid_request", f"{place}.{error}", field=f"{place}.{field}") from None


def _seconds(given: str | float, field: str) -> float:
    if not isinstance(given, str):
        return float(given)
    try:
        found = datetime.fromisoformat(given)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        message = f"{field}={given!a} is not a time; give seconds since 1970, or ISO 8601 such as 2026-01-31T10:30:00Z"
        raise Problem("invalid_request", message, field=field) from None
