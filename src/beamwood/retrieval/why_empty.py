"""Why an answer has no items: the filter, seen, rejected and excluded items, or the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beamwood.retrieval.request import Request, as_list
from beamwood.retrieval.resolve import Names
from beamwood.types import ItemLists
from beamwood.words import counted

__all__ = ["why_empty"]


def why_empty(
    names: Names, request: Request, found: Sequence[Sequence[Any]], removed: ItemLists | None = None
) -> dict[int, str]:
    """By row, the reason for each row of an answer without items.

    `removed`: the distinct items of each row that were left out as seen or rejected; None: those that `names` has.
    """
    filtered = names.filters.prepared(request.allowed, request.where, on_unknown=request.on_unknown)
    passing = np.ones(len(names.items), bool) if filtered is None else np.asarray(filtered.mask).copy()
    if not passing.any():
        return dict.fromkeys((row for row, items in enumerate(found) if not items), "no item passes the filter")
    asked = request.allowed is not None or request.where is not None
    which = "passing the filter" if asked else "of the catalogue"
    num_passing = int(np.count_nonzero(passing))
    every = f"the only item {which}" if num_passing == 1 else f"every one of the {num_passing:,} items {which}"
    if request.exclude is not None:
        banned = names.items.encode(as_list("exclude", request.exclude), on_unknown=request.on_unknown)
        passing[banned[banned >= 0]] = False
    num_left = int(np.count_nonzero(passing))
    removed = _removed(names, request, len(found)) if removed is None else removed
    reasons = {}
    for row, items in enumerate(found):
        if items:
            continue
        left = num_left - int(np.count_nonzero(passing[removed[row]]))
        if not num_left:
            reasons[row] = f"{every} is excluded"
        elif not left:
            reasons[row] = f"{every} {_gone(request)}"
        elif request.promote or request.max_per_category is not None:
            reasons[row] = "the rules of the request exclude all items"
        else:
            reasons[row] = f"the search missed {counted(left, 'item')} {which}; widen it, or ask for more"
    return reasons


def _removed(names: Names, request: Request, num_rows: int) -> ItemLists:
    """The distinct items of each row that its answer leaves out as seen or rejected."""
    removed = ItemLists.empty(num_rows)
    if request.seen == "remove":
        removed = removed.union(names.known(request.histories, request.users, on_unknown=request.on_unknown))
    if request.rejected == "remove" and request.users is not None:
        removed = removed.union(names.rejected_of(request.users, on_unknown=request.on_unknown))
    return removed


def _gone(request: Request) -> str:
    """In words what left no item, and how to have some."""
    removed = [name for name, what in (("seen", request.seen), ("rejected", request.rejected)) if what == "remove"]
    causes = [*removed, *([] if request.exclude is None else ["excluded"])]
    return f"was {' or '.join(causes)}; pass {removed[0]}='keep' to have them"
