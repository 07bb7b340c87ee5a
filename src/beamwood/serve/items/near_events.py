"""The items near an item's events, in histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from beamwood.retrieval.new_items.sources import WITHIN, items_near
from beamwood.serve.answer.ids import indices_of, told_ids
from beamwood.serve.answer.kept import is_in_model
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.store.event import Id, Owner
from beamwood.serve.store.protocol import HistoryStore

__all__ = ["near_of"]

# The latest events of a history that are read.
_LAST = 200


def near_of(store: HistoryStore, item: Id, owners: Sequence[Owner], snapshot: Snapshot) -> dict[Id, int]:
    """The counts of other items near it in the histories of these owners, by events of the kinds that count."""
    counts: Counter[Id] = Counter()
    for owner in dict.fromkeys(owners):
        items = _history(store, owner, snapshot)
        for place in (at for at, each in enumerate(items) if each == item):
            counts.update(items[at] for at in items_near(np.arange(len(items)), place).tolist() if items[at] != item)
    return dict(counts)


def _history(store: HistoryStore, owner: Owner, snapshot: Snapshot) -> Sequence[Id]:
    """The stored history, with the end of the model's own before it if all of it is later."""
    kinds, names = snapshot.kinds.counted, snapshot.names
    stored = store.history(owner, last=_LAST, types=kinds)
    if len(stored.items) == _LAST or snapshot.hides(stored.erased) or not is_in_model(snapshot, owner):
        return stored.items
    if snapshot.end is not None:
        later = store.history(owner, after=snapshot.end, last=_LAST, types=kinds)
        if len(later.items) < len(stored.items):
            return stored.items
    assert names.users is not None
    own = names.history_of(int(indices_of(names.users, [owner])[0]))
    return [*told_ids(names.items, own[-WITHIN:]), *stored.items]
