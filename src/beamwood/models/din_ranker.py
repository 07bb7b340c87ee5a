"""DIN as a ranker: attention of the candidate over the history, then an MLP.

Shape legend: B rows, L history length, M items a row, D width, A first attention width.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from beamwood.kernels.attention import AttentionLayers, attention_weights
from beamwood.models.pair_model import PairInputs, PairModel
from beamwood.models.scorer import Rows
from beamwood.models.scorers import din

__all__ = ["DinRanker"]

# Item pairs whose mean attention is initialised.
_PAIRS = 1024
# Values of the first attention layer held at a time (2 MiB).
_BLOCK_CELLS = 2**19


class DinRanker(PairModel):
    """DIN's score (`scorers.din`), whose attention has a faster form in training.

    w and a are the items' embeddings with their columns; u is the sum of the user and context columns, if any. Users
    have no id embedding, only their history. `attention_start`: see `models.din.DinScorer.reset_parameters`; None: as
    drawn.
    """

    sizes: din.Sizes

    def __init__(
        self,
        num_users: int,
        num_items: int,
        *,
        width: int,
        sizes: din.Sizes,
        attention_start: float | None = None,
        **inputs: Unpack[PairInputs],
    ) -> None:
        super().__init__(din.SCORE, num_users, num_items, width=width, sizes=sizes, std=0.1, **inputs)
        self.attention_start = attention_start
        self.centre_attention()

    @torch.no_grad()
    def centre_attention(self) -> None:
        """Shift the bias of attention so that its mean over pairs of consecutive items is `attention_start`."""
        if self.attention_start is not None:
            some = torch.arange(min(self.num_items, _PAIRS))
            a_PD, w_PD = self.items(some), self.items(some.roll(1))
            now = self.weights(a_PD[:, None], w_PD[:, None], torch.ones(len(some), 1, dtype=torch.bool)).mean()
            self._declared["attention_out.bias"].add_(self.attention_start - now)

    def scores(self, rows: Rows) -> Tensor:
        """[B, M] of looked-up vectors."""
        a_BLD, w_BMD = rows.history_BLD, rows.items["items"]
        z_BMD = torch.bmm(self.weights(a_BLD, w_BMD, rows.real_BL), a_BLD)
        scores: Tensor = din.mlp_scores(self._declared, z_BMD, w_BMD, rows.users.get("users"), self.sizes)
        return scores

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
