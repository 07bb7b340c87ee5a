"""GraphRec: user and item vectors in one space, whose products are rectified with both signs.

Shape legend: D width.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.models.pair_model import PairInputs, PairModel
from beamwood.models.parameters import Sizes
from beamwood.models.scorers import graphrec
from beamwood.ragged import indptr_of
from beamwood.types import ItemLists

__all__ = ["GraphRec"]


class GraphRec(PairModel):
    """`s = sum_d relu(a_d) relu(b_d) + relu(-a_d) relu(-b_d)`, `a = W_u x_u + c_u`, `b = W_i x_i + c_i`.

    x is the id, the given columns, and with `graph` (the training histories) the row of the graph's Laplacian: the
    neighbours and the degree divided by the largest. Context columns add to a. The sum equals `sum_d relu(a_d b_d)`,
    since a product is positive where both signs agree. Source: GraphRec (Rashed et al. 2019); GuidedRec has ids only.
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        *,
        width: int,
        graph: ItemLists | None = None,
        **inputs: Unpack[PairInputs],
    ) -> None:
        super().__init__(graphrec.SCORE, num_users, num_items, width=width, sizes=Sizes(), **inputs)
        self.user_bias = nn.Parameter(torch.zeros(width))
        self.item_bias = nn.Parameter(torch.zeros(width))
        self.user_graph = self.item_graph = None
        if graph is not None:
            edges, generator = graph.distinct(), inputs.get("generator")
            rows, columns = edges.rows, edges.items
            self.user_graph = NeighbourSum(rows, columns, num_users, num_items, width, generator)
            order = np.argsort(columns, kind="stable")
            self.item_graph = NeighbourSum(columns[order], rows[order], num_items, num_users, width, generator)

    def user_rows(self, users: Tensor) -> dict[str, Tensor]:
        """a [.., D] as "users", without the context."""
        vectors = super().user_rows(users)["users"] + self.user_bias
        return {"users": vectors if self.user_graph is None else vectors + self.user_graph(users)}

    def item_rows(self, items: Tensor) -> dict[str, Tensor]:
        """b [.., D] as "items"."""
        vectors = super().item_rows(items)["items"] + self.item_bias
        return {"items": vectors if self.item_graph is None else vectors + self.item_graph(items)}


class NeighbourSum(nn.Module):
    """[.., D]: the sum of the neighbours' vectors plus degree / largest degree times a vector; 0 for row -1."""

    def __init__(
        self,
        rows: NDArray[Any],
        neighbours: NDArray[Any],
        num_rows: int,
        num_neighbours: int,
        width: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        # A further row without neighbours for unknown ids.
        degrees = np.bincount(rows, minlength=num_rows + 1).astype(np.int64)
        self.register_buffer("indptr", torch.from_numpy(indptr_of(degrees)), persistent=False)
        self.register_buffer("neighbours", torch.from_numpy(neighbours.astype(np.int64)), persistent=False)
        share = degrees / max(1, degrees.max(initial=0))
        self.register_buffer("share", torch.from_numpy(share.astype(np.float32)), persistent=False)
        self.vectors = nn.Parameter(torch.empty(num_neighbours, width).normal_(std=0.01, generator=generator))
        self.degree = nn.Parameter(torch.empty(width).normal_(std=0.01, generator=generator))

    def forward(self, rows: Tensor) -> Tensor:
        """[.., D] of int64[..] in -1 .. num_rows - 1."""
        indptr, neighbours, share = self.indptr, self.neighbours, self.share
        assert isinstance(indptr, Tensor)
        assert isinstance(neighbours, Tensor)
        assert isinstance(share, Tensor)
        flat, back = torch.unique(rows, return_inverse=True)
        flat = torch.where(flat < 0, len(share) - 1, flat)
        counts = indptr[flat + 1] - indptr[flat]
        starts = torch.cumsum(counts, 0) - counts
        places = torch.arange(int(counts.sum()), device=rows.device) + torch.repeat_interleave(
            indptr[flat] - starts, counts
        )
        sums = functional.embedding_bag(neighbours[places], self.vectors, starts, mode="sum")
        return (sums + share[flat, None] * self.degree)[back]
