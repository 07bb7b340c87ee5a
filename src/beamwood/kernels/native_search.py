"""The native core that searches with given weights, and its searches that run later.

Shape legend: L history length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError, unsound_score
from beamwood.kernels.din import DinWeights
from beamwood.kernels.reference import SearchResult
from beamwood.tree.tree import Shape

__all__ = ["Later", "native_search", "without_native_form"]

_NATIVE = ("similarity", "seen", "neighbours")
"""The terms implemented in the native core (native/search)."""


class Later:
    """A search of one row that runs later, on the native core's threads (`module.Background`): `task` is its own."""

    __slots__ = ("task",)

    def __init__(self, task: Any) -> None:
        self.task = task

    def found(self) -> SearchResult:
        """Its result, once it ran. Errors: `ArtefactError` where a score is not a number."""
        try:
            return SearchResult(*self.task.result())
        except OverflowError:
            raise unsound_score() from None


def without_native_form(weights: DinWeights) -> str:
    """Why the native core cannot search, "" where it can: it has one place for each form."""
    foreign, free = [], [*_NATIVE]
    for name, part in weights.terms.items():
        if part.term.native in free:
            free.remove(part.term.native)
        else:
            foreign.append(f"'{name}'")
    return f"no native form is known of the term {', '.join(foreign)}" if foreign else ""


def native_search(
    module: Any,
    weights: DinWeights,
    shape: Shape,
    level: str,
    precision: str,
    by_path: bool,
    table_nodes: int,
    threads: int,
) -> Any:
    """The native searcher, which keeps the arrays of `weights` alive. Errors: bfloat16 without AMX."""
    use_amx = precision != "float32" and level == "v4" and module.has_amx()
    if precision == "bf16" and not use_amx:
        raise InputError("precision='bf16' needs a processor with AMX; use 'exact'")
    layers = [weights.attention_in, weights.attention_out, *weights.layers]
    terms = {part.term.native: part.arrays for part in weights.terms.values()}
    return module.Searcher(
        weights.nodes,
        [(layer.weight, layer.bias, layer.slope) for layer in layers],
        weights.windows,
        (shape.root_fanout, shape.branching, shape.depth),
        level,
        precision if use_amx else "float32",
        by_path,
        table_nodes,
        _similarity(weights, terms),
        _neighbours(terms),
        None if weights.light is None else tuple(weights.light.arrays().values()),
        threads,
    )


def _similarity(weights: DinWeights, terms: dict[str, dict[str, NDArray[Any]]]) -> tuple[NDArray[Any], ...] | None:
    """The similarity and seen terms, which the core has as one; zeros for an absent one."""
    if "similarity" not in terms and "seen" not in terms:
        return None
    nothing = np.zeros(weights.history_length, np.float32)
    own = terms.get("similarity") or {"vectors": np.zeros((len(weights.nodes), 1), np.float32), "places": nothing}
    return own["vectors"], own["places"], terms.get("seen", {"weights": nothing})["weights"]


def _neighbours(terms: dict[str, dict[str, NDArray[Any]]]) -> tuple[Any, ...] | None:
    own = terms.get("neighbours")
    if own is None:
        return None
    return own["leaves"], own["chances"], own["shares"], own["places"], float(own["gain"][0])
