"""Stored events of a requesting user: the history after the model's log, and rejected items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.serve.answer.asking import Asking, StoredHistory
from beamwood.serve.answer.ids import indices_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Recommend
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits
from beamwood.serve.store.event import Owner, Session
from beamwood.serve.store.protocol import HistoryStore

__all__ = ["is_in_model", "kept_of", "owner_of", "rejected_of"]


def owner_of(body: Asking) -> Owner | None:
    """The user or session of a request, None for a plain history."""
    return body.user if body.user is not None else None if body.session is None else Session(body.session)


def kept_of(
    store: HistoryStore, owner: Owner, snapshot: Snapshot, body: Asking, limits: Limits, *, until: int | None = None
) -> StoredHistory:
    """The owner's counted events that the model's own history lacks: after the end of its log, or all without one.

    `until`: the highest seq to include.

    If the request excludes rejected items, the result also has the verdict of the owner's latest event on each item,
    limited to the number of ids of a filter.
    """
    kinds, last = snapshot.kinds, limits.history
    after = snapshot.end if snapshot.end is not None and is_in_model(snapshot, owner) else -math.inf
    stored = store.history(owner, after=after, last=last, until=until, types=kinds.counted)
    erased = snapshot.hides(stored.erased)
    if erased and after > -math.inf:
        # The model's own history does not count after an erasure, so all stored events do.
        after = -math.inf
        stored = store.history(owner, last=last, until=until, types=kinds.counted)
    judged: dict[Any, bool] = {}
    if isinstance(body, Recommend) and body.exclude_rejected and kinds.negative and stored.seq > 0:
        said = store.history(owner, after=after, last=limits.filter_ids, until=stored.seq, types=kinds.judged)
        judged = {item: kind in kinds.negative for item, kind in zip(said.items, said.types, strict=True)}
    return StoredHistory(stored.items, stored.seq, erased=erased, tombstone=stored.erased, judged=judged)


def is_in_model(snapshot: Snapshot, owner: Owner) -> bool:
    """Whether the model keeps a history of the owner, which is none of a user that the fit left out."""
    names = snapshot.names
    if names.histories is None or names.users is None or isinstance(owner, Session):
        return False
    return int(indices_of(names.users, [owner])[0]) >= 0


def rejected_of(snapshot: Snapshot, body: Recommend, kept: StoredHistory, user: Any) -> NDArray[np.int32]:
    """int32[M], indices of items whose latest event is negative, in the store and the request, else in the model.

    `user`: the id, None if the model does not know it. Errors: `Problem` if the request or the model has no rejections.
    """
    names, kinds = snapshot.names, snapshot.kinds
    if owner_of(body) is None:
        message = "exclude_rejected needs user or session; give one, or list the items in exclude"
        raise Problem("invalid_request", message, field="exclude_rejected")
    if names.rejected is None and not kinds.negative:
        message = "exclude_rejected needs a model with negative events; fit it with --negative-events"
        raise Problem("invalid_request", message, field="exclude_rejected")
    judged = {**kept.judged, **dict.fromkeys(body.events or (), False)}
    places = indices_of(names.items, list(judged)) if judged else np.empty(0, np.int32)
    negative = np.fromiter(judged.values(), bool, len(judged))
    own = np.empty(0, np.int32)
    if user is not None and names.users is not None and names.rejected is not None:
        own = names.rejected[int(indices_of(names.users, [user])[0])]
    found: NDArray[np.int32] = np.union1d(np.setdiff1d(own, places), places[negative & (places >= 0)])
    return found
