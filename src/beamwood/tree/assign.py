"""Tree learning: items descend from the root to the leaves, each to its best node with capacity.

The algorithm is independent of a model; it takes a score function. DTR's score of item y and node n is the sum over the
item's instances of the log softmax of n among the c candidates (equation 30); JTM's is the sum of the binary model's
log-likelihoods along the path from the parent to n. Source: DTR, section 4.4 and algorithm 2 (B); JTM, algorithm 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.tree.tree import Shape, Tree
from beamwood.types import FloatArray, IndexArray

__all__ = ["ScoreFunction", "assign", "num_candidates", "level_passes"]

# score(items int32[n], parents int64[n], level, next_level) -> [n, c]: the score of each item for each descendant,
# on `next_level`, of the node of `level` where the item is. Items come grouped by parent, parents ascending.
ScoreFunction = Callable[[NDArray[np.int32], NDArray[np.int64], int, int], FloatArray]

# The most items in a call of the score function, unless a single parent has more.
CALL_ITEMS = 16384


def assign(tree: Tree, score: ScoreFunction, *, num_instances: IndexArray, stride: int = 7) -> Tree:
    """A new tree of the same shape in which items are placed by the score function.

    From level j items go to the deepest level on which a node has at most B^stride descendants, at least one level
    down: to min(j + stride, H) where the root has B children, as in the paper. A node's capacity is its number of
    leaves when items are spread evenly. Items with most instances choose first (ties: lower index); each takes its best
    node with capacity left (ties: lower node). Items without instances choose last: the node above their old leaf if it
    has capacity, else the node with most capacity (ties: lower node). Raises `InputError` on a stride below 1, counts
    of another length, and scores of the wrong shape or NaN.
    """
    # Signed, as the order of choice negates them.
    shape, counts = tree.shape, np.asarray(num_instances, float)
    if stride < 1:
        raise InputError(f"stride={stride} is below 1")
    if counts.shape != (tree.num_items,) or counts.min() < 0:
        raise InputError(f"num_instances has shape {counts.shape}; expected {tree.num_items} counts of 0 or more")
    room = Tree.of_order(np.arange(tree.num_items), shape).live_counts
    place = np.zeros(tree.num_items, np.int64)
    for level, next_level in level_passes(shape, stride):
        # Grouped by parent, and within a parent in the order of choice.
        queue = np.lexsort((np.arange(tree.num_items), -counts, place)).astype(np.int32)
        old = shape.ancestors(tree.leaf_of_item.astype(np.int64), next_level)
        moved = np.empty_like(place)
        for items in scoring_calls(queue, place):
            values = checked_scores(score(items, place[items], level, next_level), items, shape, level, next_level)
            for group, parent in parent_groups(place[items]):
                chosen = items[group]
                first = int(parent) * values.shape[1]
                free = room[next_level][first : first + values.shape[1]].tolist()
                moved[chosen] = first + choose_candidates(values[group], counts[chosen] > 0, old[chosen] - first, free)
        place = moved
    item_of_leaf = np.full(shape.capacity, -1, np.int32)
    item_of_leaf[place] = np.arange(tree.num_items)
    return Tree(shape, item_of_leaf)


def level_passes(shape: Shape, stride: int) -> list[tuple[int, int]]:
    """The pairs of levels between which items move, in order."""
    stops = [0]
    while stops[-1] < shape.depth:
        stops.append(stop_after(shape, stops[-1], stride))
    return list(itertools.pairwise(stops))


def stop_after(shape: Shape, level: int, stride: int) -> int:
    """The next level for items on `level`."""
    below = range(level + 1, shape.depth + 1)
    return max(
        (stop for stop in below if num_candidates(shape, level, stop) <= shape.branching**stride), default=level + 1
    )


def num_candidates(shape: Shape, level: int, next_level: int) -> int:
    """c: the descendants of a node of `level` on `next_level`."""
    return shape.level_size(next_level) // shape.level_size(level)


def choose_candidates(
    values: FloatArray, known: NDArray[np.bool_], old: IndexArray, room: list[int]
) -> NDArray[np.int64]:
    """The candidate of each item, chosen in the order of the rows; `room` is reduced."""
    chosen = np.empty(len(values), np.int64)
    preferences = np.argsort(-values, axis=1, kind="stable")
    for row, wishes in enumerate(preferences):
        if known[row]:
            candidate = next(wish for wish in wishes.tolist() if room[wish])
        elif 0 <= old[row] < len(room) and room[old[row]]:
            candidate = int(old[row])
        else:
            candidate = room.index(max(room))
        room[candidate] -= 1
        chosen[row] = candidate
    assert not any(room)
    return chosen


def scoring_calls(queue: NDArray[np.int32], place: NDArray[np.int64]) -> Iterator[NDArray[np.int32]]:
    """Runs of whole parents, of at most `CALL_ITEMS` items where a parent has no more."""
    bounds = [group.stop for group, _ in parent_groups(place[queue])]
    start = last = 0
    for stop in bounds:
        if stop - start > CALL_ITEMS and last > start:
            yield queue[start:last]
            start = last
        last = stop
    yield queue[start:]


def parent_groups(parents: NDArray[np.int64]) -> Iterator[tuple[slice, int]]:
    """Each run of equal parents and the parent."""
    starts = np.flatnonzero(np.diff(parents, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(parents)], strict=True):
        yield slice(start, stop), int(parents[start])


def checked_scores(
    values: FloatArray, items: NDArray[np.int32], shape: Shape, level: int, next_level: int
) -> FloatArray:
    """The scores, or `InputError` where their shape does not fit or one is NaN."""
    expected = (len(items), num_candidates(shape, level, next_level))
    values = np.asarray(values)
    if values.shape != expected:
        raise InputError(f"score returned shape {values.shape} from level {level} to {next_level}; expected {expected}")
    if np.isnan(values).any():
        raise InputError(f"score returned NaN from level {level} to {next_level}; the model is not sound")
    return values
