"""The rules of a request for its answer as a whole: category caps, diversity, promotions.

Shape legend: N items.
"""

from __future__ import annotations

import heapq
import math
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamwood.arguments import is_number
from beamwood.errors import InputError, nearest
from beamwood.kept import Prepared
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.request import Request

__all__ = ["Caps", "Promotion", "Rules", "rules_of"]

# The rounding errors of a sum of shares.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Caps:
    """At most `default` items of a category (None: any number), or `own` by the category's code."""

    column: LabelColumn
    default: int | None
    own: Mapping[int, int]

    def has_room(self, counts: Counter[int], code: int) -> bool:
        """Whether a category is below its cap."""
        most = self.own.get(code, self.default)
        return most is None or counts[code] < most

    def full(self, counts: Counter[int]) -> set[int]:
        """The categories that have reached their cap; always those with a cap of 0."""
        full = {code for code, most in self.own.items() if counts[code] >= most}
        if self.default is None:
            return full
        return full | {code for code, n in counts.items() if code not in self.own and n >= self.default}


@dataclass(frozen=True, slots=True)
class Promotion:
    """`count` places of the answer are reserved for the best items of a filter."""

    name: str
    count: int
    filter: Prepared


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one request.

    `known` bool[N]: of others at most `num_others` are taken, unless these run out; None: any number. Promoted ones do
    not count.
    """

    caps: Caps | None = None
    diversity: float = 0.0
    promotions: tuple[Promotion, ...] = ()
    known: Prepared | None = None
    num_others: int = 0


def rules_of(request: Request, k: int, filters: Filters) -> Rules | None:
    """The rules of a request, None without any. Errors: invalid rules."""
    if request.max_per_category is None and not request.diversity and not request.promote:
        return None
    diversity = request.diversity
    if not (is_number(diversity) and 0 <= diversity <= 1):
        raise InputError(f"diversity={diversity!r} is outside 0..1; 0 orders by score, 1 by unlikeness alone")
    caps = None if request.max_per_category is None else _caps(request.max_per_category, filters)
    if not isinstance(request.promote, list | tuple):
        raise InputError(
            f"promote={reprlib.repr(request.promote)} is not a list; write [{{'where': {{..}}, 'share': 0.2}}]"
        )
    shares = [_share(promoted) for promoted in request.promote]
    # Before any filter is made.
    if math.fsum(shares) > 1 + _ROUNDING:
        raise InputError(f"promote: the shares sum to {math.fsum(shares):.6g}; lower them to a sum of 1 at most")
    promotions = (
        _promotion(each, count, filters) for each, count in zip(request.promote, _places(shares, k), strict=True)
    )
    return Rules(caps, float(diversity), tuple(promotions))


def _caps(given: Any, filters: Filters) -> Caps:
    caps = given if isinstance(given, Mapping) else {"default": given}
    for name, most in caps.items():
        if not is_number(most, whole=True) or most < 0:
            raise InputError(f"max_per_category: {name}={most!r} is not a whole number of 0 or more")
    column = filters.category()
    named = {name: most for name, most in caps.items() if name != "default"}
    codes = column.codes_of("max_per_category:", list(named)).tolist()
    default = caps.get("default")
    if default == 0:
        raise InputError("max_per_category=0 leaves nothing; give 1 or more")
    return Caps(column, default, dict(zip(codes, named.values(), strict=True)))


def _share(given: Any) -> float:
    """The share of a promotion. Errors: another form, or a share outside 0..1."""
    known = ("where", "share", "name")
    if not isinstance(given, Mapping) or "share" not in given or not isinstance(given.get("where"), Mapping):
        raise InputError(f"promote holds {given!r}; write {{'where': {{..}}, 'share': 0.2, 'name': 'sale'}}")
    for name in given:
        if name not in known:
            raise InputError(f"promote has a key '{name}'{nearest(str(name), known)}")
    share = given["share"]
    if not (is_number(share) and 0 < share <= 1):
        raise InputError(f"promote: share={share!r} is outside 0..1; 0.2 is every fifth place")
    return float(share)


def _places(shares: Sequence[float], k: int) -> list[int]:
    """The number of places of each promotion: its share of k by largest remainder, but at least 1.

    They sum to k at most, so the last of more than k promotions have none.
    """
    places = [int(number < k) for number in range(len(shares))]
    wanted = min(k, round(math.fsum(max(1.0, share * k) for share in shares)))
    spare = [(count - share * k, number) for number, (count, share) in enumerate(zip(places, shares, strict=True))]
    heapq.heapify(spare)
    for _ in range(wanted - sum(places)):
        above, number = heapq.heappop(spare)
        places[number] += 1
        heapq.heappush(spare, (above + 1, number))
    return places


def _promotion(given: Mapping[str, Any], count: int, filters: Filters) -> Promotion:
    chosen = filters.prepared(None, given["where"])
    assert chosen is not None
    return Promotion(str(given.get("name", "promoted")), count, chosen)
