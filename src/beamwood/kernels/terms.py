"""Terms added to the network's score of a node: their contract, in search and in training.

Shape legend: B rows, L history length, M nodes a row, n nodes of a level, V nodes of the tree, F folds of users.

A term holds arrays by name: numpy arrays in search, tensors in training. `score` is written once for both, over the
array API standard. Nothing here or in a search imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from numpy.typing import NDArray
from scipy import sparse

from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.arrays import all_finite, storage
from beamwood.kernels.mixtures import Mixtures
from beamwood.tree.tree import Shape, Tree
from beamwood.types import FloatArray, IndexArray, ItemLists

__all__ = [
    "Array",
    "Counted",
    "Held",
    "Term",
    "TermArrays",
    "TermQuery",
    "added_up",
    "by_name",
    "checked_scores",
    "moved_leaves",
    "rows_of",
    "sums_of_leaves",
]

Array = Any
"""A numpy array, or a tensor while training."""
Held = Mapping[str, Array]
"""The arrays of a term by name."""

# The smallest tree, by which the types and numbers of axes of a term's arrays are determined.
_SMALLEST = Shape(1, 2, 1)


@dataclass(frozen=True, slots=True)
class TermQuery:
    """The nodes of a level to score, and the histories.

    `leaves` int[B, L'] of the latest L' interactions, oldest first, -1 absent; `nodes` int[B, M], None for the whole
    level in order. `folds` int64[B] in 0..F-1, in training: the fold of users that each row's score must leave out.
    """

    shape: Shape
    level: int
    leaves: Array
    nodes: Array | None = None
    folds: Array | None = None

    @property
    def offset(self) -> int:
        """The first node of the level in an array by node."""
        return self.shape.level_offset(self.level)

    @property
    def size(self) -> int:
        """n, the nodes of the level."""
        return self.shape.level_size(self.level)

    @property
    def history(self) -> Array:
        """int[B, L'], the ancestors of the history's leaves on this level, -1 absent."""
        return self.shape.ancestors(self.leaves, self.level)

    def of_nodes(self, by_node_V: Array) -> Array:
        """[B, M, ...], the rows of an array by node for the nodes; [n, ...] for the whole level."""
        if self.nodes is None:
            return by_node_V[self.offset : self.offset + self.size]
        return rows_of(by_node_V, self.nodes + self.offset)


class Counted(Protocol):
    """Counts of the training histories from which terms start."""

    @property
    def tree(self) -> Tree: ...
    @property
    def histories(self) -> ItemLists: ...
    @property
    def item_counts(self) -> NDArray[np.int64]:
        """[N], the interactions of each item."""
        ...

    def leaf_vectors(self, width: int) -> FloatArray:
        """float32[capacity, width], transition vectors; 0 for empty leaves. See `Term.width`."""
        ...

    def leaf_shares(self) -> FloatArray:
        """float64[capacity]: the share of all interactions, with one added for each item; 0 for empty leaves."""
        ...

    def neighbour_matrices(self, num_folds: int) -> Iterator[sparse.csr_matrix]:
        """[capacity, capacity], row l the neighbours of leaf l: of all users, then without each fold."""
        ...


class Term:
    """A term added to the network's score of a node; an instance holds its settings, never its arrays.

    A term defines `name`, `arrays` and `score`, the kinds of its arrays, and usually `start`. One with arrays by node
    also defines `move`, as these move with the items when the tree is updated. `start` and `move` change numpy arrays
    in place.
    """

    name: ClassVar[str]
    """An identifier, the prefix of its arrays in a saved folder."""
    learned: ClassVar[tuple[str, ...]] = ()
    """The arrays that training learns; the others change in `start` and `move` only."""
    by_node: ClassVar[tuple[str, ...]] = ()
    """The arrays whose first axis is the nodes of levels 1..H, level 1 first."""
    by_place: ClassVar[tuple[str, ...]] = ()
    """The arrays whose first axis is the places of a history, oldest first."""
    training: ClassVar[tuple[str, ...]] = ()
    """The arrays that search does not need; they are not saved."""
    leaves_only: ClassVar[bool] = False
    """Whether it adds only to leaves."""
    joined: ClassVar[bool] = False
    """Whether it is first added to the term before it, and their sum to the score: another order of the same sum, which
    differs in the last bit.
    """
    likens: ClassVar[bool] = False
    """Whether it is a similarity, so that the network need not start from one."""
    sparse: ClassVar[bool] = False
    """Whether it adds to few nodes only: a light head adds it exactly, as few columns cannot represent it."""
    by_others: ClassVar[bool] = False
    """Whether a node's part is stored with other nodes, as lists of neighbours are."""
    native: ClassVar[str] = ""
    """The name of its C++ form, which a derived class does not inherit; without one the tree is searched by numpy."""
    width: int = 0
    """Columns of the item vectors that it starts from."""
    folds: int = 0
    """F, the folds of users that it can leave out in training."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        # A derived class may score otherwise than its parent's C++ form.
        cls.native = vars(cls).get("native", "")

    def arrays(self, shape: Shape, history_length: int) -> dict[str, NDArray[Any]]:
        """All its arrays before any start, float32 or integers."""
        raise NotImplementedError

    def score(self, held: Held, query: TermQuery) -> Array:
        """float[B, M], added to the nodes' scores; [B, n] for a whole level."""
        raise NotImplementedError

    def start(self, held: Mapping[str, NDArray[Any]], counted: Counted) -> None:
        """Initialise the arrays from counts, before any training."""

    def move(self, held: Mapping[str, NDArray[Any]], place: IndexArray, shape: Shape) -> None:
        """Move the content of leaf l to leaf `place[l]`, -1 for an empty one; int64[capacity]."""
        if self.by_node:
            raise NotImplementedError(f"the term '{self.name}' has arrays by node and no move; give it one")

    def mixed(self, held: Held, leaves: Mixtures, shape: Shape) -> dict[str, NDArray[Any]]:
        """[M, ..] of each array by node: the content of leaves that are mixtures of others, for new items."""
        first = shape.level_offset(shape.depth)
        return {name: leaves.mixed(held[name], first).astype(held[name].dtype) for name in self.by_node}

    def weights(self, held: Held) -> Held:
        """The arrays for `score` and search, by the same names, from those held in training, which are tensors."""
        return held

    def seen_again(self, held: Held) -> bool:
        """Whether items of the history must be separate candidates, as a beam may miss their leaves."""
        return False

    def kept(self) -> dict[str, NDArray[Any]]:
        """The arrays that search needs, for the smallest tree: names, types and numbers of axes."""
        return {name: array for name, array in self.arrays(_SMALLEST, 1).items() if name not in self.training}

    def check(self, held: Mapping[str, NDArray[Any]], num_nodes: int, history_length: int) -> None:
        """Raise `ArtefactError` naming an invalid array."""
        for name, like in self.kept().items():
            self._check_array(name, held[name], like, num_nodes, history_length)

    def check_tree(self, held: Mapping[str, NDArray[Any]], shape: Shape) -> None:
        """Raise `ArtefactError` naming an array with values that do not fit the tree."""

    def _check_array(
        self, name: str, array: NDArray[Any], like: NDArray[Any], num_nodes: int, history_length: int
    ) -> None:
        full = f"{self.name}.{name}"
        first = num_nodes if name in self.by_node else history_length if name in self.by_place else None
        if array.ndim != like.ndim or (first is not None and len(array) != first):
            axes = "(any" if first is None else f"({first}"
            raise ArtefactError(f"{full} has shape {array.shape}; expected {axes}{', any' * (like.ndim - 1)})")
        if array.size == 0:
            raise ArtefactError(f"{full} is empty")
        if wrong := storage(array, like.dtype):
            raise ArtefactError(f"{full} is {wrong}; expected contiguous, aligned {like.dtype}")
        if array.dtype.kind == "f" and not all_finite(array):
            raise ArtefactError(f"{full} holds NaN or infinity; the model was not saved from a sound training")


def checked_scores(term: Term, added: Array, query: TermQuery) -> Array:
    """What a term adds. Errors: it has another shape than the scores."""
    num = query.size if query.nodes is None else query.nodes.shape[-1]
    wanted, shape = (len(query.leaves), num), tuple(added.shape)
    if len(shape) > 2 or any(size not in (1, own) for size, own in zip(shape[::-1], wanted[::-1], strict=False)):
        raise InputError(f"the score of the term '{term.name}' has shape {list(shape)}; return {list(wanted)}")
    return added


@dataclass(frozen=True, slots=True)
class TermArrays:
    """A term and its arrays for search."""

    term: Term
    arrays: dict[str, NDArray[Any]]

    def score(self, query: TermQuery) -> Array:
        """See `Term.score`."""
        return checked_scores(self.term, self.term.score(self.arrays, query), query)

    def of_type(self, dtype: Any) -> TermArrays:
        """The same with floats of another type."""
        floats = {name: array for name, array in self.arrays.items() if array.dtype.kind == "f"}
        return replace(self, arrays=self.arrays | {name: floats[name].astype(dtype, copy=False) for name in floats})


def by_name(terms: Iterable[Term]) -> dict[str, Term]:
    """Terms by name. Errors: `InputError` on an invalid or repeated name."""
    named: dict[str, Term] = {}
    for term in terms:
        if not term.name.isidentifier() or term.name in named:
            raise InputError(f"a term's name is '{term.name}'; give each an identifier of its own")
        named[term.name] = term
    return named


def rows_of(array_X: Array, index: Array) -> Array:
    """[*index, ...]: the rows of an array at an index of any number of axes."""
    xp = array_namespace(array_X, index)
    rows = xp.take(array_X, xp.reshape(index, (-1,)), axis=0)
    return xp.reshape(rows, (*index.shape, *array_X.shape[1:]))


def added_up(values_E: Array, at_E: Array, size: int) -> Array:
    """float[size]: the sum of the values at each position, which the array API lacks."""
    if is_torch_array(values_E):
        return values_E.new_zeros(size).index_add(0, at_E, values_E)
    return np.bincount(at_E, values_E, minlength=size).astype(values_E.dtype)


def sums_of_leaves(leaves_C: FloatArray, shape: Shape) -> FloatArray:
    """[V, ...]: for every node the sum over the leaves below it; the leaves come last."""
    sizes = [shape.level_size(level) for level in range(1, shape.depth + 1)]
    return np.concatenate([leaves_C.reshape(size, -1, *leaves_C.shape[1:]).sum(axis=1) for size in sizes])


def moved_leaves(leaves_C: FloatArray, place: IndexArray) -> FloatArray:
    """[capacity, ...]: the content of leaves after moving to `place`; 0 for empty ones."""
    result = np.zeros_like(leaves_C)
    result[place[place >= 0]] = leaves_C[place >= 0]
    return result
