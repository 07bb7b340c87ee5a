"""The answers that a server would give with its store, computed without it for many users or histories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.methods.reload import searchers_of
from beamwood.retrieval.batch.group_answers import GroupOptions
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.request import Recommendations, Request
from beamwood.retrieval.why_empty import why_empty
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory, known_of
from beamwood.serve.answer.ids import indices_of, typed_id
from beamwood.serve.answer.kept import kept_of, rejected_of
from beamwood.serve.answer.snapshot import Snapshot, open_snapshot
from beamwood.serve.items.learned import read_learned
from beamwood.serve.items.widened import widened
from beamwood.serve.messages import Answer, Recommend
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits
from beamwood.serve.store.event import Session
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore
from beamwood.types import ItemLists

__all__ = ["StoreAnswers", "open_with_store"]

_LIMITS = replace(Limits(), k=2**31 - 1)


@dataclass(frozen=True, slots=True)
class StoreAnswers:
    """The model of a folder with the users, events, new and hidden items of a server's store, as they are when asked.

    An answer equals the server's with the same share of new items.
    """

    snapshot: Snapshot
    store: HistoryStore
    limits: Limits = _LIMITS

    def users(self) -> tuple[list[int | str], list[int | str]]:
        """The users of the model, erased ones too, and those of the store alone."""
        known = self.snapshot.names.users
        alone = [owner for owner in self.store.owners() if not isinstance(owner, Session)]
        own: list[int | str] = []
        if known is not None:
            ids = known.ids if known.dtype == pl.String or known.dtype.is_integer() else known.ids.cast(pl.String)
            own = ids.to_list()
            places = indices_of(known, alone).tolist() if alone else []
            alone = [user for user, at in zip(alone, places, strict=True) if at < 0]
        return own, sorted(alone, key=lambda user: (isinstance(user, str), user))

    def unknown(self, users: Sequence[int | str]) -> list[int | str]:
        """Those of the users of whom neither the model nor the store has a history."""
        known = self.snapshot.names.users
        places = [-1] * len(users) if known is None else indices_of(known, users).tolist()
        erased = {user for user, time in self.store.erased().items() if self.snapshot.hides(time)}
        asked = [user for user, at in zip(users, places, strict=True) if at < 0 or user in erased]
        return [user for user in asked if not self._has_events(user)]

    def _has_events(self, user: int | str) -> bool:
        return bool(kept_of(self.store, user, self.snapshot, Recommend(user=user), _LIMITS).items)

    def user_of(self, text: str) -> int | str:
        """The user that a text names: of a folder without users the one with a history, else the number."""
        users = self.snapshot.names.users
        user = typed_id(text, users)
        return text if users is None and not self._has_events(user) and self._has_events(text) else user

    def __call__(self, options: GroupOptions, rows: Sequence[Any]) -> pl.DataFrame:
        """See `AnswerRows`. An erased or unknown user gets no list unless `on_unknown` is "ignore"."""
        lenient = options.request.on_unknown == "ignore"
        answers = enumerate(self._answers(options.request, rows, by_users=options.by_users))
        cells = [
            (row, item.rank, item.item, item.score)
            for row, answer in answers
            if lenient or not answer.unknown_user
            for item in answer.items
        ]
        kind = self.snapshot.names.items.dtype
        schema: dict[str, Any] = {"row": pl.Int64, "rank": pl.Int32, "item": kind, "score": pl.Float64}
        return pl.DataFrame(cells, schema=schema, orient="row")

    def recommendations(self, request: Request) -> Recommendations:
        """The answers to the request's users or histories."""
        by_users = request.users is not None
        rows: Any = request.users if by_users else request.histories
        answers = list(self._answers(request, rows, by_users=by_users))
        items = [[each.item for each in answer.items] for answer in answers]
        found = Recommendations(items, [[each.score for each in answer.items] for answer in answers])
        if all(items):
            return found
        removed: list[Any] = [
            [] if each else self._removed(request, row, by_users=by_users)
            for row, each in zip(rows, items, strict=True)
        ]
        return replace(found, empty=why_empty(self.snapshot.names, request, items, ItemLists.from_lists(removed)))

    def _removed(self, request: Request, row: Any, *, by_users: bool) -> NDArray[np.int32]:
        """The items that the answer to a user or a history leaves out as seen or rejected."""
        body = _body_of(request, row, by_users=by_users)
        kept = self._kept(row, body)
        known = known_of(self.snapshot, body, kept)
        seen = known.history if body.exclude_seen else np.empty(0, np.int32)
        return np.union1d(seen, rejected_of(self.snapshot, body, kept, known.user) if body.exclude_rejected else seen)

    def _kept(self, row: Any, body: Recommend) -> StoredHistory:
        """The stored events of a user, none of a history."""
        return StoredHistory() if body.user is None else kept_of(self.store, row, self.snapshot, body, _LIMITS)

    def _answers(self, request: Request, rows: Sequence[Any], *, by_users: bool) -> Iterator[Answer]:
        # Refused as without a store, in the words of a caller in Python.
        self.snapshot.retriever.check_request(request)
        if request.rejected == "remove" and not self.snapshot.kinds.negative:
            self.snapshot.names.check_rejected()
        if not by_users and request.on_unknown == "error":
            self.snapshot.names.items.encode([item for row in rows for item in row])
        snapshot, context = _filtered(self.snapshot, request), request.context or {}
        k = snapshot.names.checked_k(request.k)
        for at, row in enumerate(rows):
            body = _body_of(request, row, by_users=by_users)
            body.k, body.context = k, {name: values[at] for name, values in context.items()} or None
            try:
                yield recommended(snapshot, body, self._kept(row, body), self.limits, request_id="")[0]
            except Problem as problem:
                raise InputError(problem.message) from None


