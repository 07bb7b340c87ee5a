"""The limits of what a request may ask: within them no search takes far longer than others.

They are checked on the event loop, so what is refused costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from beamwood.serve.answer.filter_form import conditions_of
from beamwood.serve.messages import Filter, Promote, Recommend
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits

__all__ = ["check_filters", "check_limits"]


def check_limits(body: Recommend, num_items: int, limits: Limits) -> None:
    """Errors: `Problem` on more than there may be, by the field."""
    if body.k > limits.k:
        raise Problem("invalid_request", f"k={body.k} is above {limits.k}; ask for fewer, or for pages", field="k")
    # Wider than the catalogue is as wide as it.
    if body.beam_width is not None and min(body.beam_width, num_items) > limits.beam_width:
        message = f"beam_width={body.beam_width} is above {limits.beam_width}; ask for a narrower beam"
        raise Problem("invalid_request", message, field="beam_width")
    if len(body.exclude) > limits.filter_ids:
        message = f"exclude has {len(body.exclude)} ids; give {limits.filter_ids} at most"
        raise Problem("invalid_request", message, field="exclude")
    if body.filter is not None or body.promote:
        check_filters(body.filter, limits, body.promote)


def check_filters(given: Filter | None, limits: Limits, promote: Sequence[Promote] = ()) -> None:
    """Errors: `Problem` on too many conditions, in the filter and in promotions, or on too many promotions."""
    if len(promote) > limits.promotions:
        message = f"promote has {len(promote)} promotions; give {limits.promotions} at most"
        raise Problem("invalid_request", message, field="promote")
    left = limits.conditions
    for field, where in conditions_of(given, promote).items():
        left -= _checked(where, field, left, limits)


def _checked(where: Any, field: str, left: int, limits: Limits) -> int:
    """The number of conditions. Errors: `Problem` on more than are `left`."""
    count, parts = 0, [where]
    while parts:
        part = parts.pop()
        # What is no mapping is refused where it is read.
        for name, wanted in part.items() if isinstance(part, Mapping) else ():
            if name in ("all", "any", "not"):
                count += 1
                parts += wanted if isinstance(wanted, list) else [wanted]
            else:
                words = wanted if isinstance(wanted, Mapping) else {"in": wanted}
                # Each is one, except for an empty `all_of`.
                some = islice(words.items(), left + 2)
                count += max(1, sum(_count(field, word, value, limits) for word, value in some))
            if count > left:
                message = (
                    f"the filters of the request have more than {limits.conditions} conditions; give fewer, and the "
                    "values of a column as one list"
                )
                raise Problem("invalid_request", message, field=field)
    return count


def _count(field: str, word: str, value: Any, limits: Limits) -> int:
    """The conditions that an operator is. Errors: `Problem` on too many values."""
    number = len(value) if isinstance(value, list) else 1
    if number > limits.filter_ids:
        message = f"{field} has a list of {number} values; give {limits.filter_ids} at most"
        raise Problem("invalid_request", message, field=field)
    return number if word == "all_of" else 1
