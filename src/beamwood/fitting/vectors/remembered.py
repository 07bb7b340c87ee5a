"""A cache of the starts that several trainings on the same data share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar, cast

from beamwood.data.dataset import Dataset
from beamwood.training.budget import Budget

__all__ = ["is_remembering", "known", "remembered", "remembering"]

Made = TypeVar("Made")


class Remembered(NamedTuple):
    """Values computed from a data set, which is kept alive so that its id is not reused, and notes of its budget."""

    train: Dataset
    made: Any
    left_out: list[str]


_KEPT: ContextVar[dict[tuple[int, Hashable], Remembered] | None] = ContextVar("kept", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """A context in which `remembered` computes each value once a data set and key."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def is_remembering() -> bool:
    """Whether such a context is active."""
    return _KEPT.get() is not None


def known(train: Dataset) -> dict[Hashable, Any]:
    """All that is cached of a data set, by key."""
    return {key: kept.made for (own, key), kept in (_KEPT.get() or {}).items() if own == id(train)}


def remembered(train: Dataset, key: Hashable, make: Callable[[], Made], budget: Budget | None = None) -> Made:
    """The result of `make`, cached within `remembering`; it must not be modified.

    Notes about what `budget` left out are repeated.
    """
    kept, lines = _KEPT.get(), [] if budget is None else budget.left_out
    if kept is not None and (id(train), key) in kept:
        found = kept[id(train), key]
        if budget is not None:
            for line in found.left_out:
                budget.leave_out(line)
        return cast("Made", found.made)
    before = len(lines)
    made = make()
    if kept is not None:
        kept[id(train), key] = Remembered(train, made, lines[before:])
    return made
