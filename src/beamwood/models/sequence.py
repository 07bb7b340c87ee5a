"""What all sequence encoders share: item vectors in and out, and how a history's vector is scored.

Shape legend: B rows, L history length, D width, N items, F features of an item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.types import FloatArray

__all__ = ["ProjectedItems", "SequenceModel"]


class ProjectedItems(nn.Module):
    """Item vectors [N, D] as a learnable linear map of given ones [N, F] (of a text, of an image)."""

    def __init__(self, features_NF: FloatArray, width: int) -> None:
        super().__init__()
        self.features: Tensor
        features = torch.from_numpy(np.ascontiguousarray(features_NF, np.float32))
        self.register_buffer("features", features, persistent=False)
        self.linear = nn.Linear(features.shape[1], width)
        self.embedding_dim = width

    def reset_parameters(self, generator: torch.Generator | None) -> None:
        """Such that the vectors have about length 1, whatever the features' scale."""
        scale = float(self.features.square().sum(dim=1).mean().sqrt().clamp(min=1e-6))
        nn.init.normal_(self.linear.weight, std=self.embedding_dim**-0.5 / scale, generator=generator)
        nn.init.zeros_(self.linear.bias)

    @property
    def weight(self) -> Tensor:
        """[N, D], computed anew each time."""
        result: Tensor = self.linear(self.features)
        return result

    def forward(self, items: Tensor) -> Tensor:
        """[.., D] for item indices int64[..]."""
        result: Tensor = self.linear(self.features[items])
        return result


class SequenceModel(nn.Module):
    """An encoder of histories: `forward(items_BL)` gives [B, L, D], or [B, 1, D] where `causal` is false.

    Items int64[B, L'], -1 padding on the left, L' at most `length`. A causal encoder's vector at a position has seen
    the items up to it, so that each position is an example; another's one vector has seen the whole window. The score
    of item n is the inner product with `output_weight[n]`: the item's own vector, or with `tied=False` one of a table
    of its own. `features_NF`: item vectors come from these by a linear map instead of a table.
    """

    name: ClassVar[str]
    causal: ClassVar[bool]
    length: int

    def __init__(
        self, num_items: int, *, width: int, dropout: float, tied: bool, features_NF: FloatArray | None
    ) -> None:
        super().__init__()
        self.items: nn.Embedding | ProjectedItems
        if features_NF is None:
            self.items = nn.Embedding(num_items, width)
        else:
            self.items = ProjectedItems(features_NF, width)
        self.outputs = None if tied else nn.Embedding(num_items, width)
        self.dropout = nn.Dropout(dropout)

    @property
    def sizes(self) -> dict[str, int]:
        """What the twin in `kernels` has to be told, since the parameters do not say it."""
        return {}

    @property
    def output_weight(self) -> Tensor:
        """[N, D], what a history's vector is multiplied with."""
        return self.items.weight if self.outputs is None else self.outputs.weight

    def output_vectors(self, items: Tensor) -> Tensor:
        """[.., D], the rows of `output_weight` of the given items."""
        vectors: Tensor = self.items(items) if self.outputs is None else self.outputs(items)
        return vectors

    def item_parameters(self) -> Iterator[nn.Parameter]:
        """Those of the item vectors, in and out."""
        yield from self.items.parameters()
        if self.outputs is not None:
            yield from self.outputs.parameters()

    def embedded(self, items_BL: Tensor) -> Tensor:
        """[B, L, D], the items' vectors at length sqrt(D); zeros at padding."""
        vectors: Tensor = self.items(items_BL.clamp(min=0)) * math.sqrt(self.items.embedding_dim)
        return vectors * (items_BL >= 0)[:, :, None]

    def widened(self, items_BL: Tensor) -> Tensor:
        """[B, length], padded further on the left: for encoders whose positions are not interchangeable."""
        missing = self.length - items_BL.shape[1]
        return nn.functional.pad(items_BL, (missing, 0), value=-1)

    def reset_items(self, generator: torch.Generator | None) -> None:
        """Item vectors N(0, 1 / sqrt(D)) from `generator`."""
        if isinstance(self.items, ProjectedItems):
            self.items.reset_parameters(generator)
        else:
            nn.init.normal_(self.items.weight, std=self.items.embedding_dim**-0.5, generator=generator)

    def reset_linear(self, generator: torch.Generator | None) -> None:
        """Linear maps by Xavier with zero bias, then the output table; all from `generator`."""
        own = self.items.linear if isinstance(self.items, ProjectedItems) else None
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not own:
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
        if self.outputs is not None:
            nn.init.normal_(self.outputs.weight, std=self.items.embedding_dim**-0.5, generator=generator)

    def export(self) -> dict[str, NDArray[np.float32]]:
        """Plain float32 arrays by parameter name, for the twin in `kernels`; `items.weight` is always [N, D]."""
        values = self.state_dict() | {"items.weight": self.items.weight}
        return {name: value.detach().cpu().numpy().astype(np.float32) for name, value in values.items()}
