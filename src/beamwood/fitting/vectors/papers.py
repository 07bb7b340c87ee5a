"""What the papers of sequence encoders leave out of ours, as settings: the presets of their methods begin with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PLAIN", "SASREC"]

PLAIN: Mapping[str, Any] = {
    "examples.horizon": 1,
    "start.items": "random",
    "loss.sampled_negatives": None,
    "optimiser.learning_rate": 1e-3,
    "optimiser.schedule": "constant",
    "optimiser.warmup_steps": 0,
    "optimiser.clip_norm": None,
    "choose.seen_weight": 0.0,
}
"""Vectors as drawn, the softmax over the whole catalogue, Adam at 1e-3 and nothing added for seen items."""

SASREC: Mapping[str, Any] = {
    **PLAIN,
    "model.width": 50,
    "model.length": 200,
    "model.num_blocks": 2,
    "model.num_heads": 1,
    "model.dropout": 0.2,
    "loop.batch_size": 128,
    "loop.max_steps": None,
}
"""SASRec as its paper has it for MovieLens-1M (section IV)."""
