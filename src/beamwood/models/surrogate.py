"""A network that predicts the NDCG of a list from its predictions and labels.

Shape legend: B lists, K items a list, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from beamwood.errors import InputError, nearest

__all__ = ["FORMS", "NdcgSurrogate"]

FORMS = ("ensemble", "mlp", "nfm1", "nfm2")


class NdcgSurrogate(nn.Module):
    """[B] in (-1, 1) from `p_BK = sigmoid(s)` and labels, all layers tanh, weights N(0, .01), biases 0.

        mlp       v = MLP(flatten(p, y)), 2 K -> D -> D
        nfm1      e = dense(mean_k z_k),        z = dense((p, y)), 2 -> D
        nfm2      e = dense(1/K Z Z^T 1), K -> D
        ensemble  v * e of nfm2
        then D -> 8 -> 1.

    nfm2 and the ensemble keep a K-vector, so they depend on the order in which a list is written, whatever the paper
    says; here positives come first, as in its program. Source: GuidedRec, equations 4-8 and figure 3.
    """

    def __init__(
        self, size: int, *, form: str = "ensemble", width: int = 20, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if form not in FORMS:
            raise InputError(f"surrogate form '{form}' is unknown{nearest(form, FORMS)}")
        self.size, self.form = size, form
        if form in ("mlp", "ensemble"):
            self.v1, self.v2 = nn.Linear(2 * size, width), nn.Linear(width, width)
        if form != "mlp":
            self.g = nn.Linear(2, width)
            self.e = nn.Linear(width if form == "nfm1" else size, width)
        self.h1, self.h2 = nn.Linear(width, 8), nn.Linear(8, 1)
        for layer in self.children():
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=0.01, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, p_BK: Tensor, labels_BK: Tensor) -> Tensor:
        """The predicted NDCG [B]."""
        parts = []
        if self.form in ("mlp", "ensemble"):
            flat = torch.cat([p_BK, labels_BK], dim=1)
            parts.append(torch.tanh(self.v2(torch.tanh(self.v1(flat)))))
        if self.form != "mlp":
            z_BKD = torch.tanh(self.g(torch.stack([p_BK, labels_BK], dim=2)))
            mean_BD = z_BKD.mean(dim=1)
            pooled = mean_BD if self.form == "nfm1" else torch.bmm(z_BKD, mean_BD[:, :, None]).squeeze(2)
            parts.append(torch.tanh(self.e(pooled)))
        joined = parts[0] if len(parts) == 1 else parts[0] * parts[1]
        predicted: Tensor = torch.tanh(self.h2(torch.tanh(self.h1(joined)))).squeeze(1)
        return predicted
