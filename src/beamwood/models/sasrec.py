"""SASRec: causal self-attention over the latest items; every position predicts what comes after it.

Shape legend: B rows, L history length, D width, E heads, N items.
Source: Kang and McAuley, "Self-Attentive Sequential Recommendation"; with the norms before each part, which trains
without a long warm-up, and the item embeddings as output vectors.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamwood.errors import InputError
from beamwood.models.sequence import SequenceModel
from beamwood.types import FloatArray

__all__ = ["Block", "SasRec"]


class Block(nn.Module):
    """One layer of attention and one of two linear maps, each with its norm before and its residual around it."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BLD: Tensor, visible_BLL: Tensor) -> Tensor:
        """[B, L, D]; `visible_BLL` bool: may the row's position look at the column's?"""
        normed = self.attention_norm(x_BLD)
        q, k, v = (self._heads(part(normed)) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=visible_BLL[:, None], dropout_p=self.dropout.p if self.training else 0.0
        )
        x = x_BLD + self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))
        hidden = self.dropout(functional.relu(self.inner(self.feed_norm(x))))
        result: Tensor = x + self.dropout(self.outer(hidden))
        return result

    def _heads(self, x_BLD: Tensor) -> Tensor:
        return x_BLD.view(*x_BLD.shape[:2], self.num_heads, -1).transpose(1, 2)


class SasRec(SequenceModel):
    """Vectors [B, L, D] of the position after each history item, for the last `length` items.

    `num_blocks`, `num_heads` (a divisor of `width`), `dropout` on embeddings and inside the blocks.
    """

    name: ClassVar[str] = "sasrec"
    causal: ClassVar[bool] = True

    def __init__(
        self,
        num_items: int,
        *,
        width: int = 64,
        length: int = 69,
        num_blocks: int = 2,
        num_heads: int = 2,
        dropout: float = 0.2,
        tied: bool = True,
        features_NF: FloatArray | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if width % num_heads:
            raise InputError(f"width={width} is not a multiple of num_heads={num_heads}")
        super().__init__(num_items, width=width, dropout=dropout, tied=tied, features_NF=features_NF)
        self.length = length
        self.positions = nn.Parameter(torch.empty(length, width))
        self.blocks = nn.ModuleList(Block(width, num_heads, dropout) for _ in range(num_blocks))
        self.final_norm = nn.LayerNorm(width)
        self.num_heads = num_heads
        self.reset_parameters(generator)

    @property
    def sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}

    def reset_parameters(self, generator: torch.Generator | None) -> None:
        """Embeddings N(0, 1 / sqrt(D)), positions N(0, 0.02), linear maps by Xavier, all from `generator`."""
        self.reset_items(generator)
        nn.init.normal_(self.positions, std=0.02, generator=generator)
        self.reset_linear(generator)

    def forward(self, items_BL: Tensor) -> Tensor:
        """[B, L, D] for item indices int64[B, L], -1 padding on the left, L at most `length`."""
        length, real_BL = items_BL.shape[1], items_BL >= 0
        x = self.dropout(self.embedded(items_BL) + self.positions[self.length - length :]) * real_BL[:, :, None]
        causal = torch.ones(length, length, dtype=torch.bool, device=items_BL.device).tril()
        # A padding position looks at itself, or its softmax would be of nothing.
        itself = torch.eye(length, dtype=torch.bool, device=items_BL.device)
        visible_BLL = (causal & real_BL[:, None, :]) | itself
        for block in self.blocks:
            x = block(x, visible_BLL)
        result: Tensor = self.final_norm(x)
        return result
