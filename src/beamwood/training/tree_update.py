"""Learn a tree from a trained scorer: how well each item suits each node, summed over the item's instances.

Shape legend: I instances, B instances scored at once, L history length, c candidates of a parent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from beamwood.errors import InputError
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.tree import Tree
from beamwood.tree.assign import assign, num_candidates
from beamwood.types import FloatArray, IndexArray

__all__ = ["capped_instances", "update_tree"]

# Nodes scored at once: rows of a call times candidates.
CALL_NODES = 32768


def capped_instances(targets_I: IndexArray, max_instances: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ascending positions of at most `max_instances` random instances of each item."""
    if max_instances < 1:
        raise InputError(f"max_instances={max_instances} is below 1")
    order = rng.permutation(len(targets_I))
    order = order[np.argsort(targets_I[order], kind="stable")]
    ordered = targets_I[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    kept: NDArray[np.int64] = np.sort(order[rank < max_instances])
    return kept


def update_tree(
    model: DinScorer,
    tree: Tree,
    targets_I: IndexArray,
    histories: Callable[[NDArray[np.int64]], NDArray[np.int32]],
    *,
    stride: int = 7,
    likelihood: Literal["softmax", "binary"] = "softmax",
    num_instances: IndexArray | None = None,
    folds_I: IndexArray | None = None,
) -> Tree:
    """A new tree in which each item stands where the model, fixed, wants its instances to go.

    `targets_I` item of each instance; `histories(rows)` gives the item indices [B, L] of instances, -1 padding on the
    left. "softmax": `Score(y, n) = sum over instances of y of log softmax over the c candidates` (DTR, equation 30);
    "binary": the sum of log sigmoid along the path from the parent to n (JTM, equation 7). Histories stand in the old
    tree throughout; candidates are the nodes with room in the new one, also where the old one had no item. Which item
    yields to which: see `tree.assign`; by `num_instances` of each item where those given are a part of them, as with a
    cap, which makes all frequent items alike. `folds_I`: of each instance the fold of users whose steps its scores
    leave out, as those that are trained do.
    """
    if targets_I.ndim != 1 or (len(targets_I) and not 0 <= targets_I.min() <= targets_I.max() < tree.num_items):
        raise InputError(f"targets_I has shape {targets_I.shape}; expected items in 0..{tree.num_items - 1}")
    # Of `assign` each node takes what it has leaves here, whichever leaves of the old tree are empty.
    even = Tree.of_order(np.arange(tree.num_items), tree.shape)
    by_item = np.argsort(targets_I, kind="stable")
    starts = np.searchsorted(targets_I[by_item], np.arange(tree.num_items + 1))
    device = model.nodes.weight.device

    def score(items: NDArray[np.int32], parents: NDArray[np.int64], level: int, next_level: int) -> NDArray[np.float64]:
        count = num_candidates(tree.shape, level, next_level)
        lengths = starts[items + 1] - starts[items]
        row_of = np.repeat(np.arange(len(items)), lengths)
        first = np.cumsum(lengths) - lengths
        instances = by_item[np.arange(len(row_of)) - first[row_of] + starts[items][row_of]]
        total = np.zeros((len(items), count))
        step = max(1, CALL_NODES // count)
        for start in range(0, len(instances), step):
            rows = row_of[start : start + step]
            leaves = tree.leaves_of(histories(instances[start : start + step])).astype(np.int64)
            values = likelihoods(
                model,
                even,
                torch.from_numpy(leaves).to(device),
                torch.from_numpy(parents[rows]).to(device),
                (level, next_level),
                likelihood,
                None if folds_I is None else torch.from_numpy(folds_I[instances[start : start + step]]).to(device),
            )
            # Instances come grouped by item, so an item's sum is over a run of rows.
            heads = np.flatnonzero(np.diff(rows, prepend=-1))
            total[rows[heads]] += np.add.reduceat(values, heads, axis=0)
        return total

    return assign(tree, score, num_instances=np.diff(starts) if num_instances is None else num_instances, stride=stride)


def likelihoods(
    model: DinScorer,
    even: Tree,
    leaves_BL: Tensor,
    parents_B: Tensor,
    levels: tuple[int, int],
    likelihood: Literal["softmax", "binary"],
    folds_B: Tensor | None = None,
) -> FloatArray:
    """float64[B, c]: the log-likelihood of each instance for each candidate; one without room in `even` is no rival."""
    level, next_level = levels

    def scores(at: int) -> Tensor:
        count = num_candidates(even.shape, level, at)
        nodes = None
        if level > 0:
            nodes = parents_B[:, None] * count + torch.arange(count, device=parents_B.device)
        live = torch.from_numpy(even.live_counts[at] > 0).to(leaves_BL.device)
        values = model.evaluate(leaves_BL, LevelNodes(at, nodes), folds_B).double()
        return values.masked_fill(~(live if nodes is None else live[nodes]), -torch.inf)

    if likelihood == "softmax":
        result = torch.log_softmax(scores(next_level), dim=1)
    else:
        size = num_candidates(even.shape, level, next_level)
        result = torch.zeros(len(leaves_BL), size, dtype=torch.float64, device=leaves_BL.device)
        for at in range(level + 1, next_level + 1):
            step = functional.logsigmoid(scores(at))
            result = result + step.repeat_interleave(size // step.shape[1], dim=1)
    values: FloatArray = result.cpu().numpy()
    return values
