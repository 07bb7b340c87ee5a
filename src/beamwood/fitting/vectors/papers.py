"""The settings of papers on sequence encoders; the presets of the methods extend them."""

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
"""No additions to the papers: random initial vectors, the full softmax, Adam at 1e-3, no weight for seen items."""

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
"""SASRec with its paper's settings for MovieLens-1M (section IV)."""
