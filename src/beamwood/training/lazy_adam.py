"""Adam that updates only the rows of an embedding table used in a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from beamwood.errors import InputError
from beamwood.training.loop_config import LAZY_FROM, EmbeddingOptimiser

__all__ = ["LazyAdam", "sparse_gradients"]


def sparse_gradients(model: nn.Module, kind: EmbeddingOptimiser) -> None:
    """Let the embedding tables of `model` that `kind` selects return sparse gradients, of the used rows only."""
    assert kind != "auto", "a plan resolves it"
    for table in model.modules():
        if isinstance(table, nn.Embedding | nn.EmbeddingBag):
            table.sparse = kind == "lazy-adam" or (kind == "large" and table.num_embeddings >= LAZY_FROM)


def _without_compiler(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of torch's optimisers without its wrapper.

    The wrapper imports torch's compiler, which is not used here and takes as long to import as torch itself.
    """
    plain: Callable[..., Any] = inspect.unwrap(method)
    return plain


class LazyAdam(torch.optim.Adam):
    """Torch's Adam (with `decoupled`, AdamW), but row by row for tables with sparse gradients.

    `sparse_gradients` selects these. For each row with gradient g: `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`,
    `row -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)` (Kingma and Ba, 2015, algorithm 1). Dense Adam also
    updates rows without a gradient: their moments decay, and their momentum still moves them; here both stay. The two
    are equal where every row has a gradient at every step. t counts the steps of the table, as in
    `torch.optim.SparseAdam` (counting by row learned worse on `amazon_games_sasrec`). `weight_decay`, too, acts on used
    rows only: added to g, or with `decoupled=True` subtracted from the row as `lr * weight_decay * row` (AdamW).
    `amsgrad=True` divides by the largest v so far. There is no dense temporary of a table's size; its moments are two
    (three) tables of its shape.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        amsgrad: bool = False,
    ) -> None:
        # The fused kernel reads a table once, the others ten times.
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, fused=True, decoupled_weight_decay=decoupled)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in `torch.optim.Optimizer`."""
        _without_compiler(torch.optim.Optimizer.add_param_group)(self, param_group)

    def state_dict(self) -> dict[str, Any]:
        """As in `torch.optim.Optimizer`."""
        state: dict[str, Any] = _without_compiler(torch.optim.Optimizer.state_dict)(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in `torch.optim.Optimizer`."""
        _without_compiler(torch.optim.Optimizer.load_state_dict)(self, state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters with a gradient; raises `InputError` on one that is sparse in its columns, too."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        tables = []
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None and table.grad.is_sparse:
                    if table.grad.sparse_dim() != 1:
                        raise InputError("LazyAdam takes gradients that are sparse in rows alone, as nn.Embedding's")
                    tables.append((table, table.grad.coalesce(), group))
                    table.grad = None
        _without_compiler(torch.optim.Adam.step)(self)
        for table, gradient, group in tables:
            self._update(table, gradient.indices()[0], gradient.values(), group)
            table.grad = gradient
        return loss

    def _update(self, table: Tensor, rows: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[table]
        if not state:
            self._begin(table, state, group)
        beta1, beta2 = group["betas"]
        lr, decay = group["lr"], group["weight_decay"]
        state["step"] += 1
        correction1, correction2 = (1 - beta ** float(state["step"]) for beta in (beta1, beta2))

        values = table.index_select(0, rows)
        if decay:
            if group["decoupled_weight_decay"]:
                values.mul_(1 - lr * decay)
            else:
                gradient = gradient.add(values, alpha=decay)
        first = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - beta1)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"].index_select(0, rows)
            second = torch.maximum(second, largest, out=largest)
            state["max_exp_avg_sq"].index_copy_(0, rows, second)
        denominator = second.div_(correction2).sqrt_().add_(group["eps"])
        values.sub_(first.div_(correction1).div_(denominator).mul_(lr))
        table.index_copy_(0, rows, values)

    def _begin(self, table: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        # In the form that load_state_dict gives the steps of a fused optimiser.
        state["step"] = torch.zeros((), dtype=torch.float32, device=table.device)
        for name in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())):
            state[name] = torch.zeros_like(table, memory_format=torch.preserve_format)
