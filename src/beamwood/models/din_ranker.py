"""DIN as a ranker: attention of the candidate over the history, then an MLP of what came of it.

Shape legend: B rows, L history length, M items a row, D width, A first attention width.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.kernels.activation import prelu
from beamwood.kernels.attention import attention_weights
from beamwood.models.features import FeatureEncoder, exported
from beamwood.models.pairs import Asked, IdTable

__all__ = ["DinRanker"]

# Pairs of items over which attention's mean is taken where it starts.
_PAIRS = 1024
# Numbers of attention's first layer that are held at a time (2 MiB).
_BLOCK_CELLS = 2**19


class DinRanker(nn.Module):
    """`s = MLP([z ; w ; z * w ; u])`, `z = sum_l weight(a_l, w) a_l`, `weight = MLP'([a ; a * w ; w])`, PReLU layers.

    Weights are not normalised, as in DIN. w and a are the items' embeddings with their columns; u, where there are
    user or context columns, the sum of what these say. Users have no id here: who they are is their history. Source:
    Zhou et al. 2018; sizes by default those of the two-stage study (d 96, attention 64-16, 200-80-1).
    """

    def __init__(
        self,
        num_items: int,
        *,
        width: int = 96,
        attention: Sequence[int] = (64, 16),
        mlp: Sequence[int] = (200, 80),
        item_features: FeatureTable | None = None,
        user_features: FeatureTable | None = None,
        context_columns: Sequence[FeatureColumn] = (),
        attention_start: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """`attention_start`: see `Din.reset_parameters`; None: as drawn."""
        super().__init__()
        self.attention_start = attention_start
        self.items = IdTable(num_items, width, item_features, std=0.1, generator=generator)
        self.users = None
        if user_features is not None:
            self.users = _Columns(user_features, width, generator)
        self.context = FeatureEncoder(context_columns, width, std=0.1, generator=generator) if context_columns else None
        parts = 3 + (self.users is not None or self.context is not None)
        self.attention = _layers([3 * width, *attention], generator)
        self.attention_acts = nn.ModuleList(nn.PReLU(size) for size in attention)
        self.attention_out = _linear(attention[-1], 1, generator)
        self.hidden = _layers([parts * width, *mlp], generator)
        self.acts = nn.ModuleList(nn.PReLU(size) for size in mlp)
        self.output = _linear(mlp[-1], 1, generator)
        self.centre_attention()

    @torch.no_grad()
    def start_from(self, vectors_ND: Tensor) -> None:
        """Put vectors in the place of the items' drawn ones; an item whose vector is 0 keeps its own."""
        known = vectors_ND.any(dim=1).nonzero().squeeze(1)
        self.items.ids.weight[known] = vectors_ND[known]
        self.centre_attention()

    @torch.no_grad()
    def centre_attention(self) -> None:
        """Shift attention's bias so that its mean over pairs of an item and the next is `attention_start`."""
        if self.attention_start is not None:
            some = torch.arange(min(self.items.num_rows, _PAIRS))
            a_PD, w_PD = self.items(some), self.items(some.roll(1))
            now = self.weights(a_PD[:, None], w_PD[:, None], torch.ones(len(some), 1, dtype=torch.bool)).mean()
            self.attention_out.bias.add_(self.attention_start - now)

    def forward(self, asked: Asked, items_BM: Tensor) -> Tensor:
        """Scores [B, M]."""
        w_BMD = self.items(items_BM)
        a_BLD = self.items(asked.histories_BL)
        z_BMD = torch.bmm(self.weights(a_BLD, w_BMD, asked.histories_BL >= 0), a_BLD)
        parts = [z_BMD, w_BMD, z_BMD * w_BMD]
        about = self.about(asked)
        if about is not None:
            parts.append(about[:, None, :].expand_as(w_BMD))
        x = torch.cat(parts, dim=2)
        for layer, act in zip(self.hidden, self.acts, strict=True):
            x = _prelu(layer(x), act)
        scores: Tensor = self.output(x).squeeze(2)
        return scores

    def about(self, asked: Asked) -> Tensor | None:
        """[B, D] of the user's and the context's columns, None where there are none."""
        total = None if self.users is None else self.users(asked.users_B)
        if self.context is not None:
            context = self.context(asked.context)
            total = context if total is None else total + context
        return total

    def weights(self, a_BLD: Tensor, w_BMD: Tensor, present_BL: Tensor) -> Tensor:
        """Attention weights [B, M, L], 0 where the history entry is absent.

        `W [a ; a * w ; w] = (W_p diag(w) + W_a) a + W_w w`: one matrix a candidate, a pair costs D A, not 3 D A.
        With one layer the native kernel does it, which keeps nothing of size B M L A.
        """
        first, act = self.attention[0], self.attention_acts[0]
        assert isinstance(first, nn.Linear)
        assert isinstance(act, nn.PReLU)
        if len(self.attention) == 1:
            out = self.attention_out
            linear = out.weight.new_ones(1)
            return attention_weights(
                a_BLD, w_BMD, present_BL, first.weight, first.bias, act.weight, out.weight, out.bias, linear
            )
        # On a processor a block at a time that its cache holds, in which a step is three times as fast.
        size, cells = len(a_BLD), a_BLD.shape[1] * w_BMD.shape[1] * first.out_features
        block = max(1, _BLOCK_CELLS // max(1, cells)) if a_BLD.device.type == "cpu" else max(1, size)
        parts = zip(*(torch.split(each, block) for each in (a_BLD, w_BMD, present_BL)), strict=True)
        return torch.cat([self._deep_weights(*part) for part in parts])

    def _deep_weights(self, a_BLD: Tensor, w_BMD: Tensor, present_BL: Tensor) -> Tensor:
        """`weights` with any number of layers."""
        first, act = self.attention[0], self.attention_acts[0]
        assert isinstance(first, nn.Linear)
        width = w_BMD.shape[2]
        by_a, by_product, by_w = torch.split(first.weight, width, dim=1)
        size, num_items = w_BMD.shape[:2]
        folded = by_product * w_BMD[:, :, None, :] + by_a
        # [B, L, M A]: as the product leaves it, for the parts that follow are large and only read once.
        x = torch.bmm(a_BLD, folded.reshape(size, -1, width).transpose(1, 2))
        x = x + functional.linear(w_BMD, by_w, first.bias).view(size, 1, -1)
        x = _prelu(x.view(size, -1, num_items, first.out_features), act)
        for layer, act in zip(self.attention[1:], self.attention_acts[1:], strict=True):
            x = _prelu(layer(x), act)
        weights: Tensor = self.attention_out(x).squeeze(3).transpose(1, 2) * present_BL[:, None, :]
        return weights

    @torch.no_grad()
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """The scorer's configuration and arrays."""
        arrays = {"items": self.items.all()[:-1]}
        if self.users is not None:
            arrays["users"] = self.users.all()
        pairs = [("attention", self.attention, self.attention_acts), ("hidden", self.hidden, self.acts)]
        for name, layers, acts in pairs:
            for place, (layer, act) in enumerate(zip(layers, acts, strict=True)):
                assert isinstance(layer, nn.Linear)
                assert isinstance(act, nn.PReLU)
                arrays |= {f"{name}.{place}.weight": layer.weight, f"{name}.{place}.bias": layer.bias}
                arrays[f"{name}.{place}.slope"] = act.weight
        for name, layer in (("attention_out", self.attention_out), ("output", self.output)):
            arrays |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
        config = {"kind": "din", "attention": len(self.attention), "layers": len(self.hidden)}
        columns, weights = exported(self.context)
        return config | columns, {name: part.detach().numpy() for name, part in arrays.items()} | weights


class _Columns(nn.Module):
    """[B, D] of users' columns alone."""

    def __init__(self, features: FeatureTable, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.table = IdTable(len(features) - 1, width, features, std=0.1, generator=generator)
        with torch.no_grad():
            self.table.ids.weight.zero_()
        self.table.ids.weight.requires_grad_(False)

    def forward(self, users_B: Tensor) -> Tensor:
        vectors: Tensor = self.table(users_B)
        return vectors

    def all(self) -> Tensor:
        return self.table.all()


def _linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.kaiming_uniform_(layer.weight, a=0.25, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def _layers(sizes: Sequence[int], generator: torch.Generator | None) -> nn.ModuleList:
    return nn.ModuleList(_linear(i, o, generator) for i, o in itertools.pairwise(sizes))


def _prelu(x: Tensor, act: nn.Module) -> Tensor:
    """PReLU over the last dimension, which torch expects to be the second."""
    assert isinstance(act, nn.PReLU)
    return prelu(x.reshape(-1, x.shape[-1]), act.weight).view(x.shape)
