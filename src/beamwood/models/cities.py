"""CITIES: an item's vector inferred from the items around its occurrences.

Shape legend: B items, K contexts of an item, W = 2 R + 1 places of a context (the item's own in the middle), D width.
Source: Jang et al., "CITIES: Contextual Inference of Tail-Item Embeddings for Sequential Recommendation".
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from beamwood.models.sasrec import Block
from beamwood.types import FloatArray

__all__ = ["ContextModel"]


class ContextModel(nn.Module):
    """Vectors [B, D] from contexts; `vectors_ND` are the fitted items' and stay as they are.

    A context goes through two layers of attention and becomes its mean, the contexts through two more and theirs.
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
        self.unknown = nn.Parameter(torch.empty(width))
        self.positions = nn.Parameter(torch.empty(2 * reach + 1, width))
        self.inside = nn.ModuleList(Block(width, num_heads, dropout) for _ in range(2))
        self.across = nn.ModuleList(Block(width, num_heads, dropout) for _ in range(2))
        self.output = nn.Linear(width, width)
        for parameter in (self.unknown, self.positions):
            nn.init.normal_(parameter, std=0.02, generator=generator)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def forward(self, rows: Tensor, contexts_PW: Tensor, num_items: int) -> Tensor:
        """[B, D] for P contexts: the item `rows` int64[P] (ascending, every item has one) stands in `contexts_PW`.

        Contexts int64[P, W], -1 where nothing stands; what is in the middle is not looked at.
        """
        middle = torch.arange(contexts_PW.shape[1]) == self.reach
        real = (contexts_PW >= 0) | middle
        # Outer columns where nothing stands in any context change nothing.
        used = torch.nonzero(real.any(dim=0))[:, 0]
        columns = slice(int(used[0]), int(used[-1]) + 1)
        real, middle = real[:, columns], middle[columns]
        scale = self.vectors.shape[1] ** 0.5
        x = torch.where(middle[:, None], self.unknown, self.vectors[contexts_PW[:, columns].clamp(min=0)]) * scale
        of_contexts = _attended(x + self.positions[columns], real, self.inside)
        counts = torch.bincount(rows, minlength=num_items)
        place = torch.arange(len(rows)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        there = torch.arange(int(counts.max())) < counts[:, None]
        grid = of_contexts.new_zeros((*there.shape, of_contexts.shape[1])).index_put((rows, place), of_contexts)
        result: Tensor = self.output(_attended(grid, there, self.across))
        return result


def _attended(x_BLD: Tensor, real_BL: Tensor, blocks: nn.ModuleList) -> Tensor:
    """[B, D], the mean of the real positions after the blocks, in which each sees all real ones."""
    visible = real_BL[:, None, :] | torch.eye(real_BL.shape[1], dtype=torch.bool)
    for block in blocks:
        x_BLD = block(x_BLD, visible)
    weights = real_BL / real_BL.sum(dim=1, keepdim=True)
    return torch.einsum("bl,bld->bd", weights, x_BLD)
