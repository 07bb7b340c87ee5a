"""The light head in training: it learns the scorer's softmax over a beam's candidates.

Shape legend: B rows, L history length, M nodes a row, V nodes of the tree, W columns, R columns of a similarity.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.kernels.light import LightHead, light_query, quantised
from beamwood.tree.tree import Shape

__all__ = ["LightModule"]

# Units of the residual network, and the initial spread of vectors and weight of places without a similarity.
_HIDDEN, _SPREAD, _PLACE = 128, 0.05, 0.1


class LightModule(nn.Module):
    """The head of `kernels.light` in floats, with a temperature for each level, which `export` folds into the vectors.

    `sparse`: gradients of the tables have only the rows used in a step, for very large trees.
    """

    def __init__(
        self, shape: Shape, history_length: int, width: int, *, generator: torch.Generator, sparse: bool = False
    ) -> None:
        super().__init__()
        self.shape = shape
        self.nodes, self.history = (nn.Embedding(shape.num_nodes, width, sparse=sparse) for _ in range(2))
        self.biases = nn.Embedding(shape.num_nodes, 1, sparse=sparse)
        for table in (self.nodes, self.history):
            nn.init.normal_(table.weight, std=_SPREAD, generator=generator)
        nn.init.zeros_(self.biases.weight)
        self.places = nn.Parameter(torch.full((history_length,), _PLACE))
        self.temperatures = nn.Parameter(torch.ones(shape.depth))
        self.up, self.down = nn.Linear(width, _HIDDEN), nn.Linear(_HIDDEN, width)
        nn.init.kaiming_uniform_(self.up.weight, a=5**0.5, generator=generator)
        for parameter in (self.up.bias, self.down.weight, self.down.bias):
            nn.init.zeros_(parameter)

    @torch.no_grad()
    def start(self, vectors_VR: NDArray[np.float32], places_L: NDArray[np.float32]) -> None:
        """Initialise both sides by the leading directions of a fixed similarity, and places by its weights."""
        vectors = torch.from_numpy(vectors_VR)
        width = min(self.nodes.embedding_dim, vectors.shape[1])
        # Principal directions, largest first: their leading columns keep most of every product.
        _, directions = torch.linalg.eigh(vectors.T.double() @ vectors.double())
        leading = vectors @ directions.flip(1)[:, :width].float()
        for table in (self.nodes, self.history):
            table.weight.zero_()
            table.weight[:, :width] = leading
        self.places.copy_(torch.from_numpy(places_L))

    def forward(self, leaves_BL: Tensor, level: int, nodes_BM: Tensor) -> Tensor:
        """Scores [B, M] of nodes of a level, without sparse terms; -1 is the level's first node."""
        offset = self.shape.level_offset(level)
        query_BW = self.query(leaves_BL, level)
        rows_BM = nodes_BM.clamp(min=0) + offset
        products = torch.bmm(self.nodes(rows_BM), query_BW[:, :, None])[:, :, 0]
        scores: Tensor = (products + self.biases(rows_BM)[:, :, 0]) * self.temperatures[level - 1]
        return scores

    def query(self, leaves_BL: Tensor, level: int) -> Tensor:
        """[B, W], the vectors of histories on a level."""
        history_BL = torch.div(leaves_BL, self.shape.leaves_below(level), rounding_mode="floor")
        weights_BL = self.places * (history_BL >= 0)
        vectors_BLW = self.history(history_BL.clamp(min=0) + self.shape.level_offset(level))
        sums = torch.bmm(weights_BL[:, None, :], vectors_BLW)[:, 0]
        held = {"up": self.up.weight, "up_bias": self.up.bias, "down": self.down.weight, "down_bias": self.down.bias}
        query: Tensor = light_query(held, sums)
        return query

    @torch.no_grad()
    def export(self) -> LightHead:
        """Plain arrays for search."""
        sizes = [self.shape.level_size(level) for level in range(1, self.shape.depth + 1)]
        factors = np.repeat(_copied_array(self.temperatures), sizes)
        nodes, node_scales = quantised(_copied_array(self.nodes.weight))
        history, history_scales = quantised(_copied_array(self.history.weight))
        return LightHead(
            nodes=nodes,
            node_scales=node_scales * factors,
            biases=_copied_array(self.biases.weight)[:, 0] * factors,
            history=history,
            history_scales=history_scales,
            places=_copied_array(self.places),
            up=_copied_array(self.up.weight),
            up_bias=_copied_array(self.up.bias),
            down=_copied_array(self.down.weight),
            down_bias=_copied_array(self.down.bias),
        )


def _copied_array(tensor: Tensor) -> NDArray[np.float32]:
    """A copy as a numpy array."""
    return np.array(tensor.detach().cpu().numpy(), np.float32, order="C")
