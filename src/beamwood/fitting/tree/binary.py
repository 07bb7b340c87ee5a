"""The objective that TDM and JTM share: binary classification of each node, with drawn negatives."""

from __future__ import annotations

from beamwood.fitting.tree.objective import TreeObjective
from beamwood.losses.levels import LEVEL_LOSSES
from beamwood.sampling.levels import DistinctNegatives
from beamwood.tree import Tree

__all__ = ["binary_objective"]


def binary_objective(num_negatives: int, tree: Tree) -> TreeObjective:
    """Binary cross-entropy of targets and `num_negatives` other nodes of each level, which are drawn uniformly."""
    return TreeObjective(DistinctNegatives([num_negatives] * tree.shape.depth), loss=LEVEL_LOSSES["binary"])
