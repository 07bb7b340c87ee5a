"""The settings that DTR's section 6 has in common for all trees; the presets of the methods extend them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["DTR_STUDY", "EVERY_INSTANCE", "STUDY_RUN", "TREE_STEPS"]

TREE_STEPS = 80_000
"""Steps on one tree in the authors' program; the paper says "until convergence"."""

EVERY_INSTANCE = 1_000_000
"""A `tree.max_instances` above the examples of any item, so that an update uses all of them."""

STUDY_RUN: Mapping[str, Any] = {
    # The paper states exponential decay; the schedule is the program's.
    "optimiser.schedule": "exponential",
    "optimiser.warmup_steps": 5_000,
    "optimiser.decay_steps": 15_000,
    "optimiser.floor": 1e-6,
    "loop.batch_size": 100,
    "loop.max_steps": TREE_STEPS,
    "loop.evaluate_every": 4_000,
    "loop.patience": 1_000,
    # Seen items stay in the answers.
    "choose.monitor": "kept/f@20",
}
"""The training settings of section 6, for trees and the networks beside them."""

DTR_STUDY: Mapping[str, Any] = {
    # Section 6.4; normalisation, activation, dropout and amsgrad are those of the authors' program.
    "model.width": 24,
    "model.norm": "batch",
    "model.activation": "prelu",
    "model.unit_coordinate": False,
    "model.dropout": 0.1,
    "model.similarity_width": 0,
    "model.num_neighbours": 0,
    "model.light_width": 0,
    "tree.start": "papers",
    "tree.shape": "complete",
    "tree.branching": 2,
    "tree.beam_width": 150,
    "tree.max_instances": EVERY_INSTANCE,
    "start.scores": "random",
    "start.attention": None,
    "start.seen": 0.0,
    # Section 6.1: the latest 70 interactions of a user, the last of them the target; only users with at least 15.
    "examples.num_targets": 1,
    "examples.horizon": 1,
    "examples.of": "positions",
    "examples.window": "last",
    "examples.min_history": 15,
    # Equation 19.
    "loss.level_reduction": "sum",
    "optimiser.learning_rate": 1e-3,
    "optimiser.clip_norm": None,
    "optimiser.amsgrad": True,
    "optimiser.bf16": False,
    "choose.seen_weight": 0.0,
    **STUDY_RUN,
}
"""Section 6 of DTR; values of 0 or null switch off additions that are not in the paper."""
