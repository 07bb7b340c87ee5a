"""DIN's attention weights for training, differentiable.

Shape legend: G groups (a user on a level, or one group for a table), L history entries, M nodes, D width, A hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["attention_weights"]


def attention_weights(
    a_GLD: Tensor,
    w_GMD: Tensor,
    present_GL: Tensor,
    weight_in: Tensor,
    bias_in: Tensor,
    slope_in: Tensor,
    weight_out: Tensor,
    bias_out: Tensor,
    slope_out: Tensor,
) -> Tensor:
    """Weights [G, M, L] of each node for each history entry, 0 where `present_GL` is false.

    `act(weight_out . act(weight_in [a; a * w; w] + bias_in) + bias_out)`, `weight_in` [A, 3 D], `weight_out` [1, A],
    computed as `(W_p diag(a) + W_w) w + W_a a`: one GEMM over all nodes. Source: DTR, equation 2.
    """
    w_a, w_p, w_w = weight_in.chunk(3, dim=1)
    folded_GLAD = w_p * a_GLD[:, :, None, :] + w_w
    num_groups, length, hidden, width = folded_GLAD.shape
    constant_GLA = a_GLD @ w_a.T + bias_in
    hidden_GXM = torch.bmm(folded_GLAD.reshape(num_groups, length * hidden, width), w_GMD.transpose(1, 2))
    hidden_GLAM = hidden_GXM.view(num_groups, length, hidden, -1) + constant_GLA[..., None]
    active = torch.where(hidden_GLAM > 0, hidden_GLAM, hidden_GLAM * slope_in[:, None])
    out_GLM = torch.einsum("a,glam->glm", weight_out[0], active) + bias_out
    out_GLM = torch.where(out_GLM > 0, out_GLM, out_GLM * slope_out)
    return (out_GLM * present_GL[:, :, None]).transpose(1, 2)
