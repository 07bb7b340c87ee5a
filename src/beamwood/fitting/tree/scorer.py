"""A scorer with random weights, and its parameters and buffers as a state that is cached."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beamwood.fitting.tree.config import TreeConfig
from beamwood.kernels.terms import Term
from beamwood.models.din import DinScorer
from beamwood.tree import Shape

__all__ = ["all_tensors", "num_bytes", "random_scorer"]


def all_tensors(scorer: DinScorer) -> dict[str, Tensor]:
    """All parameters and buffers by name, including those that checkpoints omit."""
    return dict([*scorer.named_parameters(), *scorer.named_buffers()])


def num_bytes(scorer: DinScorer) -> int:
    """The bytes of all parameters and buffers."""
    return sum(tensor.nbytes for tensor in all_tensors(scorer).values())


def random_scorer(shape: Shape, config: TreeConfig, terms: Sequence[Term], generator: torch.Generator) -> DinScorer:
    """The scorer of a configuration with random weights."""
    return DinScorer(
        shape,
        width=config.model.width,
        attention_hidden=config.model.attention_hidden,
        windows=config.model.windows,
        mlp=config.model.mlp,
        norm=config.model.norm,
        activation=config.model.activation,
        unit_coordinate=config.model.unit_coordinate,
        attention_start=config.start.attention,
        terms=terms,
        moves=config.tree.updates > 0,
        dropout=config.model.dropout,
        recompute=config.model.recompute,
        generator=generator,
    )
