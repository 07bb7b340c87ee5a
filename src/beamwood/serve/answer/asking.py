"""The history of a body, by index: from the model, from later events in the store, and from the body itself.

Shape legend: L history length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beamwood.data.vocabularies.vocabulary import has_unknown
from beamwood.errors import InputError
from beamwood.serve.answer.ids import indices_of, without_index
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits
from beamwood.serve.store.event import Session, check_owner
from beamwood.types import QueryNeeds
from beamwood.words import counted

__all__ = ["Asking", "KnownHistory", "StoredHistory", "check_asking", "check_needs", "known_of"]


class Asking(Protocol):
    """The fields of a body that identify the history, and how soon its answer is due."""

    @property
    def user(self) -> int | str | None: ...
    @property
    def history(self) -> list[int | str] | None: ...
    @property
    def session(self) -> str | None: ...
    @property
    def events(self) -> list[int | str] | None: ...
    @property
    def on_unknown(self) -> str: ...
    @property
    def deadline_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """A user's events in the store after the end of the model's log: item ids, oldest first; `seq`: of the last event.

    `stale`: the store could not be read. `erased`: the user was erased, so the artefact's history does not count;
    `tombstone`: when, also where the artefact was written later, or when a session was merged.
    `judged`: by item whether its last event was negative, where the body asks for that.
    """

    items: Sequence[Any] = ()
    seq: int | None = None
    stale: bool = False
    erased: bool = False
    tombstone: float | None = None
    judged: Mapping[Any, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """A history by item index, oldest first, and its unknown ids; `user`: the id, if known."""

    history: NDArray[np.int32]
    unknown_items: list[Any]
    user: Any = None
    unknown_user: bool = False
    seq: int | None = None
    stale: bool = False


def check_asking(body: Asking, limits: Limits) -> None:
    """Errors: `Problem` unless exactly one of user, history and session is given, an id that no store accepts, or too
    long a history.
    """
    given = (body.user is not None) + (body.history is not None) + (body.session is not None)
    if given != 1:
        said = "none is given" if given == 0 else f"{given} are given"
        raise Problem("invalid_request", f"give one of user, history and session; {said}", field="user")
    try:
        for owner in (body.user, None if body.session is None else Session(body.session)):
            if owner is not None:
                check_owner(owner)
    except InputError as error:
        raise Problem("invalid_request", str(error), field="user" if body.session is None else "session") from None
    for name, ids in (("history", body.history), ("events", body.events)):
        if ids is not None and len(ids) > limits.history:
            message = f"{name} has {len(ids)} ids; give the latest {limits.history} at most"
            raise Problem("invalid_request", message, field=name)


def check_needs(needs: QueryNeeds, body: Asking) -> None:
    """Errors: `Problem` where the model reads no history, and the body names no user."""
    if needs.users_alone and body.user is None:
        field = "history" if body.session is None else "session"
        raise Problem("invalid_request", f"this model knows users alone; give user instead of {field}", field=field)


def known_of(snapshot: Snapshot, body: Asking, kept: StoredHistory) -> KnownHistory:
    """The history of a body. Errors: `Problem` on unknown ids, if the body says so."""
    names = snapshot.names
    given = [*kept.items, *(body.history or ()), *(body.events or ())]
    history = indices_of(names.items, given) if given else np.empty(0, np.int32)
    unknown: list[Any] = []
    if has_unknown(history):
        unknown = without_index(given, history)
        if body.on_unknown == "error":
            _check_given(body, given[len(kept.items) :], history[len(kept.items) :])
        history = history[history >= 0]
    if body.user is None:
        return KnownHistory(history, unknown, None, False, kept.seq, kept.stale)
    row = -1 if names.users is None or kept.erased else int(indices_of(names.users, [body.user])[0])
    if row >= 0 and names.histories is not None:
        own = names.history_of(row)
        history = own if len(history) == 0 else np.concatenate([own, history])
    nobody = row < 0 and not kept.items
    if nobody and body.on_unknown == "error":
        raise Problem("unknown_user", f"the user {body.user!r} is unknown; give a history instead", field="user")
    return KnownHistory(history, unknown, body.user if row >= 0 else None, nobody, kept.seq, kept.stale)


def _check_given(body: Asking, ids: Sequence[Any], indices: NDArray[np.int32]) -> None:
    """Errors: `Problem` on unknown ids of the body itself."""
    unknown = without_index(ids, indices)
    if unknown:
        message = f"the catalogue lacks {counted(len(unknown), 'item')}, such as {unknown[0]!r}; leave them out"
        raise Problem("unknown_item", message, field="history" if body.history else "events")
