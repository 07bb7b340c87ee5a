"""A cache of initial trees, vectors and weights for several trainings on the same data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar, cast

from beamwood.data.dataset import Dataset
from beamwood.training.budget import Budget

__all__ = ["cached", "cached_values", "caching", "is_caching"]

Value = TypeVar("Value")


class _Entry(NamedTuple):
    """A value computed from `train`, which is referenced so that its id is not reused; notes on skipped work."""

    train: Dataset
    value: Any
    left_out: list[str]


_CACHE: ContextVar[dict[tuple[int, Hashable], _Entry] | None] = ContextVar("start_cache", default=None)


@contextmanager
def caching() -> Iterator[None]:
    """A context in which `cached` computes each value once for a data set and key."""
    token = _CACHE.set({})
    try:
        yield
    finally:
        _CACHE.reset(token)


def is_caching() -> bool:
    """Whether a `caching` context is active."""
    return _CACHE.get() is not None


def cached_values(train: Dataset) -> dict[Hashable, Any]:
    """All cached values of a data set, by key."""
    return {key: entry.value for (own, key), entry in (_CACHE.get() or {}).items() if own == id(train)}


def cached(train: Dataset, key: Hashable, compute: Callable[[], Value], budget: Budget | None = None) -> Value:
    """The result of `compute`, cached within `caching`; it must not be modified.

    The notes on work that `compute` skipped are added to `budget` at each use.
    """
    cache, notes = _CACHE.get(), [] if budget is None else budget.left_out
    if cache is not None and (id(train), key) in cache:
        entry = cache[id(train), key]
        if budget is not None:
            for line in entry.left_out:
                budget.leave_out(line)
        return cast("Value", entry.value)
    before = len(notes)
    value = compute()
    if cache is not None:
        cache[id(train), key] = _Entry(train, value, notes[before:])
    return value
