"""GRU4Rec: a recurrent encoder; every position predicts what comes after it.

Shape legend: B rows, L history length, D width, H hidden units.
Source: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks", trained by softmax over the
catalogue.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from beamwood.models.sequence import SequenceModel
from beamwood.types import FloatArray

__all__ = ["Gru4Rec"]


class Gru4Rec(SequenceModel):
    """One layer of `hidden` gated recurrent units, mapped to D; `dropout` on the embeddings."""

    name: ClassVar[str] = "gru4rec"
    causal: ClassVar[bool] = True

    def __init__(
        self,
        num_items: int,
        *,
        width: int = 64,
        length: int = 69,
        hidden: int = 128,
        dropout: float = 0.3,
        tied: bool = True,
        features_NF: FloatArray | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_items, width=width, dropout=dropout, tied=tied, features_NF=features_NF)
        self.length = length
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.output = nn.Linear(hidden, width)
        self.reset_parameters(generator)

    @property
    def sizes(self) -> dict[str, int]:
        return {"length": self.length}

    def reset_parameters(self, generator: torch.Generator | None) -> None:
        """Item vectors, then the recurrent weights U(-1 / sqrt(H), 1 / sqrt(H)), then the map, from `generator`."""
        self.reset_items(generator)
        bound = self.gru.hidden_size**-0.5
        for parameter in self.gru.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.reset_linear(generator)

    def forward(self, items_BL: Tensor) -> Tensor:
        """[B, L, D]; positions before the first item are of no meaning."""
        length = items_BL.shape[1]
        # The recurrence starts at the first item: rows are turned so that the padding comes last, and turned back.
        padding = (items_BL < 0).sum(dim=1, keepdim=True)
        place = torch.arange(length, device=items_BL.device)
        turned = torch.gather(items_BL, 1, (place + padding) % length)
        states_BLH, _ = self.gru(self.dropout(self.embedded(turned)))
        back = ((place - padding) % length)[:, :, None].expand(-1, -1, states_BLH.shape[2])
        result: Tensor = self.output(torch.gather(states_BLH, 1, back))
        return result
