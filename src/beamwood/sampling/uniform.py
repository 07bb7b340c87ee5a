"""Negatives drawn uniformly, with replacement, from the nodes of a level."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from beamwood.errors import InputError

__all__ = ["adaptive_counts", "uniform_negatives"]


def uniform_negatives(
    num_rows: int, num_negatives: int, candidates: Tensor | int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Nodes int64[B, M] drawn with replacement from `candidates`, and their log q float32[B, M].

    `candidates`: the nodes that may be drawn, or their number n for 0..n-1. Every one has q = 1 / n. A draw can equal a
    target; the loss drops it and renormalises q. Source: DTR, section 4.3.2. Errors: no candidate, or no draw.
    """
    num_candidates = candidates if isinstance(candidates, int) else len(candidates)
    if num_candidates < 1 or num_negatives < 1:
        raise InputError(f"num_negatives={num_negatives} from {num_candidates} nodes; both must be 1 or more")
    draws = torch.randint(num_candidates, (num_rows, num_negatives), generator=generator)
    nodes = draws if isinstance(candidates, int) else candidates[draws]
    return nodes, torch.full(nodes.shape, -math.log(num_candidates))


def adaptive_counts(num_negatives: int, depth: int, alpha: float) -> list[int]:
    """Negatives for levels 1..H, deeper levels more: `N_l = w_l / sum(w) * N`, `w_l = 1 + alpha l`.

    N = `num_negatives` * H is the budget that `num_negatives` a level would use; alpha = 0 keeps it even. Each level
    gets at least one. Source: DTR, appendix I. Errors: `alpha` below 0.
    """
    if alpha < 0:
        raise InputError(f"alpha={alpha} is below 0; 0 samples every level alike")
    weights = [1 + alpha * level for level in range(1, depth + 1)]
    budget = num_negatives * depth
    return [max(1, round(weight / sum(weights) * budget)) for weight in weights]
