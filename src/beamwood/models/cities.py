"""CITIES: item vectors inferred from the contexts of the item's occurrences.

Shape legend: B items, K contexts of an item, W = 2 R + 1 places of a context (the item's own in the middle), D width.

Source: Jang et al., "CITIES: Contextual Inference of Tail-Item Embeddings for Sequential Recommendation".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from beamwood.models.encoders.sasrec import block_parameters, transformer_block
from beamwood.models.ops import linear
from beamwood.models.parameters import Parameter, linear_parameters
from beamwood.models.weights import declare
from beamwood.types import FloatArray

__all__ = ["ContextModel"]

# Layers of attention within a context, and over an item's contexts.
_LAYERS = 2


class ContextModel(nn.Module):
    """Vectors [B, D] from contexts; the fitted item vectors `vectors_ND` stay fixed.

    A context is the mean of its places after two layers of attention, and an item the mean of its contexts after two
    more.
    """

    def __init__(
        self,
        vectors_ND: FloatArray,
        *,
        reach: int,
        num_heads: int,
        dropout: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.vectors: Tensor
        self.register_buffer("vectors", torch.from_numpy(np.array(vectors_ND, np.float32)), persistent=False)
        width = self.vectors.shape[1]
        self.reach = reach
        self.num_heads, self.dropout = num_heads, dropout
        self._declared = declare(self, _parameters(width, reach), generator)

    def forward(self, rows: Tensor, contexts_PW: Tensor, num_items: int) -> Tensor:
        """[B, D] for P contexts: `contexts_PW` of the items `rows` int64[P] (ascending, each with at least one).

        Contexts int64[P, W], -1 for padding; the middle is ignored.
        """
        device = contexts_PW.device
        middle = torch.arange(contexts_PW.shape[1], device=device) == self.reach
        real = (contexts_PW >= 0) | middle
        # Columns that are padding in all contexts are dropped.
        used = torch.nonzero(real.any(dim=0))[:, 0]
        columns = slice(int(used[0]), int(used[-1]) + 1)
        real, middle = real[:, columns], middle[columns]
        scale = self.vectors.shape[1] ** 0.5
        p = self._declared
        x = torch.where(middle[:, None], p["unknown"], self.vectors[contexts_PW[:, columns].clamp(min=0)]) * scale
        of_contexts = self._mean(x + p["positions"][columns], real, "inside")
        counts = torch.bincount(rows, minlength=num_items)
        place = torch.arange(len(rows), device=device) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        there = torch.arange(int(counts.max()), device=device) < counts[:, None]
        grid = of_contexts.new_zeros((*there.shape, of_contexts.shape[1])).index_put((rows, place), of_contexts)
        result: Tensor = linear(self._mean(grid, there, "across"), p, "output")
        return result

    def _mean(self, x_BLD: Tensor, real_BL: Tensor, name: str) -> Tensor:
        """[B, D], the mean of the real positions after the named layers, in which each attends to all real ones."""
        visible = real_BL[:, None, :] | torch.eye(real_BL.shape[1], dtype=torch.bool, device=real_BL.device)
        dropout = self.dropout if self.training else 0.0
        for layer in range(_LAYERS):
            place = f"{name}.{layer}"
            x_BLD = transformer_block(self._declared, place, x_BLD, visible, num_heads=self.num_heads, dropout=dropout)
        weights = real_BL / real_BL.sum(dim=1, keepdim=True)
        return torch.einsum("bl,bld->bd", weights, x_BLD)


def _parameters(width: int, reach: int) -> Iterator[Parameter]:
    """The vectors for the item itself and for the places around it, N(0, 0.02); linear maps by Xavier."""
    yield Parameter("unknown", (width,), "normal", 0.02)
    yield Parameter("positions", (2 * reach + 1, width), "normal", 0.02)
    for name in ("inside", "across"):
        for layer in range(_LAYERS):
            yield from block_parameters(f"{name}.{layer}", width)
    yield from linear_parameters("output", width, width)
