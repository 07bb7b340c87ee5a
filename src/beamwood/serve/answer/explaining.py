"""Explanations of an answer: the results of each part of the model, and with `full` the path through the tree.

Shape legend: k results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels.mixtures import Mixtures
from beamwood.retrieval.columns.item_columns import CATEGORY
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.new_items.added import fitted_of, mixtures_of
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.why import PathNode, Why, reasons
from beamwood.serve.answer.ids import told_ids
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Item
from beamwood.types import Hits, ItemLists, PartHits, Query, Searcher, SearchOptions

__all__ = ["explained"]

_MOST_LOOKED_AT, _MOST_COMMON = 5, 3
# The most items below a node whose categories are counted.
_BELOW = 20_000


def explained(
    snapshot: Snapshot,
    query: Query,
    hits: Hits,
    options: SearchOptions,
    items: Sequence[Item],
    indices: Sequence[int],
    *,
    full: bool,
    in_time: Callable[[], None],
) -> dict[str, Any]:
    """The explanation of the whole answer; each item's own is stored in it.

    `parts` of an item, for a sum: by the kind of each part its score, and its rank by that part. With `full` a tree
    also has `path`, `tree_parts` and `attention` (see `retrieval.why`), and a counting method `history`: the five
    largest contributions of history items. `in_time` is called for each item, and ends the work by an error.
    """
    searcher, tree = snapshot.searcher, snapshot.tree
    history = query.histories[0]
    of_items: list[dict[str, Any]] = [
        {"parts": [_of_part(kind, part, index) for kind, part in zip(_kinds(searcher), hits.parts, strict=True)]}
        if hits.parts
        else {}
        for index in indices
    ]
    if full and tree is not None and items:
        names = told_ids(snapshot.names.items, history)
        # A new item beside the tree has no path.
        standing = np.flatnonzero(tree.tree.leaf_of_item[np.asarray(indices, np.int64)] >= 0).tolist()
        # Paths share their upper nodes, which have the most items.
        below = cache(partial(_below, snapshot, tree))
        for at, why in zip(standing, reasons(tree, history, [indices[at] for at in standing]), strict=True):
            in_time()
            of_items[at] |= _of_tree(why, names, below)
    if full and isinstance(counted := fitted_of(searcher), NeighbourSearcher):
        names = told_ids(snapshot.names.items, history)
        for own, index in zip(of_items, indices, strict=True):
            in_time()
            own["history"] = _of_history(counted, mixtures_of(searcher), history, names, index)
    for item, own in zip(items, of_items, strict=True):
        item.explain = own
    return _of_answer(searcher, tree, hits, options)


def _of_answer(searcher: Searcher, tree: TreeSearcher | None, hits: Hits, options: SearchOptions) -> dict[str, Any]:
    """The request to the model's parts, how its tree was searched, and the items or nodes scored."""
    about: dict[str, Any] = {"kind": fitted_of(searcher).kind, "scored": int(hits.scored[0])}
    if isinstance(searcher, Blend):
        weights = [part.weight for part in searcher.parts]
        about["parts"] = [
            {"kind": kind, "weight": weight} for kind, weight in zip(_kinds(searcher), weights, strict=True)
        ]
        # An answer under rules is of several searches.
        for told, part in zip(about["parts"], hits.parts, strict=False):
            told["ms"] = round(1000 * part.seconds, 3)
        about["seen_weight"] = searcher.seen_weight
    if tree is not None:
        way = tree.ways.of(options.effort)
        about["way"] = {"kind": way.kind, "beam_width": way.beam_width, "judged": way.judged}
        if options.beam_width is not None:
            about["way"] = {"kind": "beam", "beam_width": options.beam_width, "judged": 0}
    return about


def _kinds(searcher: Searcher) -> list[str]:
    """The kinds of a blend's parts, as they were fitted."""
    return [fitted_of(part.searcher).kind for part in searcher.parts] if isinstance(searcher, Blend) else []


def _of_part(kind: str, part: PartHits, index: int) -> dict[str, Any]:
    """The score that a part gave an item, and its rank, None where the part did not return it."""
    row, scores = part.hits.items[0], part.hits.scores[0]
    at = np.flatnonzero(row == index)
    if len(at) == 0:
        return {"kind": kind, "score": None, "rank": None}
    score = scores[at[0]]
    return {"kind": kind, "score": float(score), "rank": 1 + int(np.count_nonzero(scores > score))}


def _of_history(
    counted: NeighbourSearcher, mixtures: Mixtures | None, history: NDArray[np.int32], names: Sequence[Any], index: int
) -> list[dict[str, Any]]:
    """The largest contributions of history items to a score, which of a new item is a mixture of known ones'."""
    first, parts = counted.num_items, [(index, 1.0)]
    known, places = history, np.arange(len(history))
    if mixtures is not None:
        own = mixtures.heaviest()
        known = np.where(history < first, history, own[np.maximum(history - first, 0)])
        known, places = known[known >= 0], places[known >= 0]
        if index >= first:
            mixture = mixtures.take(np.array([index - first]))
            parts = list(zip(mixture.lists.items.tolist(), mixture.weights.tolist(), strict=True))
    added: defaultdict[int, float] = defaultdict(float)
    for part, weight in parts:
        for at, score in counted.shares(ItemLists.from_lists([known]), part):
            added[int(places[at])] += weight * score
    most = sorted(added.items(), key=lambda pair: -abs(pair[1]))[:_MOST_LOOKED_AT]
    return [{"item": names[place], "place": place, "score": score} for place, score in most]


def _of_tree(why: Why, history_ids: Sequence[Any], below: Callable[[int, int], dict[str, Any]]) -> dict[str, Any]:
    """The path from the root, and the history items with the most attention."""
    most = sorted(why.attention, key=lambda pair: (-abs(pair[1]), pair[0]))[:_MOST_LOOKED_AT]
    return {
        "path": [_of_step(step) | below(step.level, step.node) for step in why.path],
        "tree_parts": why.parts,
        "attention": [{"item": history_ids[place], "place": place, "weight": weight} for place, weight in most],
    }


def _of_step(step: PathNode) -> dict[str, Any]:
    return {
        "level": step.level,
        "node": step.node,
        "score": step.score,
        "rank": step.rank,
        "of": step.of,
        "reached": step.reached,
    }


def _below(snapshot: Snapshot, tree: TreeSearcher, level: int, node: int) -> dict[str, Any]:
    """The number of items below a node that may be shown, and the most frequent of their categories."""
    filters = snapshot.names.filters
    live, alive = tree.tree.live_counts, filters.alive
    if alive is not None:
        # As the search has counted them.
        live = alive.once(tree, lambda: tree.tree.counts_of(alive.mask))
    about: dict[str, Any] = {"items": int(live[level][node])}
    column = filters.columns.columns.get(CATEGORY)
    if isinstance(column, LabelColumn):
        size = tree.tree.shape.leaves_below(level)
        below = tree.tree.item_of_leaf[node * size : (node + 1) * size]
        below = below[below >= 0][:_BELOW]
        below = below[filters.may_show(below)]
        most = column.most_common(below, _MOST_COMMON)
        about["categories"] = [{"category": column.names[code], "items": count} for code, count in most]
    return about
