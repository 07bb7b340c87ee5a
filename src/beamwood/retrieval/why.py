"""Why a tree recommends an item: its path from the root, the parts of its score, and the attention over the history.

The model is the index, so this is exact: these are the scores by which the search decides.

Shape legend: L history length, M nodes, A attention hidden width, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels.din import DinWeights
from beamwood.kernels.reference import best_first, dense, score_nodes
from beamwood.kernels.terms import TermQuery
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import ItemLists

__all__ = ["PathNode", "Why", "reasons"]


@dataclass(frozen=True, slots=True)
class PathNode:
    """A node of the path: its score, and its rank among the `of` nodes of the level that the full beam scores.

    `reached`: whether the beam opens its parent; the item of an unreached node was found in another way than the beam.
    """

    level: int
    node: int
    score: float
    rank: int
    of: int
    reached: bool


@dataclass(frozen=True, slots=True)
class Why:
    """`path` from level 1 to the leaf; `parts`: the summands of the leaf's score by name, where scores are by path
    those of its last step's logit; `attention`: the places of the history, latest last, with their weights at the leaf.
    """

    path: tuple[PathNode, ...]
    parts: dict[str, float]
    attention: tuple[tuple[int, float], ...]


def reasons(searcher: TreeSearcher, history: NDArray[np.int32], items: Sequence[int]) -> list[Why]:
    """The reasons for each item, on a leaf of the tree; `history` by item index, oldest first, in whose places
    `attention` counts.
    """
    if len(items) == 0:
        # Terms score one node at least.
        return []
    weights, shape = searcher.weights, searcher.tree.shape
    recent = history[-weights.history_length :]
    leaves_L = searcher.leaves_of(ItemLists.from_lists([history]))[0].astype(np.int64)
    leaves = searcher.tree.leaf_of_item[np.asarray(items, np.int64)].astype(np.int64)
    steps = _steps(searcher, leaves_L, leaves)
    offset, depth = shape.level_offset(shape.depth), shape.depth
    network = score_nodes(weights, offset, leaves_L, leaves)
    query = TermQuery(shape, depth, leaves_L[None], leaves[None])
    added = {name: part.score(query)[0] for name, part in weights.terms.items()}
    attention_ML = _attention_of(weights, offset, leaves_L, leaves)
    first, start = len(leaves_L) - len(recent), len(history) - len(recent)
    return [
        Why(
            tuple(level[at] for level in steps),
            {"network": float(network[at])} | {name: float(values[at]) for name, values in added.items()},
            tuple((start + place, float(attention_ML[at, first + place])) for place in range(len(recent))),
        )
        for at in range(len(leaves))
    ]


def _steps(searcher: TreeSearcher, leaves_L: NDArray[np.int64], leaves: NDArray[np.int64]) -> list[list[PathNode]]:
    """By level, a step for each leaf."""
    shape, live = searcher.tree.shape, searcher.tree.live_counts
    beam, steps = np.zeros(1, np.int64), []
    for level in range(1, shape.depth + 1):
        fanout = shape.fanout(level)
        children = (beam[:, None] * fanout + np.arange(fanout)).ravel()
        children = children[live[level][children] > 0]
        path = shape.ancestors(leaves, level)
        scores, own = (searcher.core.score(leaves_L[None], nodes[None], level=level)[0] for nodes in (children, path))
        reached = np.isin(path, children)
        # Beside other nodes a score may be rounded otherwise, and a node would be ranked behind itself.
        own[reached] = scores[np.searchsorted(children, path[reached])]
        ranks = 1 + (scores[None] > own[:, None]).sum(axis=1)
        steps.append(
            [
                PathNode(level, int(node), float(score), int(rank), len(children), bool(there))
                for node, score, rank, there in zip(path, own, ranks, reached, strict=True)
            ]
        )
        beam = np.sort(children[best_first(scores, children, min(searcher.beam_width, len(children)))])
    return steps


def _attention_of(
    weights: DinWeights, offset: int, leaves_L: NDArray[np.int64], nodes_M: NDArray[np.int64]
) -> NDArray[np.float32]:
    """float32[M, L], the weight of each history entry for each leaf; 0 for padding. See `kernels.din`."""
    present = np.flatnonzero(leaves_L >= 0)
    weights_ML = np.zeros((len(nodes_M), len(leaves_L)), np.float32)
    if len(present) == 0:
        return weights_ML
    a_LD, w_MD = weights.nodes[offset + leaves_L[present]], weights.nodes[offset + nodes_M]
    a, w = np.broadcast_arrays(a_LD[None], w_MD[:, None])
    hidden_MLA = dense(weights.attention_in, np.concatenate([a, a * w, w], axis=-1))
    weights_ML[:, present] = dense(weights.attention_out, hidden_MLA)[..., 0]
    return weights_ML
