"""The goal of a search for the best method, and the receivers of its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from beamwood.arguments import is_number
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever

__all__ = ["Reports", "Wanted", "check_bounds"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The goal: the best `monitor` on validation users within `time_limit` seconds, with answers of at most `budget_ms`
    milliseconds and `budget_mb` megabytes where given.
    """

    time_limit: float
    monitor: str
    seed: int = 0
    budget_ms: float | None = None
    budget_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Reports:
    """The receivers of progress: `say` takes a line, `better` each retriever that becomes the best."""

    say: Callable[[str], None] = lambda _: None
    better: Callable[[Retriever], None] = lambda _: None


def check_bounds(bounds: Mapping[str, Any]) -> None:
    """Errors: a given bound that is not a number above 0."""
    for name, value in bounds.items():
        if value is not None and not (is_number(value) and 0 < value < math.inf):
            raise InputError(f"{name}={value!r} is not a number above 0; leave it out for none")
