"""Why an answer has no items: the filter, seen items, or the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beamwood.retrieval.request import Request, as_list
from beamwood.retrieval.resolve import Names
from beamwood.words import counted

__all__ = ["why_empty"]


def why_empty(names: Names, request: Request, found: Sequence[Sequence[Any]]) -> dict[int, str]:
    """By row, the reason for each row of an answer without items."""
    filtered = names.filters.prepared(request.allowed, request.where, on_unknown=request.on_unknown)
    passing = np.ones(len(names.items), bool) if filtered is None else np.asarray(filtered.mask).copy()
    if not passing.any():
        return dict.fromkeys((row for row, items in enumerate(found) if not items), "no item passes the filter")
    asked = request.allowed is not None or request.where is not None
    which = "that pass the filter" if asked else "of the catalogue"
    num_passing = int(np.count_nonzero(passing))
    if request.exclude is not None:
        banned = names.items.encode(as_list("exclude", request.exclude), on_unknown=request.on_unknown)
        passing[banned[banned >= 0]] = False
    histories = names.known(request.histories, request.users, on_unknown=request.on_unknown)
    reasons = {}
    for row, items in enumerate(found):
        if items:
            continue
        left = passing.copy()
        if request.seen == "remove":
            left[histories.items[histories.indptr[row] : histories.indptr[row + 1]]] = False
        if not passing.any():
            reasons[row] = f"all {num_passing:,} items {which} are excluded"
        elif not left.any():
            seen = "was seen" if request.exclude is None else "was seen or excluded"
            reasons[row] = f"every one of the {num_passing:,} items {which} {seen}; pass seen='keep' to have them"
        elif request.promote or request.max_per_category is not None:
            reasons[row] = "the rules of the request exclude all items"
        else:
            others = counted(int(np.count_nonzero(left)), "item")
            reasons[row] = f"the search found none of {others} {which}; widen it, or ask for more"
    return reasons
