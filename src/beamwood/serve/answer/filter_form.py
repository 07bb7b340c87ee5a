"""A body's filter in the terms of the package: allowed ids, and conditions on item columns."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from beamwood.retrieval.columns.item_columns import CATEGORY
from beamwood.serve.answer.snapshot import Snapshot, indices_of
from beamwood.serve.messages import Filter
from beamwood.serve.problems import Problem

__all__ = ["allowed_and_where", "conditions_of", "filter_name"]


def filter_name(given: Filter) -> str:
    """A short name of a filter, equal for equal ones, for the log."""
    return hashlib.blake2b(msgspec.json.encode(given), digest_size=6).hexdigest()


def conditions_of(given: Filter) -> list[dict[str, Any]]:
    """What a filter says of item columns, as mappings of which an item meets all."""
    parts: list[dict[str, Any]] = []
    if given.category is not None:
        parts.append({CATEGORY: {"in": given.category}})
    if given.all_of is not None:
        parts.append({CATEGORY: {"all_of": given.all_of}})
    if given.none_of is not None:
        parts.append({"not": {CATEGORY: {"in": given.none_of}}})
    if given.where is not None:
        parts.append(given.where)
    return parts


def allowed_and_where(
    given: Filter | None, snapshot: Snapshot, *, most_ids: int
) -> tuple[list[Any] | None, dict[str, Any] | None]:
    """`allowed` and `where` of a `Request`; ids that the catalogue lacks are left out.

    Errors: `Problem` on too many ids.
    """
    if given is None:
        return None, None
    parts = conditions_of(given)
    where = None if not parts else parts[0] if len(parts) == 1 else {"all": parts}
    if given.items is None:
        return None, where
    if len(given.items) > most_ids:
        message = f"filter.items has {len(given.items)} ids; give {most_ids} at most"
        raise Problem("invalid_request", message, field="filter.items")
    places = indices_of(snapshot.names.items, given.items)
    return [each for each, place in zip(given.items, places.tolist(), strict=True) if place >= 0], where
