"""The further pages of an answer as one signed text: items found but not yet shown, so that no page repeats an item."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import msgspec
import numpy as np
from msgspec import Struct

from beamwood.serve.answer.found import FoundItems, answer_items
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Answer, Recommend, Took
from beamwood.serve.problems import Problem

__all__ = ["Rest", "add_cursor", "cursor_of", "next_page", "rest_asked", "rest_of"]

_SIGNED = 16
_BESIDE = ("cursor", "k", "fields", "pages", "deadline_ms")
_EMPTY = Recommend()
_SOURCES = ("model", "popular", "new_item", "promoted")


class Rest(Struct, array_like=True):
    """The rest of an answer; `key`: of the model, `shown`: the number of items on earlier pages.

    `owner`: whose history it is by, as `store.event.owner_text`; `erased`: that one's tombstone at the time.
    """

    key: str
    shown: int
    items: bytes
    scores: bytes
    sources: bytes
    promotions: list[str | None] | None
    source: str
    history_used: int
    seq: int | None
    beam_width: int | None
    owner: str | None
    erased: float | None

    def found(self) -> FoundItems:
        """The rest as search results."""
        items = np.frombuffer(self.items, np.int32).tolist()
        return FoundItems(
            items,
            np.frombuffer(self.scores, np.float32).tolist(),
            [_SOURCES[code] for code in self.sources],
            self.promotions or [None] * len(items),
        )


def add_cursor(
    answer: Answer,
    found: FoundItems,
    snapshot: Snapshot,
    secret: bytes,
    *,
    count: int,
    shown: int = 0,
    owner: str | None = None,
    erased: float | None = None,
) -> None:
    """Give the answer a cursor for the items after its first `count`, if any; `owner` and `erased` as of `Rest`."""
    if len(found.items) > count:
        promotions = found.promotions[count:]
        rest = Rest(
            snapshot.key,
            shown + count,
            np.array(found.items[count:], np.int32).tobytes(),
            np.array(found.scores[count:], np.float32).tobytes(),
            bytes(_SOURCES.index(each) for each in found.sources[count:]),
            promotions if any(promotions) else None,
            answer.source,
            answer.history_used,
            answer.history_seq,
            answer.beam_width,
            owner,
            erased,
        )
        answer.cursor = cursor_of(rest, secret)


def rest_asked(body: Recommend, secret: bytes) -> Rest:
    """The rest that a body asks for. Errors: those of `rest_of`, and other fields beside it."""
    for name in Recommend.__struct_fields__:
        if name not in _BESIDE and getattr(body, name) != getattr(_EMPTY, name):
            message = f"a cursor stands for the whole request; leave {name} out"
            raise Problem("invalid_request", message, field=name)
    assert body.cursor is not None
    return rest_of(body.cursor, secret)


def next_page(
    snapshot_of: Callable[[str], Snapshot | None], body: Recommend, rest: Rest, secret: bytes, request_id: str
) -> tuple[Answer, Snapshot]:
    """The page of a rest, and its snapshot; `snapshot_of`: the active snapshot by key, None without one.

    Items hidden or erased since are left out. Errors: `Problem` on a cursor of another model, and on items that are
    not (yet) here.
    """
    snapshot, found = snapshot_of(rest.key), rest.found()
    if snapshot is None or max(found.items) >= snapshot.num_items:
        raise Problem("gone", "the cursor's model is no longer active; ask for the first page again", field="cursor")
    snapshot.fields.check(body.fields)
    found = found.among(snapshot.names.filters)
    answer = Answer(
        request_id=request_id,
        model=snapshot.model,
        snapshot=snapshot.number,
        source=rest.source,  # type: ignore[arg-type]
        history_used=rest.history_used,
        history_seq=rest.seq,
        beam_width=rest.beam_width,
        degraded=False,
        took_ms=Took(),
        items=answer_items(snapshot, found, body.k, body.fields, shown=rest.shown),
        unknown_items=[],
    )
    add_cursor(answer, found, snapshot, secret, count=body.k, shown=rest.shown, owner=rest.owner, erased=rest.erased)
    return answer, snapshot


def cursor_of(rest: Rest, secret: bytes) -> str:
    """The signed text of a rest."""
    content = msgspec.msgpack.encode(rest)
    return base64.urlsafe_b64encode(_signature(content, secret) + content).decode().rstrip("=")


def rest_of(cursor: str, secret: bytes) -> Rest:
    """The rest of a signed text. Errors: `Problem` on a text that is no cursor, and on one of another secret, as from
    before a restart.
    """
    again = "ask for the first page again"
    gone = Problem(
        "gone", f"the cursor is of another service, or of this one under other tokens; {again}", field="cursor"
    )
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError:
        content = b""
    if len(content) <= _SIGNED:
        raise Problem("invalid_request", f"this is no cursor; {again}", field="cursor")
    if not hmac.compare_digest(content[:_SIGNED], _signature(content[_SIGNED:], secret)):
        raise gone
    try:
        return msgspec.msgpack.decode(content[_SIGNED:], type=Rest)
    except msgspec.MsgspecError:
        # Of another version of this program, on the same store.
        raise gone from None


def _signature(content: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, content, hashlib.sha256)[:_SIGNED]
