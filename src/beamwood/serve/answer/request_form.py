"""From a body to what is asked of the searcher."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.retrieval.request import Request
from beamwood.retrieval.rules import Rules, rules_of
from beamwood.serve.answer.asking import KnownHistory, StoredHistory, check_needs, known_of
from beamwood.serve.answer.filter_form import allowed_and_where
from beamwood.serve.answer.ids import indices_of, told_ids
from beamwood.serve.answer.kept import rejected_of
from beamwood.serve.answer.rungs import Rung, rung_at
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Recommend
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits
from beamwood.types import ItemLists, Query, SearchOptions

__all__ = ["Asked", "asked_of"]


@dataclass(slots=True, eq=False)
class Asked:
    """What a body asks of the searcher."""

    known: KnownHistory
    rung: Rung
    rules: Rules | None
    query: Query
    k: int
    options: SearchOptions


def asked_of(snapshot: Snapshot, body: Recommend, kept: StoredHistory, limits: Limits, pressure: float) -> Asked:
    """The query and the options of a body, narrowed by the pressure of 0..1.

    Errors: `Problem` and `InputError` on what does not fit the snapshot.
    """
    known = known_of(snapshot, body, kept)
    rung = _rung(snapshot, body, pressure)
    wanted = min(max(body.k, limits.pages_k) if body.pages else body.k, snapshot.num_items)
    unwanted = rejected_of(snapshot, body, kept, known.user) if body.exclude_rejected else None
    request = _request(snapshot, body, known, unwanted, wanted, rung, limits)
    query, k, options = snapshot.names.resolve(request, snapshot.needs)
    if body.explain != "none":
        options = replace(options, explain=True)
    return Asked(known, rung, rules_of(request, k, snapshot.names.filters), query, k, options)


def _rung(snapshot: Snapshot, body: Recommend, pressure: float) -> Rung:
    """How to search: as the body says, else narrowed by the pressure."""
    if body.beam_width is None and body.effort is None:
        return rung_at(snapshot.rungs, pressure)
    if body.beam_width is not None and body.effort is not None:
        raise Problem("invalid_request", "give beam_width or effort, not both", field="effort")
    tree = snapshot.tree
    if tree is None:
        field = "effort" if body.beam_width is None else "beam_width"
        raise Problem("invalid_request", f"this model has no tree; leave {field} out", field=field)
    if body.effort is not None:
        return Rung(tree.ways.of(body.effort).beam_width, effort=body.effort)
    assert body.beam_width is not None
    width = min(body.beam_width, snapshot.num_items)
    return Rung(width, width=width)


def _request(
    snapshot: Snapshot,
    body: Recommend,
    known: KnownHistory,
    unwanted: NDArray[np.int32] | None,
    k: int,
    rung: Rung,
    limits: Limits,
) -> Request:
    allowed, where = allowed_and_where(body.filter, snapshot, most_ids=limits.filter_ids)
    snapshot.fields.check(body.fields)
    exclude = None if unwanted is None else told_ids(snapshot.names.items, unwanted)
    if body.exclude:
        places = indices_of(snapshot.names.items, body.exclude).tolist()
        given = [each for each, at in zip(body.exclude, places, strict=True) if at >= 0]
        exclude = given + (exclude or [])
    promote = [
        {"where": _condition(snapshot, each.filter, place, limits), "share": each.share, "name": each.name}
        for place, each in enumerate(body.promote)
    ]
    needs = snapshot.needs
    check_needs(needs, body)
    asked = [known.user] if needs.users and body.user is not None else None
    context = None if body.context is None else {name: [value] for name, value in body.context.items()}
    history = ItemLists.unchecked(np.array([0, len(known.history)], np.int64), known.history)
    return Request(
        histories=history,
        k=k,
        users=asked,
        allowed=allowed,
        context=context,
        seen="remove" if body.exclude_seen else "keep",
        on_unknown="ignore",
        where=where,
        exclude=exclude,
        max_per_category=body.max_per_category,
        diversity=body.diversity,
        promote=promote,
        effort=rung.effort,
        beam_width=rung.width,
    )


def _condition(snapshot: Snapshot, given: Any, place: int, limits: Limits) -> dict[str, Any]:
    allowed, where = allowed_and_where(given, snapshot, most_ids=limits.filter_ids)
    if allowed is not None or where is None:
        message = "a promotion's filter says category, all_of, none_of or where"
        raise Problem("invalid_request", message, field=f"promote[{place}].filter")
    return where
