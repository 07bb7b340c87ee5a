"""What several trainings on the same data start from, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from beamwood.data.dataset import Dataset
from beamwood.types import FloatArray

__all__ = ["is_remembering", "remembered", "remembering"]

# By data set and key; the data set is kept too, so that its id stays its own.
_KEPT: ContextVar[dict[Hashable, tuple[Dataset, FloatArray]] | None] = ContextVar("kept", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Within it, what is `remembered` is made once for each data set and key."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def is_remembering() -> bool:
    """Is what is made here likely wanted again?"""
    return _KEPT.get() is not None


def remembered(train: Dataset, key: Hashable, make: Callable[[], tuple[FloatArray, bool]]) -> FloatArray:
    """A copy of what `make` brought within this `remembering`, else what it brings; and whether that is to be kept."""
    kept = _KEPT.get()
    if kept is not None and (id(train), key) in kept:
        return kept[id(train), key][1].copy()
    made, keep = make()
    if kept is not None and keep:
        kept[id(train), key] = train, made.copy()
    return made
