"""`/v1/users`: what is kept of a user, its erasure, and a session that turns out to be a user's."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct

from beamwood.errors import InputError
from beamwood.serve.answer.ids import indices_of, told_ids, typed_id
from beamwood.serve.http.route import Call, Route
from beamwood.serve.messages import Body, Id
from beamwood.serve.problems import Problem, whole_number
from beamwood.serve.service import Service
from beamwood.serve.store.event import UNTYPED, Event, Owner, Session, check_owner
from beamwood.serve.store.protocol import HistoryStore, Record

__all__ = ["routes"]

_MOST, _FEW = 1000, 100
_SESSION = {"session": "1: the id is a session, not a user"}


class KeptEvent(Struct, omit_defaults=True):
    """An event; `time` in seconds since 1970; `type` is absent if none was sent.

    `user`: the id under which it is stored, if its type (number or text) differs from the model's.
    """

    seq: int
    item: Any
    time: float
    weight: float
    type: str = UNTYPED
    request_id: str | None = None
    user: Any = None


class History(Struct, kw_only=True, omit_defaults=True):
    """Events by seq; `next`: the value of `after` for the next page; `model`: items in the model, oldest first.

    Erased items are left out.
    """

    request_id: str
    events: list[KeptEvent]
    next: int | None = None
    model: list[Any] | None = None


class Erased(Struct, kw_only=True):
    """The number of deleted events, and of history items in the model that are no longer used."""

    request_id: str
    events: int
    model: int


class Merge(Body):
    """A session whose events are moved to a user."""

    session: str
    user: Id


class Merged(Struct, kw_only=True):
    """The number of moved events."""

    request_id: str
    events: int


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """The endpoints of users."""
    pages = {"limit": f"maximum number of events, at most {_MOST}", "after": "return events after this seq"} | _SESSION
    return [
        Route(
            "GET", "/v1/users/{id}/history", _history, "events", "Get the stored events of a user", History, query=pages
        ),
        Route(
            "DELETE",
            "/v1/users/{id}",
            _erase,
            "admin",
            "Erase a user, also from the model's answers",
            Erased,
            query=_SESSION,
        ),
        Route("POST", "/v1/users/merge", _merge, "events", "Merge a session into a user", Merged, Merge),
    ]


async def _history(call: Call) -> History:
    owner = _owner(call)
    limit = whole_number("limit", call.query.get("limit", f"{_FEW}"), 1, _MOST)
    after = whole_number("after", call.query.get("after", "0"), 0, 2**62)
    page = await call.service.histories.call("page", lambda store: _page(store, owner, after, limit))
    own = None if after or isinstance(owner, Session) else await _model_items(call.service, owner)
    following = page[-1].seq if len(page) == limit else None
    erased = call.service.catalogue.learned.erased_items
    events = [_told(record, owner) for record in page if record.event.item not in erased]
    return History(request_id=call.request_id, events=events, next=following, model=own)


def _page(store: HistoryStore, owner: Owner, after: int, limit: int) -> list[Record]:
    """The next events of whom an address names, by seq."""
    found = [record for one in _spelled(owner) for record in store.page(one, after=after, limit=limit)]
    return sorted(found, key=lambda record: record.seq)[:limit]


def _told(record: Record, owner: Owner) -> KeptEvent:
    event: Event = record.event
    user = None if event.user == owner else event.user
    return KeptEvent(record.seq, event.item, event.time, event.weight, event.type, event.request_id, user)


def _spelled(owner: Owner) -> list[Owner]:
    """A user as a number and as text, the model's own first: an address has no types."""
    if isinstance(owner, Session):
        return [owner]
    other = str(owner) if isinstance(owner, int) else typed_id(owner, None)
    return [owner] if other == owner else [owner, other]


async def _model_items(service: Service, user: Id) -> list[Any] | None:
    """The items that the model keeps of a user, None where it keeps nothing or may not use it."""
    snapshot = service.models.current
    names = None if snapshot is None else snapshot.names
    if snapshot is None or names is None or names.users is None or names.histories is None:
        return None
    row = int(indices_of(names.users, [user])[0])
    if row < 0 or await service.histories.is_erased(user, snapshot):
        return None
    return told_ids(names.items, names.history_of(row))


async def _erase(call: Call) -> Erased:
    owner = _owner(call)
    own = None if isinstance(owner, Session) else await _model_items(call.service, owner)
    gone = sum([await call.service.histories.erase(one) for one in _spelled(owner)])
    return Erased(request_id=call.request_id, events=gone, model=len(own or ()))


async def _merge(call: Call) -> Merged:
    session, user = _checked(Session(call.body.session), "session"), _checked(call.body.user, "user")
    assert isinstance(session, Session)
    assert not isinstance(user, Session)
    moved = await call.service.histories.call("merge", lambda store: store.merge(session, user, time.time()))
    call.service.first_events.merged(session, user)
    return Merged(request_id=call.request_id, events=moved)


def _owner(call: Call) -> Owner:
    """Who the path names: a number where users are numbers, as text where they are text."""
    text, session = call.path["id"], call.query.get("session", "0")
    if session not in ("0", "1", "false", "true"):
        raise Problem(
            "invalid_request", f"session={session!a} is neither 1 nor 0; leave it out for a user", field="session"
        )
    if session in ("1", "true"):
        return _checked(Session(text), "id")
    snapshot = call.service.models.current
    return _checked(typed_id(text, None if snapshot is None else snapshot.names.users), "id")


def _checked(owner: Owner, field: str) -> Owner:
    try:
        check_owner(owner)
    except InputError as error:
        raise Problem("invalid_request", str(error), field=field) from None
    return owner
