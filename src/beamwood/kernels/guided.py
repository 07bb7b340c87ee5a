"""GuidedRec's NDCG of a list and its prediction by a network: native on the CPU, torch elsewhere.

Shape legend: B lists, K items a list, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from beamwood.kernels.dispatch import native, native_level

__all__ = ["LAST", "GuidedMove", "SurrogateShape", "guided_move", "list_ndcg", "predicted_ndcg"]

LAST = 8
"""Width of the layer before the prediction."""


@dataclass(frozen=True, slots=True)
class SurrogateShape:
    """The network's `size` K, `width` D, whether it has the MLP, and the degree of its NFM (0: none, 1, 2)."""

    size: int
    width: int
    mlp: bool
    degree: int

    def layers(self) -> dict[str, tuple[int, int]]:
        """(out, in) of each layer by its name, in the order of the flat weights: matrix, then bias."""
        layers: dict[str, tuple[int, int]] = {}
        if self.mlp:
            layers |= {"v1": (self.width, 2 * self.size), "v2": (self.width, self.width)}
        if self.degree:
            layers |= {"g": (self.width, 2), "e": (self.width, self.width if self.degree == 1 else self.size)}
        return layers | {"h1": (LAST, self.width), "h2": (1, LAST)}

    def split(self, weights: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Matrix and bias of each layer, views of the flat weights."""
        layers = self.layers()
        sizes = [size for out, within in layers.values() for size in (out * within, out)]
        parts = iter(torch.split(weights, sizes))
        return {name: (next(parts).view(shape), next(parts)) for name, shape in layers.items()}


def predicted_ndcg(p_BK: Tensor, labels_BK: Tensor, weights: Tensor, shape: SurrogateShape) -> Tensor:
    """[B], the network's predictions with these flat weights; see `models.surrogate.NdcgSurrogate`."""
    if _simple(p_BK, labels_BK, weights):
        predicted: Tensor = _NativeSurrogate.apply(p_BK, labels_BK, weights, shape)  # type: ignore[no-untyped-call]
        return predicted
    layers = shape.split(weights)

    def dense(x: Tensor, name: str) -> Tensor:
        return torch.tanh(functional.linear(x, *layers[name]))

    parts = []
    if shape.mlp:
        parts.append(dense(dense(torch.cat([p_BK, labels_BK], dim=1), "v1"), "v2"))
    if shape.degree:
        z_BKD = dense(torch.stack([p_BK, labels_BK], dim=2), "g")
        mean_BD = z_BKD.mean(dim=1)
        pooled = mean_BD if shape.degree == 1 else torch.bmm(z_BKD, mean_BD[:, :, None]).squeeze(2)
        parts.append(dense(pooled, "e"))
    joined = parts[0] if len(parts) == 1 else parts[0] * parts[1]
    return dense(dense(joined, "h1"), "h2").squeeze(1)


class _NativeSurrogate(torch.autograd.Function):
    """One call forward, one for all gradients: the network is so small that torch's calls are nearly all its cost."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, labels: Tensor, weights: Tensor, shape: SurrogateShape) -> Tensor:
        p, labels, weights = p.detach().contiguous(), labels.contiguous(), weights.detach()
        ctx.save_for_backward(p, labels, weights)
        ctx.shape = shape
        predicted = torch.empty(len(p))
        _predict(p, labels, weights, shape, predicted)
        return predicted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        p, labels, weights = ctx.saved_tensors
        d_p = torch.empty_like(p) if ctx.needs_input_grad[0] else None
        d_weights = torch.empty_like(weights) if ctx.needs_input_grad[2] else None
        _predict(p, labels, weights, ctx.shape, torch.empty(len(p)), gradient.contiguous(), d_p, d_weights)
        return d_p, None, d_weights, None


def _predict(
    p: Tensor, labels: Tensor, weights: Tensor, shape: SurrogateShape, predicted: Tensor, *gradients: Tensor | None
) -> None:
    """Predictions; with a gradient of them also d_p and d_weights, where not None."""
    arrays = [None if tensor is None else tensor.numpy() for tensor in gradients] + [None] * (3 - len(gradients))
    native().ndcg_surrogate(
        p.numpy(),
        labels.numpy(),
        weights.numpy(),
        shape.width,
        shape.mlp,
        shape.degree,
        predicted.numpy(),
        *arrays,
        native_level(),
    )


@dataclass(frozen=True, slots=True)
class GuidedMove:
    """The result of a move of GuidedRec: `loss`, and the lists' mean `predicted` and `true` NDCG.

    Values not requested are NaN, and None for the gradients `d_scores_BK` and `d_weights`.
    """

    loss: float
    predicted: float
    true: float
    d_scores_BK: Tensor | None
    d_weights: Tensor | None


def guided_move(
    scores_BK: Tensor,
    labels_BK: Tensor,
    weights: Tensor,
    shape: SurrogateShape,
    *,
    k: int | None,
    of_scores: bool,
    of_weights: bool,
) -> GuidedMove:
    """The move on `1/2 sum (predicted - true NDCG@k)^2`, or without k that on `-sum predicted`, p = sigmoid(scores).

    Gradients come at once, without a graph: of a network so small, torch's calls are nearly all the cost. Source:
    GuidedRec, equations 10 and 11.
    """
    scores_BK, weights = scores_BK.detach(), weights.detach()
    if _simple(scores_BK, labels_BK, weights):
        return _native_move(scores_BK, labels_BK, weights, shape, k, of_scores, of_weights)
    with torch.enable_grad():
        scores_BK.requires_grad_(of_scores)
        weights.requires_grad_(of_weights)
        predicted_B = predicted_ndcg(torch.sigmoid(scores_BK), labels_BK, weights, shape)
        true_B = None if k is None else list_ndcg(scores_BK.detach(), labels_BK, k=k)
        total = -predicted_B.sum() if true_B is None else (predicted_B - true_B).square().sum() / 2
    wanted = [each for each in (scores_BK, weights) if each.requires_grad]
    gradients = iter(torch.autograd.grad(total, wanted))
    return GuidedMove(
        float(total.detach()),
        float(predicted_B.detach().mean()),
        math.nan if true_B is None else float(true_B.mean()),
        next(gradients) if of_scores else None,
        next(gradients) if of_weights else None,
    )


def _native_move(
    scores_BK: Tensor,
    labels_BK: Tensor,
    weights: Tensor,
    shape: SurrogateShape,
    k: int | None,
    of_scores: bool,
    of_weights: bool,
) -> GuidedMove:
    d_scores_BK = torch.empty_like(scores_BK, memory_format=torch.contiguous_format) if of_scores else None
    d_weights = torch.empty_like(weights) if of_weights else None
    loss, predicted, true = native().guided_move(
        scores_BK.contiguous().numpy(),
        labels_BK.contiguous().numpy(),
        weights.numpy(),
        shape.width,
        shape.mlp,
        shape.degree,
        k or 0,
        None if d_scores_BK is None else d_scores_BK.numpy(),
        None if d_weights is None else d_weights.numpy(),
        native_level(),
    )
    return GuidedMove(loss, predicted, math.nan if k is None else true, d_scores_BK, d_weights)


def list_ndcg(scores_BK: Tensor, labels_BK: Tensor, *, k: int = 10) -> Tensor:
    """[B], the NDCG@k of each list, gain `2^y - 1`; of equal scores the lower label comes first; 0 without a positive.

    Source: GuidedRec, equations 1-2.
    """
    if _simple(scores_BK, labels_BK):
        values_B = torch.empty(len(scores_BK))
        native().list_ndcg(scores_BK.detach().contiguous().numpy(), labels_BK.contiguous().numpy(), k, values_B.numpy())
        return values_B
    places = torch.arange(2, min(k, scores_BK.shape[1]) + 2, device=scores_BK.device, dtype=torch.float64)
    discounts = 1 / torch.log2(places)
    gains_BK = torch.exp2(labels_BK.double()) - 1
    # With constant scores the NDCG must not depend on where a list has its positives.
    by_label = labels_BK.argsort(dim=1, stable=True)
    ranked = torch.gather(scores_BK, 1, by_label).argsort(dim=1, descending=True, stable=True)
    order = torch.gather(by_label, 1, ranked)[:, :k]
    dcg_B = torch.gather(gains_BK, 1, order) @ discounts
    ideal_B = gains_BK.sort(dim=1, descending=True).values[:, :k] @ discounts
    return (dcg_B / torch.where(ideal_B > 0, ideal_B, torch.ones_like(ideal_B))).to(scores_BK.dtype)


def _simple(*tensors: Tensor) -> bool:
    """Whether the native core supports these: float32 on the CPU, without autocast."""
    plain = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return plain and not torch.is_autocast_enabled("cpu") and native() is not None
