"""GuidedRec's two functions of a list, its NDCG and a network's prediction of that: native on the CPU, torch elsewhere.

Shape legend: B lists, K items a list, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from beamwood.kernels.dispatch import native, native_level

__all__ = ["LAST", "SurrogateShape", "list_ndcg", "predicted_ndcg", "squared_miss", "summed_ndcg"]

LAST = 8
"""Width of the layer before the prediction."""


@dataclass(frozen=True, slots=True)
class SurrogateShape:
    """Of the network: `size` K, `width` D, whether it has the MLP, and the degree of its NFM (0: none, 1, 2)."""

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
    """[B], what the network with these flat weights predicts; as `models.surrogate.NdcgSurrogate` has it."""
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


def squared_miss(
    p_BK: Tensor, labels_BK: Tensor, true_B: Tensor, weights: Tensor, shape: SurrogateShape
) -> tuple[Tensor, Tensor]:
    """`1/2 sum (predicted - true)^2`, and the predicted NDCG [B], which carries no gradient."""
    if _simple(p_BK, labels_BK, weights, true_B):
        loss, predicted_B = _NativeObjective.apply(p_BK, labels_BK, weights, shape, true_B)  # type: ignore[no-untyped-call]
        return loss, predicted_B
    predicted_B = predicted_ndcg(p_BK, labels_BK, weights, shape)
    return (predicted_B - true_B).square().sum() / 2, predicted_B.detach()


def summed_ndcg(p_BK: Tensor, labels_BK: Tensor, weights: Tensor, shape: SurrogateShape) -> Tensor:
    """`sum predicted`."""
    if _simple(p_BK, labels_BK, weights):
        total: Tensor = _NativeObjective.apply(p_BK, labels_BK, weights, shape, None)[0]  # type: ignore[no-untyped-call]
        return total
    return predicted_ndcg(p_BK, labels_BK, weights, shape).sum()


class _NativeSurrogate(torch.autograd.Function):
    """One call forward, one for all gradients: the network is so small that torch's calls are nearly all its cost."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, labels: Tensor, weights: Tensor, shape: SurrogateShape) -> Tensor:
        p, labels, weights = p.detach().contiguous(), labels.contiguous(), weights.detach()
        ctx.save_for_backward(p, labels, weights)
        ctx.shape = shape
        predicted = torch.empty(len(p))
        _run(p, labels, weights, shape, predicted)
        return predicted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        p, labels, weights = ctx.saved_tensors
        d_p = torch.empty_like(p) if ctx.needs_input_grad[0] else None
        d_weights = torch.empty_like(weights) if ctx.needs_input_grad[2] else None
        _run(p, labels, weights, ctx.shape, torch.empty(len(p)), gradient.contiguous(), d_p, d_weights)
        return d_p, None, d_weights, None


class _NativeObjective(torch.autograd.Function):
    """What GuidedRec asks of the predictions, with all gradients in the call that predicts: half the squared misses of
    `true`, or without it the sum; and the predictions."""

    @staticmethod
    def forward(
        ctx: Any, p: Tensor, labels: Tensor, weights: Tensor, shape: SurrogateShape, true: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        p, labels, weights = p.detach().contiguous(), labels.contiguous(), weights.detach()
        predicted = torch.empty(len(p))
        ctx.d_p = torch.empty_like(p) if ctx.needs_input_grad[0] else None
        ctx.d_weights = torch.empty_like(weights) if ctx.needs_input_grad[2] else None
        ones = torch.ones(len(p)) if true is None else None
        target = None if true is None else true.detach().contiguous()
        _run(p, labels, weights, shape, predicted, ones, ctx.d_p, ctx.d_weights, target=target)
        ctx.mark_non_differentiable(predicted)
        if target is None:
            return predicted.sum(), predicted
        misses = predicted - target
        return misses.dot(misses) / 2, predicted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, None, Tensor | None, None, None]:
        d_p, d_weights = (None if each is None else gradient * each for each in (ctx.d_p, ctx.d_weights))
        return d_p, None, d_weights, None, None


def _run(
    p: Tensor,
    labels: Tensor,
    weights: Tensor,
    shape: SurrogateShape,
    predicted: Tensor,
    gradient: Tensor | None = None,
    d_p: Tensor | None = None,
    d_weights: Tensor | None = None,
    *,
    target: Tensor | None = None,
) -> None:
    """Predictions, and with a gradient, or with that of half the squared misses of a target, d_p and d_weights."""
    parts = (predicted, gradient, target, d_p, d_weights)
    arrays = [None if tensor is None else tensor.numpy() for tensor in parts]
    native().ndcg_surrogate(
        p.numpy(), labels.numpy(), weights.numpy(), shape.width, shape.mlp, shape.degree, *arrays, native_level()
    )


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
    # Scores that say nothing must not be praised for the place at which a list writes its positives.
    by_label = labels_BK.argsort(dim=1, stable=True)
    ranked = torch.gather(scores_BK, 1, by_label).argsort(dim=1, descending=True, stable=True)
    order = torch.gather(by_label, 1, ranked)[:, :k]
    dcg_B = torch.gather(gains_BK, 1, order) @ discounts
    ideal_B = gains_BK.sort(dim=1, descending=True).values[:, :k] @ discounts
    return (dcg_B / torch.where(ideal_B > 0, ideal_B, torch.ones_like(ideal_B))).to(scores_BK.dtype)


def _simple(*tensors: Tensor) -> bool:
    """Whether the native core takes these: float32 on the CPU, without autocast."""
    plain = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return plain and not torch.is_autocast_enabled("cpu") and native() is not None
