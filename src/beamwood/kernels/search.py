"""Search with a DIN scorer: by beam, over given leaves, or over all leaves; native where built, else numpy.

Shape legend: B rows, M leaves a row, L history length, K results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError, nearest, unsound_score
from beamwood.kernels import reference, steering
from beamwood.kernels.arrays import aligned
from beamwood.kernels.din import DinWeights
from beamwood.kernels.dispatch import native, native_level
from beamwood.kernels.light import Way
from beamwood.kernels.native_search import Later, native_search, without_native_form
from beamwood.kernels.reference import SearchResult
from beamwood.kernels.steering import Visited
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = ["PRECISIONS", "DinSearch", "Queue"]

PRECISIONS = ("exact", "float32", "bf16")
_MOST = 2**31
"""The largest k of the native core."""
Live = tuple[NDArray[np.int32], ...]
Excluded = tuple[NDArray[np.int64], NDArray[np.int32]]


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
        if threads < 1:
            raise InputError(f"threads={threads} is below 1")
        if len(weights.nodes) != shape.num_nodes:
            raise InputError(f"the scorer has {len(weights.nodes)} nodes; a tree of {shape} has {shape.num_nodes}")
        if by_path and precision == "bf16":
            raise InputError("precision='bf16' rounds too much to be summed along a path; use 'exact'")
        precision = "float32" if by_path else precision
        self.weights, self.shape, self.threads, self.precision = weights, shape, threads, precision
        self.by_path = by_path
        self._built = (threads, precision, level, by_path, table_nodes)
        self._core: Any = None
        self.module = module = native()
        self.why_numpy = "the native core is not in use" if module is None else without_native_form(weights)
        if not self.why_numpy:
            self._core = native_search(
                module, weights, shape, native_level(level), precision, by_path, table_nodes, threads
            )
        elif precision == "bf16":
            raise InputError(f"precision='bf16' needs the native core, but {self.why_numpy}; use 'exact'")
        elif module is not None:
            # Python shows a warning of one text once.
            warnings.warn(f"{self.why_numpy}: the tree is searched by numpy, which is slow", stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        """The native core is rebuilt when a copy is unpickled."""
        return _rebuilt, (self.weights, self.shape, *self._built)

    def of(self, weights: DinWeights, shape: Shape | None = None) -> DinSearch:
        """The same settings with other weights, and another shape where one is given."""
        return _rebuilt(weights, shape or self.shape, *self._built)

    def after_writing(self) -> DinSearch:
        """A search over leaves written since: itself, unless it holds tables of the leaves."""
        return self if self.shape.capacity > self._built[-1] else self.of(self.weights)

    @property
    def queue(self) -> Queue:
        """How its callers waited for each other; zeros with numpy."""
        return Queue(0, 0, 0) if self._core is None else Queue(*self._core.queue())

    def beam(
        self,
        history_BL: IndexArray,
        *,
        beam_width: int,
        k: int,
        live: Live,
        excluded: Excluded | None = None,
    ) -> SearchResult:
        """The k best leaves a beam of `beam_width` nodes finds for each row: see `reference.beam_search`.

        `live` of fewer levels ends the search there: the result is nodes of the last of them. Errors: k outside
        1..beam_width, leaves outside the shape, arrays whose shapes do not fit.
        """
        _check_width(k, beam_width)
        _check_k(k)

        def ask(history: IndexArray, live: Live, lists: Excluded | None) -> SearchResult:
            if self._core is None:
                return reference.beam_search(
                    self.weights,
                    self.shape,
                    history,
                    beam_width=beam_width,
                    k=k,
                    live=live,
                    excluded=lists,
                    by_path=self.by_path,
                )
            # A width beyond the leaves has no effect; an answer still has k columns.
            width = min(beam_width, self.shape.capacity)
            return SearchResult(*self._core.beam(history, width, k, live, *(lists or _no_lists(len(history)))))

        return self._found(ask, history_BL, live, excluded, last=min(len(live) - 1, self.shape.depth))

    def steered(
        self,
        history_BL: IndexArray,
        way: Way,
        *,
        k: int,
        live: Live,
        excluded: Excluded | None = None,
        again: bool = False,
    ) -> SearchResult:
        """The k best leaves found by a way steered by the light head: see `steering.steered_search`.

        Errors: no light head, a way without one, and as `beam`.
        """
        if self.weights.light is None or way.kind == "beam":
            raise InputError(f"{way} is steered by no light head; use `beam`, or fit with model.light_width above 0")
        _check_width(k, way.beam_width)
        numbers = (way.beam_width, way.judged, way.kind == "cascade", again)

        def ask(history: IndexArray, live: Live, lists: Excluded | None) -> SearchResult:
            if self._core is None:
                return steering.steered_search(
                    self.weights, self.shape, history, way, k=k, live=live, excluded=lists, again=again
                )
            return SearchResult(*self._core.steered(history, numbers, k, live, *(lists or _no_lists(len(history)))))

        return self._found(ask, history_BL, live, excluded)

    def later(
        self,
        history_BL: IndexArray,
        way: Way,
        *,
        k: int,
        live: Live,
        excluded: Excluded | None = None,
        again: bool = False,
    ) -> Later | None:
        """`beam` or `steered` of one row, to run later; None where they do not run in the native core, or convert or
        refuse an argument.
        """
        if self._core is None or not 1 <= k <= min(way.beam_width, _MOST):
            return None
        lists = excluded or _no_lists(len(history_BL))
        width = min(way.beam_width, self.shape.capacity)
        try:
            if way.kind == "beam":
                return Later(self._core.beam(history_BL, width, k, live, *lists, later=True))
            numbers = (way.beam_width, way.judged, way.kind == "cascade", again)
            return Later(self._core.steered(history_BL, numbers, k, live, *lists, later=True))
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
        live: Live,
    ) -> Visited:
        """The candidates of a beam on each level, with the scorer's scores: see `steering.visit`."""
        if self.by_path or (steered and self.weights.light is None):
            raise InputError("a steered visit needs a light head, and no visit supports scores by path")
        history, live = self._checked(history_BL), self._checked_live(live)
        if self._core is None:
            return steering.visit(
                self.weights,
                self.shape,
                history,
                beam_width=beam_width,
                steered=steered,
                most=most,
                offsets=offsets,
                live=live,
            )
        offsets = aligned(offsets, np.float64)
        return Visited(*self._asked(self._core.visit, history, beam_width, steered, most, offsets, list(live)))

    def score(self, history_BL: IndexArray, nodes_BM: IndexArray, *, level: int | None = None) -> NDArray[np.float32]:
        """float32[B, M], the score of each given node of a level (None: the leaves); -inf where it is -1."""
        level = self.shape.depth if level is None else level
        history, nodes = self._checked(history_BL), self._checked_nodes("nodes_BM", nodes_BM, level)
        if len(nodes) != len(history):
            raise InputError(f"nodes_BM has {len(nodes)} rows for {len(history)} histories; give one row each")
        if self._core is None:
            return reference.score_given(self.weights, self.shape, level, history, nodes, by_path=self.by_path)
        scores: NDArray[np.float32] = self._asked(self._core.score, history, level, nodes)
        return scores

    def exact(self, history_BL: IndexArray, k: int, *, live: Live, excluded: Excluded | None = None) -> SearchResult:
        """The k best of all live leaves for each row, each scored: brute force, which a beam approximates."""
        if k < 1:
            raise InputError(f"k={k} is below 1; ask for at least one leaf")
        _check_k(k)
        if self.by_path:
            capacity = self.shape.capacity
            found = self.beam(history_BL, beam_width=max(k, capacity), k=min(k, capacity), live=live, excluded=excluded)
            return _padded(found, k)

        def ask(history: IndexArray, live: Live, lists: Excluded | None) -> SearchResult:
            if self._core is None:
                return reference.exact_search(self.weights, self.shape, history, k, live=live, excluded=lists)
            return SearchResult(*self._core.exact(history, k, live, *(lists or _no_lists(len(history)))))

        return self._found(ask, history_BL, live, excluded)

    def _found(
        self,
        ask: Callable[[IndexArray, Live, Excluded | None], SearchResult],
        history_BL: IndexArray,
        live: Live,
        excluded: Excluded | None,
        *,
        last: int | None = None,
    ) -> SearchResult:
        """The result of `ask`. Errors: arguments that do not fit the shape, and `ArtefactError` where a score is not a
        number. `last`: the level of the last counts in `live` (None: of the leaves).

        The native core checks all arguments. If it refuses them, they are converted here, or the error is raised.
        """
        if self._core is not None:
            try:
                return ask(history_BL, live, excluded)
            except OverflowError:
                raise unsound_score() from None
            except (TypeError, ValueError):
                pass
        history = self._checked(history_BL)
        lists = None if excluded is None else self._checked_excluded(excluded, len(history))
        found: SearchResult = self._asked(ask, history, self._checked_live(live, last), lists)
        return found

    def _asked(self, search: Callable[..., Any], *arguments: Any) -> Any:
        """The native core's result. Errors: `ArtefactError` where a score is not a number."""
        try:
            return search(*arguments)
        except OverflowError:
            raise unsound_score() from None

    def _checked(self, history_BL: IndexArray) -> NDArray[np.int32]:
        history = self._checked_nodes("history_BL", history_BL, self.shape.depth)
        if history.shape[1] != self.weights.history_length:
            raise InputError(
                f"history_BL has {history.shape[1]} columns; the scorer's windows cover {self.weights.history_length}"
            )
        return history

    def _checked_nodes(self, name: str, nodes: IndexArray, level: int) -> NDArray[np.int32]:
        nodes, size = np.asarray(nodes), self.shape.level_size(level)
        if nodes.ndim != 2 or not np.issubdtype(nodes.dtype, np.integer):
            raise InputError(
                f"{name} has shape {nodes.shape} and type {nodes.dtype}; expected two-dimensional integers"
            )
        if nodes.size and (nodes.min() < -1 or nodes.max() >= size):
            what = "leaves" if level == self.shape.depth else f"the nodes of level {level}"
            raise InputError(f"{name} holds {nodes.min()}..{nodes.max()}; {what} are 0..{size - 1}, -1 for none")
        return aligned(nodes, np.int32)

    def _checked_live(self, live: Live, last: int | None = None) -> Live:
        if len(live) < 2 or len(live) != (self.shape.depth if last is None else last) + 1:
            raise InputError(
                f"live has {len(live)} levels; a tree of depth {self.shape.depth} has {self.shape.depth + 1}"
            )
        for level, counts in enumerate(live):
            size = self.shape.level_size(level)
            if counts.shape != (size,) or counts.dtype != np.int32:
                raise InputError(f"live[{level}] is {counts.dtype}{counts.shape}; expected int32({size},)")
        return tuple(aligned(counts, np.int32) for counts in live)

    def _checked_excluded(self, excluded: Excluded, num_rows: int) -> Excluded:
        indptr = aligned(excluded[0], np.int64)
        leaves = self._checked_nodes("excluded", np.asarray(excluded[1])[None], self.shape.depth)[0]
        if (
            indptr.shape != (num_rows + 1,)
            or indptr[0] != 0
            or indptr[-1] != len(leaves)
            or (np.diff(indptr) < 0).any()
        ):
            raise InputError(
                f"excluded's indptr must hold {num_rows + 1} rising numbers from 0 to {len(leaves)}, one row a history"
            )
        keys = leaves
        if num_rows > 1:
            keys = np.repeat(np.arange(num_rows), np.diff(indptr)) * (self.shape.capacity + 1) + leaves
        if len(leaves) and (leaves.min() < 0 or (keys[1:] <= keys[:-1]).any()):
            raise InputError("excluded must hold leaves of 0 or more, ascending and without repeats within a row")
        return indptr, leaves


def _check_width(k: int, beam_width: int) -> None:
    if not 1 <= k <= beam_width:
        raise InputError(f"k={k} is outside 1..beam_width={beam_width}; raise beam_width or lower k")


def _check_k(k: int) -> None:
    if k > _MOST:
        raise InputError(f"k={k} is above {_MOST}; lower k")


def _no_lists(num_rows: int) -> Excluded:
    return np.zeros(num_rows + 1, np.int64), np.empty(0, np.int32)


def _padded(found: SearchResult, k: int) -> SearchResult:
    """k columns, those beyond the leaves empty."""
    more = ((0, 0), (0, k - found.leaves.shape[1]))
    scores = np.pad(found.scores, more, constant_values=-np.inf)
    return SearchResult(np.pad(found.leaves, more, constant_values=-1), scores, found.scored)


def _rebuilt(
    weights: DinWeights, shape: Shape, threads: int, precision: str, level: str | None, by_path: bool, table_nodes: int
) -> DinSearch:
    return DinSearch(
        weights, shape, threads=threads, precision=precision, level=level, by_path=by_path, table_nodes=table_nodes
    )
