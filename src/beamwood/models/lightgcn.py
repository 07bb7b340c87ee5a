"""LightGCN: vectors of users and items, averaged over the layers of the user-item graph.

    E_(k+1) = D^-1/2 A D^-1/2 E_k,    E = (E_0 + .. + E_K) / (K + 1)

Shape legend: V = U + N nodes of the graph (users, then items), R nodes of a step, D width.
Source: He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation". K = 0 is matrix
factorisation.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from beamwood.types import ItemLists

__all__ = ["AveragedGraph", "AveragedRows", "Graph", "GraphVectors"]


class Graph:
    """The user-item graph; the weight of an edge is 1 / sqrt(product of both nodes' degrees), repeats count once."""

    def __init__(self, histories: ItemLists, num_items: int, num_layers: int) -> None:
        self.num_layers, each = num_layers, histories.distinct()
        num_users = len(each)
        degrees = np.concatenate([each.lengths, np.bincount(each.items, minlength=num_items)])
        # Isolated nodes have scale 0.
        self.scale_V = np.where(degrees > 0, np.maximum(degrees, 1) ** -0.5, 0.0).astype(np.float32)
        users, items = each.rows, each.items.astype(np.int64) + num_users
        weights = self.scale_V[users] * self.scale_V[items]
        ends = np.concatenate([users, items]), np.concatenate([items, users])
        size = num_users + num_items
        self.edges = sparse.csr_matrix((np.tile(weights, 2), ends), shape=(size, size), dtype=np.float32)
        self._edges: Tensor | None = None

    def edges_on(self, device: torch.device) -> Tensor:
        """The edges as a sparse tensor [V, V] on a GPU, built once."""
        if self._edges is None or self._edges.device != device:
            indptr, indices = torch.from_numpy(self.edges.indptr), torch.from_numpy(self.edges.indices)
            data, size = torch.from_numpy(self.edges.data), self.edges.shape
            with warnings.catch_warnings():
                # torch warns that sparse tensors are in beta.
                warnings.simplefilter("ignore", UserWarning)
                self._edges = torch.sparse_csr_tensor(indptr, indices, data, size, device=device)
        return self._edges

    def summed(self, vectors_VD: NDArray[np.float32], layers: int) -> NDArray[np.float32]:
        """float32[V, D], `E_0 + .. + E_(layers - 1)`; zeros for no layer."""
        if layers == 0:
            return np.zeros_like(vectors_VD)
        total: NDArray[np.float32] = vectors_VD
        for _ in range(layers - 1):
            total = vectors_VD + self.edges @ total
        return total


class AveragedRows(torch.autograd.Function):
    """[R, D], the mean over the layers of some nodes' vectors; the graph is symmetric, so its gradient is one as well.

    The last layer forward, and the first backward, are computed at these nodes alone.
    """

    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, rows_R: Tensor, graph: Graph) -> Tensor:
        own, table = graph.edges[rows_R.numpy()], table_VD.numpy()
        ctx.graph, ctx.own, ctx.rows = graph, own, rows_R
        summed = table[rows_R.numpy()] + own @ graph.summed(table, graph.num_layers)
        return torch.from_numpy(summed / np.float32(graph.num_layers + 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor, None, None]:
        graph, gradient = ctx.graph, gradient_RD.numpy()
        spread = graph.summed(ctx.own.T @ gradient, graph.num_layers)
        np.add.at(spread, ctx.rows.numpy(), gradient)
        return torch.from_numpy(spread / np.float32(graph.num_layers + 1)), None, None


class AveragedGraph(torch.autograd.Function):
    """As `AveragedRows` with whole layers, on any device: a GPU cannot select rows of a sparse matrix."""

    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, rows_R: Tensor, graph: Graph) -> Tensor:
        ctx.graph, ctx.size = graph, len(table_VD)
        ctx.save_for_backward(rows_R)
        return _averaged(table_VD, graph)[rows_R]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor, None, None]:
        (rows_R,) = ctx.saved_tensors
        spread = gradient_RD.new_zeros(ctx.size, gradient_RD.shape[1]).index_copy_(0, rows_R, gradient_RD)
        return _averaged(spread, ctx.graph), None, None


def _averaged(vectors_VD: Tensor, graph: Graph) -> Tensor:
    """[V, D], the mean over the layers of all nodes' vectors."""
    total, edges = vectors_VD, graph.edges_on(vectors_VD.device)
    for _ in range(graph.num_layers):
        total = torch.addmm(vectors_VD, edges, total)
    return total / (graph.num_layers + 1)


class GraphVectors(nn.Module):
    """The vectors E_0 of users, then items, initialised by N(0, 0.1)."""

    def __init__(self, graph: Graph, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.graph = graph
        self.table = nn.Parameter(torch.empty(len(graph.scale_V), width))
        nn.init.normal_(self.table, std=0.1, generator=generator)

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The averaged vectors [.., D] of the nodes int64[..], and their E_0."""
        rows_R, places = torch.unique(nodes, return_inverse=True)
        form = AveragedRows if rows_R.device.type == "cpu" else AveragedGraph
        vectors: Tensor = form.apply(self.table, rows_R, self.graph)  # type: ignore[no-untyped-call]
        return vectors[places], self.table[rows_R][places]
