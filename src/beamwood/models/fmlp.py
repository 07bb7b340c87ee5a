"""FMLP-Rec: learnable filters in the frequency domain instead of attention; one vector for the whole window.

Shape legend: B rows, L history length, D width, F = L // 2 + 1 frequencies.
Source: Zhou et al., "Filter-enhanced MLP is All You Need for Sequential Recommendation". The filter is a circular
convolution over the positions, so it looks ahead: only the last position's vector has a meaning for training.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamwood.models.sequence import SequenceModel
from beamwood.types import FloatArray

__all__ = ["FmlpRec"]


class FilterBlock(nn.Module):
    """A complex filter over the positions and two linear maps, each with its residual and its norm after it."""

    def __init__(self, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.empty(length // 2 + 1, width, 2))
        self.filter_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """[B, L, D]."""
        spectrum = torch.fft.rfft(x_BLD, dim=1, norm="ortho") * torch.view_as_complex(self.filter)
        filtered = torch.fft.irfft(spectrum, n=x_BLD.shape[1], dim=1, norm="ortho")
        x = self.filter_norm(x_BLD + self.dropout(filtered))
        hidden = functional.gelu(self.inner(x), approximate="tanh")
        result: Tensor = self.feed_norm(x + self.dropout(self.outer(hidden)))
        return result


class FmlpRec(SequenceModel):
    """`num_blocks` filter blocks over the embeddings with positions, normalised."""

    name: ClassVar[str] = "fmlp"
    causal: ClassVar[bool] = False

    def __init__(
        self,
        num_items: int,
        *,
        width: int = 64,
        length: int = 50,
        num_blocks: int = 2,
        dropout: float = 0.5,
        tied: bool = True,
        features_NF: FloatArray | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_items, width=width, dropout=dropout, tied=tied, features_NF=features_NF)
        self.length = length
        self.positions = nn.Parameter(torch.empty(length, width))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(FilterBlock(length, width, dropout) for _ in range(num_blocks))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None) -> None:
        """Item vectors, positions and filters N(0, 0.02), and the maps, all from `generator`."""
        self.reset_items(generator)
        nn.init.normal_(self.positions, std=0.02, generator=generator)
        for block in self.blocks:
            assert isinstance(block, FilterBlock)
            nn.init.normal_(block.filter, std=0.02, generator=generator)
        self.reset_linear(generator)

    def forward(self, items_BL: Tensor) -> Tensor:
        """[B, 1, D]."""
        items_BL = self.widened(items_BL)
        x = self.dropout(self.norm(self.embedded(items_BL) + self.positions)) * (items_BL >= 0)[:, :, None]
        for block in self.blocks:
            x = block(x)
        result: Tensor = x[:, -1:]
        return result
