"""The limits of a request, as options of `beamwood serve`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from beamwood.cli.quantities import parse_duration, parse_size
from beamwood.errors import InputError, nearest

if TYPE_CHECKING:
    from beamwood.serve.settings import Limits

__all__ = ["parse_limits"]


def parse_limits(texts: Sequence[str]) -> Limits:
    """The limits of "k=2000", "body_bytes=1MB", "idle_seconds=5s"; others keep their defaults. Errors: an unknown
    limit, one given twice.
    """
    from beamwood.serve.settings import Limits

    # The share of new items is an option of its own.
    known = {each.name for each in fields(Limits)} - {"new_item_share"}
    given: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise InputError(f"--limit {text!r}: '{name}' is not a limit{nearest(name, known)}")
        if name in given:
            raise InputError(f"--limit {name} is given twice; give it once")
        if name.endswith("_seconds"):
            given[name] = parse_duration(f"--limit {name}", value)
        else:
            given[name] = parse_size(f"--limit {name}", value) if name.endswith("_bytes") else _count(name, value)
        if given[name] <= 0:
            raise InputError(f"--limit {text!r}: a limit is above 0")
    return replace(Limits(), **given)  # type: ignore[arg-type]


def _count(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"--limit {name}={text!r} is not a whole number; write {name}=1000")
    return int(text)
