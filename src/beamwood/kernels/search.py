"""Search with a DIN scorer: by beam, over given leaves, or over all leaves; native where built, else numpy.

Shape legend: B rows, M leaves a row, L history length, K results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError, nearest, unsound_score
from beamwood.kernels.arrays import aligned
from beamwood.kernels.din import DinWeights
from beamwood.kernels.dispatch import native, native_level
from beamwood.kernels.light import Way
from beamwood.kernels.native_search import Later, native_search, without_native_form
from beamwood.kernels.numpy_search import NumpySearcher
from beamwood.kernels.reference import ExcludedLeaves, LiveCounts, SearchResult
from beamwood.kernels.search_arguments import (
    MAX_K,
    MAX_THREADS,
    check_k,
    check_width,
    checked_excluded,
    checked_histories,
    checked_live,
    checked_nodes,
    no_lists,
)
from beamwood.kernels.steering import Visited
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = ["PRECISIONS", "DinSearch", "Queue"]

PRECISIONS = ("exact", "float32", "bf16")


class Queue(NamedTuple):
    """Counts of this process: rows `asked`, how many `waited` for a thread, and the `most_ahead` of one."""

    asked: int
    waited: int
    most_ahead: int


class DinSearch:
    """Finds leaves with a DIN scorer on a tree's shape; built once, used for many batches, from any number of threads.

    `weights` are referenced, not copied: build anew when they change. `threads`: rows searched at once, over all
    callers together, which take turns row by row in the order of their calls. It stays usable after a fork.

    `precision`: "float32"; "exact" gives the results of float32, on AMX by split bf16 with a measured, not derived,
    bound on its error; "bf16" rounds products and may change results (native with AMX only). `level` forces an
    instruction set of the native core. `by_path`: the score of a leaf is the log-probability of its path, each step's
    probability the sigmoid of the scorer's value (PLT), always in float32. `table_nodes`: on levels of at most this
    many nodes the attention of each node to each is computed once and cached (4 bytes a pair; native only), which
    changes no bit of a float32 score. A scorer with a term that has no native form is searched by numpy, with a warning
    and the reason in `why_numpy`. Raises `InputError` for nodes that do not fit the shape or unknown choices; every
    search raises `ArtefactError` where a score is not a number, as of a damaged weight.
    """

    def __init__(
        self,
        weights: DinWeights,
        shape: Shape,
        *,
        threads: int = 1,
        precision: str = "exact",
        level: str | None = None,
        by_path: bool = False,
        table_nodes: int = 512,
    ) -> None:
        if not 0 <= table_nodes < 1 << 14:
            raise InputError(f"table_nodes={table_nodes} is outside 0..16383")
        if precision not in PRECISIONS:
            raise InputError(f"precision={precision!r} is unknown{nearest(precision, PRECISIONS)}")
        if not 1 <= threads <= MAX_THREADS:
            raise InputError(f"threads={threads} is outside 1..{MAX_THREADS}")
        if len(weights.nodes) != shape.num_nodes:
            raise InputError(f"the scorer has {len(weights.nodes)} nodes; a tree of {shape} has {shape.num_nodes}")
        if by_path and precision == "bf16":
            raise InputError("precision='bf16' rounds too much to be summed along a path; use 'exact'")
        if by_path and weights.light is not None:
            raise InputError("a light head does not steer a search by path; fit with model.light_width=0")
        precision = "float32" if by_path else precision
        self.weights, self.shape, self.threads, self.precision = weights, shape, threads, precision
        self.by_path, self.table_nodes = by_path, table_nodes
        self._with = partial(
            DinSearch, threads=threads, precision=precision, level=level, by_path=by_path, table_nodes=table_nodes
        )
        self.module = module = native()
        self.why_numpy = "the native core is not in use" if module is None else without_native_form(weights)
        # The two have the same methods.
        self._core: Any
        if not self.why_numpy:
            self._core = native_search(
                module, weights, shape, native_level(level), precision, by_path, table_nodes, threads
            )
        elif precision == "bf16":
            raise InputError(f"precision='bf16' needs the native core, but {self.why_numpy}; use 'exact'")
        else:
            self._core = NumpySearcher(weights, shape, by_path)
            if module is not None:
                # Python shows a warning of one text once.
                warnings.warn(f"{self.why_numpy}: the tree is searched by numpy, which is slow", stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        """The native core is rebuilt when a copy is unpickled."""
        return self._with, (self.weights, self.shape)

    def of(self, weights: DinWeights, shape: Shape | None = None) -> DinSearch:
        """The same settings with other weights, and another shape where one is given."""
        return self._with(weights, shape or self.shape)

    def after_writing(self) -> DinSearch:
        """A search over leaves written since: itself, unless it holds tables of the leaves."""
        return self if self.shape.capacity > self.table_nodes else self.of(self.weights)

    @property
    def queue(self) -> Queue:
        """How its callers waited for each other; zeros with numpy."""
        return Queue(*self._core.queue())

    def beam(
        self,
        history_BL: IndexArray,
        *,
        beam_width: int,
        k: int,
        live: LiveCounts,
        excluded: ExcludedLeaves | None = None,
    ) -> SearchResult:
        """The k best leaves a beam of `beam_width` nodes finds for each row: see `reference.beam_search`.

        `live` of fewer levels ends the search there: the result is nodes of the last of them. Errors: k outside
        1..beam_width, leaves outside the shape, arrays whose shapes do not fit.
        """
        check_width(k, beam_width)
        last = min(len(live) - 1, self.shape.depth)
        # A width beyond the leaves has no effect; an answer still has k columns.
        width = min(beam_width, self.shape.capacity)
        return self._found(self._core.beam, history_BL, (width, k), live, excluded, last)

    def steered(
        self,
        history_BL: IndexArray,
        way: Way,
        *,
        k: int,
        live: LiveCounts,
        excluded: ExcludedLeaves | None = None,
        again: bool = False,
    ) -> SearchResult:
        """The k best leaves found by a way steered by the light head: see `steering.steered_search`.

        Errors: no light head, a way without one, and as `beam`.
        """
        if self.weights.light is None or way.kind == "beam":
            raise InputError(f"{way} is steered by no light head; use `beam`, or fit with model.light_width above 0")
        check_width(k, way.beam_width)
        return self._found(
            self._core.steered, history_BL, (self._numbers(way, again), k), live, excluded, self.shape.depth
        )

    def _numbers(self, way: Way, again: bool) -> tuple[int, int, bool, bool]:
        """A steered way in the form of the core; counts beyond the leaves have no effect."""
        capacity = self.shape.capacity
        return min(way.beam_width, capacity), min(way.judged, capacity), way.kind == "cascade", again

    def later(
        self,
        history_BL: IndexArray,
        way: Way,
        *,
        k: int,
        live: LiveCounts,
        excluded: ExcludedLeaves | None = None,
        again: bool = False,
    ) -> Later | None:
        """`beam` or `steered` of one row, to run later; None where they do not run in the native core, or convert or
        refuse an argument.
        """
        if self.why_numpy or not 1 <= k <= min(way.beam_width, MAX_K):
            return None
        lists = excluded or no_lists(len(history_BL))
        width = min(way.beam_width, self.shape.capacity)
        try:
            if way.kind == "beam":
                return Later(self._core.beam(history_BL, width, k, live, *lists, later=True))
            return Later(self._core.steered(history_BL, self._numbers(way, again), k, live, *lists, later=True))
        except (TypeError, ValueError):
            return None

    def visit(
        self,
        history_BL: IndexArray,
        *,
        beam_width: int,
        steered: bool,
        most: int,
        offsets: NDArray[np.float64],
        live: LiveCounts,
    ) -> Visited:
        """The candidates of a beam on each level, with the scorer's scores: see `steering.visit`."""
        if self.by_path or (steered and self.weights.light is None):
            raise InputError("a steered visit needs a light head, and no visit supports scores by path")
        history, live = self._histories(history_BL), checked_live(self.shape, live)
        offsets = aligned(offsets, np.float64)
        return Visited(*_sound(self._core.visit, history, beam_width, steered, most, offsets, live))

    def score(self, history_BL: IndexArray, nodes_BM: IndexArray, *, level: int | None = None) -> NDArray[np.float32]:
        """float32[B, M], the score of each given node of a level (None: the leaves); -inf where it is -1."""
        level = self.shape.depth if level is None else level
        history, nodes = self._histories(history_BL), checked_nodes(self.shape, "nodes_BM", nodes_BM, level)
        if len(nodes) != len(history):
            raise InputError(f"nodes_BM has {len(nodes)} rows for {len(history)} histories; give one row each")
        scores: NDArray[np.float32] = _sound(self._core.score, history, level, nodes)
        return scores

    def exact(
        self, history_BL: IndexArray, k: int, *, live: LiveCounts, excluded: ExcludedLeaves | None = None
    ) -> SearchResult:
        """The k best of all live leaves for each row, each scored: brute force, which a beam approximates."""
        if k < 1:
            raise InputError(f"k={k} is below 1; ask for at least one leaf")
        check_k(k)
        if self.by_path:
            capacity = self.shape.capacity
            found = self.beam(history_BL, beam_width=max(k, capacity), k=min(k, capacity), live=live, excluded=excluded)
            return _padded(found, k)
        return self._found(self._core.exact, history_BL, (k,), live, excluded, self.shape.depth)

    def _found(
        self,
        search: Callable[..., Any],
        history_BL: IndexArray,
        numbers: tuple[Any, ...],
        live: LiveCounts,
        excluded: ExcludedLeaves | None,
        last: int,
    ) -> SearchResult:
        """The result of a search of the core. Errors: arguments that do not fit the shape, and `ArtefactError` where a
        score is not a number. `last`: the level of the last counts in `live`.

        The native core checks all arguments. If it refuses them, they are converted here, or the error is raised.
        """
        if not self.why_numpy:
            try:
                return SearchResult(*search(history_BL, *numbers, live, *(excluded or no_lists(len(history_BL)))))
            except OverflowError:
                raise unsound_score() from None
            except (TypeError, ValueError):
                pass
        history, live = self._histories(history_BL), checked_live(self.shape, live, last)
        lists = checked_excluded(self.shape, excluded or no_lists(len(history)), len(history))
        return SearchResult(*_sound(search, history, *numbers, live, *lists))

    def _histories(self, history_BL: IndexArray) -> NDArray[np.int32]:
        return checked_histories(self.shape, self.weights.history_length, history_BL)


def _sound(search: Callable[..., Any], *arguments: Any) -> Any:
    """The core's result. Errors: `ArtefactError` where a score is not a number."""
    try:
        return search(*arguments)
    except OverflowError:
        raise unsound_score() from None


def _padded(found: SearchResult, k: int) -> SearchResult:
    """k columns, those beyond the leaves empty."""
    more = ((0, 0), (0, k - found.leaves.shape[1]))
    scores = np.pad(found.scores, more, constant_values=-np.inf)
    return SearchResult(np.pad(found.leaves, more, constant_values=-1), scores, found.scored)
