"""The items near an item's events, in the stored histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from beamwood.retrieval.new_items.sources import items_near
from beamwood.serve.store.event import Id, Owner
from beamwood.serve.store.protocol import HistoryStore

__all__ = ["near_of"]

# The latest events of a history that are read.
_LAST = 200


def near_of(
    store: HistoryStore, item: Id, owners: Sequence[Owner], types: Collection[str] | None = None
) -> dict[Id, int]:
    """The counts of other items near it in the histories of these owners, by events of these types."""
    counts: Counter[Id] = Counter()
    for owner in dict.fromkeys(owners):
        items = store.history(owner, last=_LAST, types=types).items
        for place in (at for at, each in enumerate(items) if each == item):
            counts.update(items[at] for at in items_near(np.arange(len(items)), place).tolist() if items[at] != item)
    return dict(counts)
