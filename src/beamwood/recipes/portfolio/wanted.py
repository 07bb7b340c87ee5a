"""What a search for the best method is asked for, and who hears how it goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever

__all__ = ["Reports", "Wanted", "check_bounds"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: the best `monitor` on validation users within `time_limit` seconds, an answer of which takes
    at most `budget_ms` milliseconds and `budget_mb` megabytes where these are given.
    """

    time_limit: float
    monitor: str
    seed: int = 0
    budget_ms: float | None = None
    budget_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Reports:
    """Who hears how a search goes: `say` takes a line, `better` each retriever that is the best so far."""

    say: Callable[[str], None] = lambda _: None
    better: Callable[[Retriever], None] = lambda _: None


def check_bounds(bounds: Mapping[str, Any]) -> None:
    """Errors: a bound, by name, that is given and no number above 0."""
    for name, value in bounds.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < math.inf):
            raise InputError(f"{name}={value!r} is no number above 0; leave it out for none")
