"""The time of an answer on one core; contenders take turns over the same users, so that drift affects all alike.

Times are processor time of this process, which compares better than wall time on a shared machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["AVX2", "Spent", "seconds_inside", "spent_in_turns"]

AVX2 = {"BEAMWOOD_LEVEL": "v3", "OPENBLAS_CORETYPE": "Haswell", "FAISS_OPT_LEVEL": "AVX2"}
"""An environment that limits kernels, numpy and faiss to AVX2."""

_TURN, _WARM = 20, 3


@dataclass
class Spent:
    """Milliseconds of each answer: in total, and inside compiled code."""

    ms: list[float] = field(default_factory=list)
    inside_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Median, 99th percentile, and the median outside compiled code, if any was called."""
        ms, inside = np.array(self.ms), np.array(self.inside_ms)
        figures = {"ms/median": float(np.median(ms)), "ms/p99": float(np.quantile(ms, 0.99))}
        return figures | ({"ms/around": float(np.median(ms - inside))} if inside.any() else {})


class _Timed:
    """A wrapper that times all calls of an object; `seconds`: their total."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.seconds = inner, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return found(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began

        return timed


@contextmanager
def seconds_inside(places: Sequence[tuple[Any, str]]) -> Iterator[Callable[[], float]]:
    """A context that times the objects under these attributes; its value returns their seconds so far."""
    before = [(owner, name, getattr(owner, name)) for owner, name in places if getattr(owner, name) is not None]
    timed = []
    for owner, name, inner in before:
        timed.append(_Timed(inner))
        setattr(owner, name, timed[-1])
    try:
        yield lambda: sum(each.seconds for each in timed)
    finally:
        for owner, name, inner in before:
            setattr(owner, name, inner)


def spent_in_turns(
    asks: Mapping[str, Callable[[int], Any]],
    inside: Mapping[str, Sequence[tuple[Any, str]]],
    count: Mapping[str, int],
    between: Callable[[], Any] = lambda: None,
) -> dict[str, Spent]:
    """The times of each contender's `count` answers; `asks[key](number)` answers query `number`.

    Each turn of 20 answers starts with 3 that are not counted; `between` is called after each round of turns.
    """
    spent = {key: Spent() for key in asks}
    for start in range(0, max(count.values()), _TURN):
        for key, ask in asks.items():
            turn = range(start, min(start + _TURN, count[key]))
            if turn:
                with seconds_inside(inside[key]) as seconds:
                    _take(ask, turn, spent[key], seconds)
        between()
    return spent


def _take(ask: Callable[[int], Any], turn: range, spent: Spent, seconds: Callable[[], float]) -> None:
    for number in [*turn][:_WARM]:
        ask(number)
    for number in turn:
        before, began = seconds(), time.process_time()
        ask(number)
        spent.ms.append(1000 * (time.process_time() - began))
        spent.inside_ms.append(1000 * (seconds() - before))
