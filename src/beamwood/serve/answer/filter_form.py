"""A body's filter in the terms of the package: allowed ids, and conditions on item columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.columns.item_columns import CATEGORY
from beamwood.retrieval.columns.where import where_mask
from beamwood.serve.answer.ids import indices_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Filter, Promote
from beamwood.serve.problems import Problem, of_input

__all__ = ["allowed_and_where", "conditions_of", "filter_name", "refusing"]


def filter_name(given: Filter) -> str:
    """A short name of a filter, equal for equal ones, for the log."""
    return hashlib.blake2b(msgspec.json.encode(given), digest_size=6).hexdigest()


def conditions_of(given: Filter | None, promote: Sequence[Promote] = ()) -> dict[str, dict[str, Any]]:
    """What the filters of a request say of item columns: by the path of a field, a mapping for `where`."""
    filters = {} if given is None else {"filter": given}
    filters |= {f"promote[{place}].filter": each.filter for place, each in enumerate(promote)}
    return {f"{path}.{name}": part for path, each in filters.items() for name, part in _parts(each).items()}


def _parts(given: Filter) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    if given.category is not None:
        parts["category"] = {CATEGORY: {"in": given.category}}
    if given.all_of is not None:
        parts["all_of"] = {CATEGORY: {"all_of": given.all_of}}
    if given.none_of is not None:
        parts["none_of"] = {"not": {CATEGORY: {"in": given.none_of}}}
    if given.where is not None:
        parts["where"] = given.where
    return parts


@contextmanager
def refusing(snapshot: Snapshot, given: Filter | None, promote: Sequence[Promote] = ()) -> Iterator[None]:
    """A context in which errors of the package become problems of a request with these filters; of a damaged model they
    are the service's own.
    """
    try:
        yield
    except ArtefactError as error:
        raise Problem("internal", str(error)) from None
    except InputError as error:
        raise _refused(error, snapshot, given, promote) from None
    except (RecursionError, OverflowError) as error:
        message = f"the filter cannot be read ({error}); nest less, and give smaller numbers"
        raise Problem("invalid_request", message, field="filter") from None


def _refused(error: InputError, snapshot: Snapshot, given: Filter | None, promote: Sequence[Promote]) -> Problem:
    """The problem of a refusal by the core; the field is that of the condition which is refused, if one is."""
    problem = of_input(error)
    for field, where in conditions_of(given, promote).items():
        try:
            where_mask(where, snapshot.names.filters.columns)
        except InputError:
            problem.field = field
            break
    return problem


def allowed_and_where(
    given: Filter | None, snapshot: Snapshot, *, most_ids: int
) -> tuple[list[Any] | None, dict[str, Any] | None]:
    """`allowed` and `where` of a `Request`; ids that the catalogue lacks are left out.

    Errors: `Problem` on too many ids.
    """
    if given is None:
        return None, None
    parts = [*_parts(given).values()]
    where = None if not parts else parts[0] if len(parts) == 1 else {"all": parts}
    if given.items is None:
        return None, where
    if len(given.items) > most_ids:
        message = f"filter.items has {len(given.items)} ids; give {most_ids} at most"
        raise Problem("invalid_request", message, field="filter.items")
    places = indices_of(snapshot.names.items, given.items)
    return [each for each, place in zip(given.items, places.tolist(), strict=True) if place >= 0], where
