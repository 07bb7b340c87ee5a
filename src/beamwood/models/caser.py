"""Caser: convolutions over the latest items as over an image; one vector for the whole window.

Shape legend: B rows, L history length, D width.
Source: Tang and Wang, "Personalized Top-N Sequential Recommendation via Convolutional Sequence Embedding". Without
the user embedding: users of a disjoint split are unknown to training, and an artefact answers histories of anybody.
Without the user's half the last map has no relu, or every history's vector would lie in one orthant.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamwood.models.sequence import SequenceModel
from beamwood.types import FloatArray

__all__ = ["Caser"]


class Caser(SequenceModel):
    """`num_vertical` filters L x 1, and `num_horizontal` of each height 1..L with relu and the maximum over places."""

    name: ClassVar[str] = "caser"
    causal: ClassVar[bool] = False

    def __init__(
        self,
        num_items: int,
        *,
        width: int = 64,
        length: int = 10,
        num_vertical: int = 4,
        num_horizontal: int = 16,
        dropout: float = 0.5,
        tied: bool = True,
        features_NF: FloatArray | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_items, width=width, dropout=dropout, tied=tied, features_NF=features_NF)
        self.length = length
        self.vertical = nn.Linear(length, num_vertical)
        self.horizontal = nn.ModuleList(nn.Linear(height * width, num_horizontal) for height in range(1, length + 1))
        self.output = nn.Linear(num_vertical * width + num_horizontal * length, width)
        self.reset_items(generator)
        self.reset_linear(generator)

    def forward(self, items_BL: Tensor) -> Tensor:
        """[B, 1, D]."""
        x_BDL = self.embedded(self.widened(items_BL)).transpose(1, 2)
        parts = [self.vertical(x_BDL).flatten(1)]
        for height, conv in enumerate(self.horizontal, start=1):
            assert isinstance(conv, nn.Linear)
            # A weight row is a filter height x D, item after item.
            filters = conv.weight.view(len(conv.weight), height, -1).transpose(1, 2)
            parts.append(functional.relu(functional.conv1d(x_BDL, filters, conv.bias)).amax(dim=2))
        result: Tensor = self.output(self.dropout(torch.cat(parts, dim=1)))[:, None]
        return result
