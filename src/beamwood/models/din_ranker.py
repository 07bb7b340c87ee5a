"""DIN as a ranker: attention of the candidate over the history, then an MLP.

Shape legend: B rows, L history length, M items a row, D width, A first attention width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.data.features import FeatureColumn, FeatureTable
from beamwood.kernels.attention import AttentionLayers, attention_weights
from beamwood.models.features import FeatureEncoder, exported_columns
from beamwood.models.pairs import IdTable, QueryTensors, UserColumns
from beamwood.models.scorer import PairScore
from beamwood.models.scorers import din
from beamwood.models.weights import declare

__all__ = ["DinRanker"]

# Item pairs whose mean attention is initialised.
_PAIRS = 1024
# Values of the first attention layer held at a time (2 MiB).
_BLOCK_CELLS = 2**19


class DinRanker(nn.Module):
    """`s = MLP([z ; w ; z * w ; u])`, `z = sum_l weight(a_l, w) a_l`, `weight = MLP'([a ; a * w ; w])`, PReLU layers.

    Weights are not normalised, as in DIN. w and a are the items' embeddings with their columns; u is the sum of the
    user and context columns, if any. Users have no id embedding, only their history. Source: Zhou et al. 2018; sizes by
    default those of the two-stage study (d 96, attention 64-16, 200-80-1).
    """

    score: ClassVar[PairScore] = din.SCORE

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
        """`attention_start`: see `models.din.DinScorer.reset_parameters`; None: as drawn."""
        super().__init__()
        self.attention_start = attention_start
        self.items = IdTable(num_items, width, item_features, std=0.1, generator=generator)
        self.users = None
        if user_features is not None:
            self.users = UserColumns(user_features, width, std=0.1, generator=generator)
        self.context = FeatureEncoder(context_columns, width, std=0.1, generator=generator) if context_columns else None
        about = self.users is not None or self.context is not None
        self.sizes = din.Sizes(attention=tuple(attention), mlp=tuple(mlp))
        self._declared = declare(self, din.parameters(width, self.sizes, about), generator)
        self.centre_attention()

    @torch.no_grad()
    def centre_attention(self) -> None:
        """Shift the bias of attention so that its mean over pairs of consecutive items is `attention_start`."""
        if self.attention_start is not None:
            some = torch.arange(min(self.items.num_rows, _PAIRS))
            a_PD, w_PD = self.items(some), self.items(some.roll(1))
            now = self.weights(a_PD[:, None], w_PD[:, None], torch.ones(len(some), 1, dtype=torch.bool)).mean()
            self._declared["attention_out.bias"].add_(self.attention_start - now)

    def forward(self, query: QueryTensors, items_BM: Tensor) -> Tensor:
        """Scores [B, M]."""
        w_BMD = self.items(items_BM)
        a_BLD = self.items(query.histories_BL)
        z_BMD = torch.bmm(self.weights(a_BLD, w_BMD, query.histories_BL >= 0), a_BLD)
        scores: Tensor = din.mlp_scores(self._declared, z_BMD, w_BMD, self.about(query), self.sizes)
        return scores

    def about(self, query: QueryTensors) -> Tensor | None:
        """[B, D] of the user and context columns, None without any."""
        total = None if self.users is None else self.users(query.users_B)
        if self.context is not None:
            context = self.context(query.context)
            total = context if total is None else total + context
        return total

    def weights(self, a_BLD: Tensor, w_BMD: Tensor, present_BL: Tensor) -> Tensor:
        """Attention weights [B, M, L], 0 where the history entry is absent.

        With one layer the native kernel replaces `scorers.din`, and stores nothing of size B M L A.
        """
        p = self._declared
        if len(self.sizes.attention) == 1:
            weight, bias, slope = (p[f"attention.0.{part}"] for part in ("weight", "bias", "slope"))
            out, out_bias = p["attention_out.weight"], p["attention_out.bias"]
            layers = AttentionLayers(weight, bias, slope, out, out_bias, slope_out=out.new_ones(1))
            return attention_weights(a_BLD, w_BMD, present_BL, layers)
        # On a CPU in blocks that fit its cache, which makes a step three times as fast.
        size, cells = len(a_BLD), a_BLD.shape[1] * w_BMD.shape[1] * self.sizes.attention[0]
        block = max(1, _BLOCK_CELLS // max(1, cells)) if a_BLD.device.type == "cpu" else max(1, size)
        parts = zip(*(torch.split(each, block) for each in (a_BLD, w_BMD, present_BL)), strict=True)
        return torch.cat([din.attention_weights(p, a, w, present, self.sizes) for a, w, present in parts])

    @torch.no_grad()
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """The scorer's configuration and arrays."""
        arrays = {"items": self.items.all()[:-1]}
        if self.users is not None:
            arrays["users"] = self.users.all()
        arrays |= self._declared
        config = {"kind": self.score.kind, "sizes": self.sizes.model_dump(mode="json")}
        columns, weights = exported_columns(self.context)
        return config | columns, {name: part.detach().numpy() for name, part in arrays.items()} | weights