def _body_of(request: Request, row: Any, *, by_users: bool) -> Recommend:
    """The body of one row, without k and context."""
    return Recommend(
        user=row if by_users else None,
        history=None if by_users else _given(row),
        exclude_seen=request.seen == "remove",
        # A history alone has no negative events.
        exclude_rejected=by_users and request.rejected == "remove",
        on_unknown="ignore",
        effort=request.effort,
        beam_width=request.beam_width,
    )


def _given(history: Sequence[Any]) -> list[Any]:
    """Without the places of ids that are of no item's type."""
    return [item for item in history if item is not None]


def open_with_store(
    folder: str,
    store: HistoryStore | str,
    method: str | None = None,
    threads: int = 1,
    *,
    new_item_share: float | None = None,
) -> StoreAnswers:
    """The model of a folder with an open store or the one at an address; `method`: of a custom method.

    `new_item_share`: that of the server, None for its default.

    Errors: those of `open_snapshot`, `searchers_of` and `open_store`.
    """
    searchers: Mapping[str, Any] = {} if method is None else searchers_of(method, folder)
    snapshot = open_snapshot(folder, threads=threads, searchers=searchers)
    opened = open_store(store, read_only=True) if isinstance(store, str) else store
    _, learned = read_learned(opened, None)
    snapshot = snapshot if learned is None else widened(snapshot, learned, snapshot.number)
    return StoreAnswers(snapshot, opened, _LIMITS.with_new_item_share(new_item_share))


def _filtered(snapshot: Snapshot, request: Request) -> Snapshot:
    """The snapshot with the request's filter for all answers, which is then prepared once."""
    if request.allowed is None and request.where is None:
        return snapshot
    filters = snapshot.names.filters
    alive = filters.prepared(request.allowed, request.where, on_unknown=request.on_unknown)
    narrowed = Filters(filters.items, filters.columns, filters.max_bytes, alive)
    return replace(snapshot, names=replace(snapshot.names, filters=narrowed))
