"""A sequence encoder for training, with input and output item vectors.

Shape legend: B rows, L history length, D width, N items, F features of an item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.errors import InputError
from beamwood.models.encoder import Encoder
from beamwood.models.parameters import Sizes
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.models.weights import declare
from beamwood.types import FloatArray

__all__ = ["ProjectedItems", "SequenceModel"]

# The width up to which rows of any length are encoded together.
_SHORTEST = 8


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
        """Initialise the map such that vectors have length about 1, whatever the features' scale."""
        scale = float(self.features.square().sum(dim=1).mean().sqrt().clamp(min=1e-6))
        nn.init.normal_(self.linear.weight, std=self.embedding_dim**-0.5 / scale, generator=generator)
        nn.init.zeros_(self.linear.bias)

    @property
    def weight(self) -> Tensor:
        """[N, D], computed at each access."""
        result: Tensor = self.linear(self.features)
        return result

    def forward(self, items: Tensor) -> Tensor:
        """[.., D] for item indices int64[..]."""
        result: Tensor = self.linear(self.features[items])
        return result


class SequenceModel(nn.Module):
    """An encoder of histories with the vectors of N items: `forward(items_BL)` gives [B, L, D], or [B, 1, D].

    Items int64[B, L'], -1 padding on the left, L' at most `length`; see `Encoder` for what the vectors have seen.
    `sizes`: the encoder's own, by default its defaults. The score of item n is the inner product with
    `output_weight[n]`: the item's own vector, or with `tied=False` one of a table of its own. `features_NF`: item
    vectors come from these by a linear map instead of a table. Drawn from `generator`: item vectors N(0, 1 / sqrt(D)),
    then the encoder's parameters, then the output table. Errors: `InputError` on sizes that do not fit together.
    """

    def __init__(
        self,
        encoder: Encoder,
        num_items: int,
        *,
        width: int,
        length: int,
        dropout: float = 0.0,
        sizes: Sizes | None = None,
        tied: bool = True,
        features_NF: FloatArray | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.length, self.dropout = encoder, length, dropout
        self._sizes = encoder.sizes() if sizes is None else sizes
        self.items: nn.Embedding | ProjectedItems
        if features_NF is None:
            self.items = nn.Embedding(num_items, width)
            nn.init.normal_(self.items.weight, std=width**-0.5, generator=generator)
        else:
            self.items = ProjectedItems(features_NF, width)
            self.items.reset_parameters(generator)
        self.outputs = None if tied else nn.Embedding(num_items, width)
        self._declared = declare(self, encoder.parameters(width, length, self._sizes), generator)
        if self.outputs is not None:
            nn.init.normal_(self.outputs.weight, std=width**-0.5, generator=generator)

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.encoder.name

    @property
    def sizes(self) -> dict[str, Any]:
        """The encoder's own sizes, JSON-able."""
        return self._sizes.model_dump(mode="json")

    @property
    def output_weight(self) -> Tensor:
        """[N, D], the output vectors of the items."""
        return self.items.weight if self.outputs is None else self.outputs.weight

    def output_vectors(self, items: Tensor) -> Tensor:
        """[.., D], the rows of `output_weight` of the given items."""
        vectors: Tensor = self.items(items) if self.outputs is None else self.outputs(items)
        return vectors

    def item_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the item vectors, in and out."""
        yield from self.items.parameters()
        if self.outputs is not None:
            yield from self.outputs.parameters()

    def forward(self, items_BL: Tensor) -> Tensor:
        """[B, L, D] of a causal encoder, [B, 1, D] of another. Errors: an encoder that returns another shape."""
        if len(items_BL) == 0:
            none: Tensor = self.items(items_BL)
            return none if self.encoder.causal else none[:, -1:]
        if self.encoder.whole_window:
            return self._encode(nn.functional.pad(items_BL, (self.length - items_BL.shape[1], 0), value=-1))
        # Rows of similar length are encoded together, without most of the padding.
        lengths_B, length, parts, orders = (items_BL >= 0).sum(dim=1), items_BL.shape[1], [], []
        shorter = -1
        while shorter < length:
            width = min(max(2 * shorter, _SHORTEST), length)
            rows = torch.nonzero((lengths_B > shorter) & (lengths_B <= width)).ravel()
            if len(rows):
                vectors = self._encode(items_BL[rows, -width:])
                parts.append(nn.functional.pad(vectors, (0, 0, length - width, 0)) if self.encoder.causal else vectors)
                orders.append(rows)
            shorter = width
        return torch.cat(parts)[torch.argsort(torch.cat(orders))]

    def _encode(self, items_BL: Tensor) -> Tensor:
        real_BL = items_BL >= 0
        x_BLD = self.items(items_BL.clamp(min=0)) * math.sqrt(self.items.embedding_dim) * real_BL[:, :, None]
        dropout = self.dropout if self.training else 0.0
        vectors: Tensor = self.encoder.forward(self._declared, x_BLD, real_BL, self._sizes, dropout, False)
        wanted = [len(x_BLD), x_BLD.shape[1] if self.encoder.causal else 1, x_BLD.shape[2]]
        if list(vectors.shape) != wanted:
            raise InputError(f"the encoder '{self.name}' returned shape {list(vectors.shape)}; return {wanted}")
        return vectors

    def export(self) -> dict[str, NDArray[np.float32]]:
        """The encoder's plain float32 arrays by name, for `PlainEncoder`; `items.weight` is always [N, D]."""
        tables = {n: each for n, each in self.state_dict().items() if n.startswith(("items.", "outputs."))}
        values = tables | self._declared | {"items.weight": self.items.weight}
        return {name: value.detach().cpu().numpy().astype(np.float32) for name, value in values.items()}

    def plain(self) -> PlainEncoder:
        """The encoder with the current weights, without torch."""
        return PlainEncoder(self.encoder, self.export(), self.sizes, length=self.length)
