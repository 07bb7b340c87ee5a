"""One step: the only code that clears and clips gradients and updates the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from beamwood.errors import InputError

__all__ = ["NonFiniteError", "StepResult", "apply_gradients", "train_step"]


class NonFiniteError(InputError):
    """The loss or a gradient is infinite or NaN; the step did not change the weights."""

    def __init__(self, step: int, loss: float, grad_norm: float, learning_rate: float) -> None:
        self.step, self.loss = step, loss
        super().__init__(
            f"step {step}: the loss is {loss:g} with gradient norm {grad_norm:g}, so nothing was updated; "
            f"lower learning_rate (now {learning_rate:g}), lengthen warmup_steps or set clip_norm"
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    """The mean loss over the examples of a step, the norm of its gradient before clipping, and further facts."""

    loss: float
    grad_norm: float
    facts: Mapping[str, float] = field(default_factory=dict)


def train_step(
    loss: Callable[[], Tensor],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    step: int,
    clip_norm: float | None = None,
) -> StepResult:
    """Update `model` once on the mean of `loss()`, which is one value an example or their mean.

    Gradients longer than `clip_norm` are scaled to it, over all parameters together. Dense and sparse (row-wise)
    gradients may mix. Raises `NonFiniteError` before any update when the loss or the gradient is not finite, and
    `InputError` where the loss has no gradient.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _clear(parameters)
    total = loss()
    # Needless `mean` calls are avoided: in a small step they take as long as real work.
    total = total if total.dim() == 0 else total.mean()
    if not total.requires_grad:
        raise InputError(
            f"step {step}: the loss does not depend on the model's weights; compute it from the scores by torch, "
            "without detach"
        )
    total.backward()  # type: ignore[no-untyped-call]
    return apply_gradients(total.detach(), parameters, optimizers, step=step, clip_norm=clip_norm)


def apply_gradients(
    loss: Tensor | float,
    parameters: Sequence[nn.Parameter],
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    step: int,
    clip_norm: float | None = None,
) -> StepResult:
    """Clip the gradients of `parameters`, step the optimisers, and clear the gradients; `loss`: for the result.

    Raises `NonFiniteError` before any update when the loss or the gradient is not finite.
    """
    norm = _gradient_norm(parameters)
    # One GPU synchronisation instead of two.
    values = torch.stack([loss, norm.to(loss)]).tolist() if isinstance(loss, Tensor) else [loss, float(norm)]
    loss_value, norm_value = values
    if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
        _clear(parameters)
        raise NonFiniteError(step, loss_value, norm_value, max(g["lr"] for o in optimizers for g in o.param_groups))
    if clip_norm is not None and norm_value > clip_norm:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(clip_norm / norm_value)
    for optimizer in optimizers:
        optimizer.step()
    _clear(parameters)
    return StepResult(loss_value, norm_value)


def _clear(parameters: Sequence[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None


def _gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The 2-norm of all gradients together; sparse ones are coalesced in place, as the optimiser needs them."""
    norms = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            parameter.grad = gradient
            gradient = gradient.values()
        norms.append(torch.linalg.vector_norm(gradient))
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0]) for norm in norms])) if norms else torch.zeros(())
