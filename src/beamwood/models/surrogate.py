"""A network that predicts the NDCG of a list from its predictions and labels.

Shape legend: B lists, K items a list, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from beamwood.errors import InputError, nearest
from beamwood.kernels.guided import SurrogateShape, predicted_ndcg

__all__ = ["FORMS", "NdcgSurrogate"]

# For each form whether it has the MLP, and the degree of its NFM.
_PARTS = {"ensemble": (True, 2), "mlp": (True, 0), "nfm1": (False, 1), "nfm2": (False, 2)}
FORMS = tuple(_PARTS)
_WIDTH = 20


class NdcgSurrogate(nn.Module):
    """[B] in (-1, 1) from `p_BK = sigmoid(s)` and labels, all layers tanh.

        mlp       v = MLP(flatten(p, y)), 2 K -> D -> D
        nfm1      e = dense(mean_k z_k),        z = dense((p, y)), 2 -> D
        nfm2      e = dense(1/K Z Z^T 1), K -> D
        ensemble  v * e of nfm2
        then D -> 8 -> 1. D is 20.

    nfm2 and the ensemble keep a K-vector, so they depend on the order in which a list is written, whatever the paper
    says; here positives come first, as in its program. All layers are one flat parameter, so that an optimiser's step
    is one call. Weights are drawn from N(0, std^2), biases are 0. With .01, the program's, a gradient hardly passes the
    layers at first: the network says the same of every list for thousands of steps, nfm1 for tens of thousands. With
    std=None a layer's is 1 / sqrt(its inputs). Errors: `InputError` on an unknown form. Source: GuidedRec, equations
    4-8 and figure 3.
    """

    def __init__(self, size: int, *, form: str, std: float | None, generator: torch.Generator) -> None:
        super().__init__()
        if form not in FORMS:
            raise InputError(f"surrogate form '{form}' is unknown{nearest(form, FORMS)}")
        mlp, degree = _PARTS[form]
        self.shape = SurrogateShape(size, _WIDTH, mlp, degree)
        self.weights = nn.Parameter(
            torch.zeros(sum(out * (within + 1) for out, within in self.shape.layers().values()))
        )
        with torch.no_grad():
            for matrix, _ in self.shape.split(self.weights).values():
                matrix.normal_(std=matrix.shape[1] ** -0.5 if std is None else std, generator=generator)

    def forward(self, p_BK: Tensor, labels_BK: Tensor) -> Tensor:
        """The predicted NDCG [B]."""
        return predicted_ndcg(p_BK, labels_BK, self.weights, self.shape)
