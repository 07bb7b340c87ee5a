"""Values that are computed once for whoever asks first, such as what searchers derive from a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kept", "Prepared"]

_T = TypeVar("_T")


class Kept:
    """A cache keyed by the identity of an owner; the owner is kept alive, so that its `id` is not reused."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, Any]] = {}

    def once(self, owner: object, make: Callable[[], _T]) -> _T:
        """The cached result of `make` for this owner, which must not change between calls."""
        if id(owner) not in self._made:
            self._made[id(owner)] = owner, make()
        made: _T = self._made[id(owner)][1]
        return made


class Prepared(Kept):
    """A filter bool[N] with the arrays that searchers derived from it, each computed once.

    `grown` is called after one was derived, also from a filter among them.
    """

    __slots__ = ("grown", "mask")

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        super().__init__()
        self.mask, self.grown = mask, _nothing

    def once(self, owner: object, make: Callable[[], _T]) -> _T:
        """See `Kept`."""
        is_new = id(owner) not in self._made
        made = super().once(owner, make)
        if is_new:
            for part in _parts(made):
                if isinstance(part, Prepared):
                    part.grown = self.grown
            self.grown()
        return made

    @property
    def nbytes(self) -> int:
        """The bytes of the mask and of the derived arrays."""
        # A copy: another thread's search may add to it meanwhile.
        made = [part for _, each in list(self._made.values()) for part in _parts(each)]
        return self.mask.nbytes + sum(part.nbytes for part in made if isinstance(part, np.ndarray | Prepared))


def _nothing() -> None:
    """For filters that no cache has."""


def _parts(made: object) -> tuple[object, ...]:
    return made if isinstance(made, tuple) else (made,)
