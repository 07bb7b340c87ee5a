"""Mixture of logits: products of several unit components of a query and an item, mixed by gates of both.

    s(q, x) = sum_ij pi_ij(q, x) <f_i(q), g_j(x)> / tau,    pi = softmax(silu(a(q) a'(x) + a''(<f, g>)))

Shape legend: B queries, M items (of a query, or the same for all), D width, Q and X components of a query and of an
item, C their width, P = Q X pairs of them.
Source: Zhai et al., "Revisiting Neural Retrieval on Accelerators"; Ding and Zhai, "Retrieval with Learned
Similarities".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from beamwood.models import parameters as declared
from beamwood.models.ops import Array, Parameters, dropped, linear, silu, softmax, unit
from beamwood.models.parameters import LayerWidth, Parameter, linear_parameters

__all__ = ["PREFIX", "Sizes", "component_products", "item_parts", "mixture_scores", "parameters", "query_parts"]

PREFIX = "mixture."
"""The prefix of the parameters' names."""

Count = Annotated[int, Field(ge=1, lt=2**7)]


class Sizes(declared.Sizes):
    """The number and width of components."""

    query_components: Count = Field(4, description="number of unit vectors per query")
    item_components: Count = Field(2, description="number of unit vectors per item")
    component_width: LayerWidth = Field(32, description="width of each unit vector")
    gate_hidden: LayerWidth = Field(32, description="hidden units of each gate")

    @property
    def pairs(self) -> int:
        """P."""
        return self.query_components * self.item_components


def parameters(width: int, sizes: Sizes) -> Iterator[Parameter]:
    """The components' maps, then the gates, by Xavier."""
    yield from linear_parameters(f"{PREFIX}queries", width, sizes.query_components * sizes.component_width)
    yield from linear_parameters(f"{PREFIX}items", width, sizes.item_components * sizes.component_width)
    for gate, inputs in (("query_gate", width), ("item_gate", width), ("pair_gate", sizes.pairs)):
        yield from linear_parameters(f"{PREFIX}{gate}.inner", inputs, sizes.gate_hidden)
        yield from linear_parameters(f"{PREFIX}{gate}.outer", sizes.gate_hidden, sizes.pairs)


def query_parts(p: Parameters, vectors_BD: Array, sizes: Sizes) -> tuple[Array, Array]:
    """The components [B, Q, C] of queries, and their inputs to the gates [B, P]."""
    parts = linear(vectors_BD, p, f"{PREFIX}queries").reshape(-1, sizes.query_components, sizes.component_width)
    return unit(parts), _gate(p, vectors_BD, "query_gate")


def item_parts(p: Parameters, vectors_MD: Array, sizes: Sizes) -> tuple[Array, Array]:
    """The components [M, X, C] of items, and their inputs to the gates [M, P]."""
    parts = linear(vectors_MD, p, f"{PREFIX}items").reshape(-1, sizes.item_components, sizes.component_width)
    return unit(parts), _gate(p, vectors_MD, "item_gate")


def component_products(queries_BQC: Array, items: Array) -> Array:
    """[B, M, P], for items [M, X, C] shared by all queries, or for each query's own [B, M, X, C]."""
    # Sizes are written out: of no items, an array cannot tell what -1 stands for.
    (rows, count, width), (num_items, parts) = queries_BQC.shape, items.shape[-3:-1]
    if items.ndim == 3:
        flat = queries_BQC.reshape(rows * count, width) @ items.reshape(num_items * parts, width).T
        by_query = flat.reshape(rows, count, num_items, parts)
        return by_query.swapaxes(1, 2).reshape(rows, num_items, count * parts)
    flat = items.reshape(rows, num_items * parts, width) @ queries_BQC.swapaxes(1, 2)
    by_item = flat.reshape(rows, num_items, parts, count)
    return by_item.swapaxes(2, 3).reshape(rows, num_items, count * parts)


def mixture_scores(
    p: Parameters,
    products_BMP: Array,
    query_gate_BP: Array,
    item_gate: Array,
    temperature: float,
    dropout: float = 0.0,
) -> tuple[Array, Array]:
    """The scores [B, M], and the gates' shares [B, M, P]; `item_gate` [M, P] or [B, M, P]."""
    gates = silu(query_gate_BP[:, None, :] * item_gate + _gate(p, products_BMP, "pair_gate"))
    shares_BMP = softmax(gates)
    return (dropped(shares_BMP, dropout) * products_BMP).sum(-1) / temperature, shares_BMP


def _gate(p: Parameters, x: Array, name: str) -> Array:
    return linear(silu(linear(x, p, f"{PREFIX}{name}.inner")), p, f"{PREFIX}{name}.outer")
