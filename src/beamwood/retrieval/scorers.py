"""Trained rankers as plain arrays: their scores in numpy.

Shape legend: B rows, L history length, M items a row, D width, A attention width, U users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.data.features import FeatureColumn
from beamwood.errors import ArtefactError, InputError, nearest
from beamwood.kernels.arrays import check_floats, linear_shapes, shape_of
from beamwood.kernels.din import MAX_HISTORY
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.types import ItemLists, Query

__all__ = ["SCORERS", "ContextEncoder", "PairScorer", "check_pairs", "context_of", "restore_scorer"]

Array = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
# Numbers of an intermediate array held at a time (8 MiB): a larger block gains no speed.
_BLOCK_CELLS = 2**21


class _Stored(StoredConfig):
    kind: str
    context: tuple[dict[str, Any], ...] = Field((), strict=False)
    # Of a ranker that looks at histories.
    history_length: int = Field(1, ge=1, le=MAX_HISTORY)


class _StoredNeuMf(_Stored):
    layers: int = Field(ge=0, le=MOST)


class _StoredDin(_StoredNeuMf):
    attention: int = Field(ge=1, le=MOST)


class PairScorer(Protocol):
    """Scores of items for who asks; `needs_users`: it looks at the user, not only at the history."""

    kind: ClassVar[str]

    config: dict[str, Any]
    arrays: Arrays

    @property
    def needs_users(self) -> bool: ...

    @property
    def num_items(self) -> int: ...

    @property
    def num_users(self) -> int:
        """U, 0 where the ranker knows no users."""
        ...

    @property
    def width(self) -> int:
        """D, that of the vector that context columns are mapped to."""
        ...

    def score(
        self,
        users_B: NDArray[np.int64],
        histories: ItemLists,
        items_BM: NDArray[np.int64],
        context_BD: Array | None = None,
    ) -> Array:
        """float32[B, M]; users -1 for unknown ones; `context_BD` what the context's columns add."""
        ...

    def export(self) -> tuple[dict[str, Any], Arrays]: ...


class GraphRecScorer:
    """`sum_d relu(a_d b_d)`; see `models.graphrec`. `users` [U + 1, D], the last for the unknown, `items` [N, D]."""

    kind: ClassVar[str] = "graphrec"
    needs_users: ClassVar[bool] = True

    def __init__(self, config: dict[str, Any], arrays: Arrays) -> None:
        _Stored.model_validate(config)
        num_items, width = shape_of(arrays, "items", 2)
        num_users = shape_of(arrays, "users", 2)[0]
        check_floats(arrays, {"items": (num_items, width), "users": (num_users, width)})
        self.config, self.arrays = config, arrays
        self.users, self.items = arrays["users"], arrays["items"]

    @property
    def num_items(self) -> int:
        return len(self.items)

    @property
    def num_users(self) -> int:
        """U, without the row of the unknown."""
        return len(self.users) - 1

    @property
    def width(self) -> int:
        return int(self.items.shape[1])

    def score(
        self,
        users_B: NDArray[np.int64],
        histories: ItemLists,
        items_BM: NDArray[np.int64],
        context_BD: Array | None = None,
    ) -> Array:
        """See `PairScorer`."""
        del histories
        a_BD = self.users[users_B]
        if context_BD is not None:
            a_BD = a_BD + context_BD
        if len(items_BM) and items_BM.strides[0] == 0 and 4 * items_BM.shape[1] >= self.num_items:
            # The same items for all: `relu(a b) = relu(a) relu(b) + relu(-a) relu(-b)`, an inner product.
            b_MD = self.items[items_BM[0]]
            both: Array = np.maximum(a_BD, 0) @ np.maximum(b_MD, 0).T + np.minimum(a_BD, 0) @ np.minimum(b_MD, 0).T
            return both
        product: Array = np.maximum(a_BD[:, None, :] * self.items[items_BM], 0).sum(axis=2)
        return product

    def export(self) -> tuple[dict[str, Any], Arrays]:
        return self.config, self.arrays


class NeuMfScorer:
    """See `models.neumf`."""

    kind: ClassVar[str] = "neumf"
    needs_users: ClassVar[bool] = True

    def __init__(self, config: dict[str, Any], arrays: Arrays) -> None:
        layers = _StoredNeuMf.model_validate(config).layers
        (num_items, width), num_users = shape_of(arrays, "items", 2), shape_of(arrays, "users", 2)[0]
        factors = shape_of(arrays, "product_items", 2)[1]
        shapes = {"items": (num_items, width), "users": (num_users, width)}
        shapes |= {"product_items": (num_items, factors), "product_users": (num_users, factors)}
        chain, last = _chain(arrays, "hidden", layers, 2 * width)
        check_floats(arrays, shapes | chain | linear_shapes("output", factors + last, 1))
        self.config, self.arrays = config, arrays
        self.hidden = [(arrays[f"hidden.{i}.weight"], arrays[f"hidden.{i}.bias"]) for i in range(layers)]
        self.output = arrays["output.weight"], arrays["output.bias"]

    @property
    def num_items(self) -> int:
        return len(self.arrays["items"])

    @property
    def num_users(self) -> int:
        """U, without the row of the unknown."""
        return len(self.arrays["users"]) - 1

    @property
    def width(self) -> int:
        return int(self.arrays["items"].shape[1])

    def score(
        self,
        users_B: NDArray[np.int64],
        histories: ItemLists,
        items_BM: NDArray[np.int64],
        context_BD: Array | None = None,
    ) -> Array:
        """See `PairScorer`."""
        del histories
        arrays = self.arrays
        users_BD = arrays["users"][users_B]
        if context_BD is not None:
            users_BD = users_BD + context_BD
        scores = np.empty(items_BM.shape, np.float32)
        widest = max(weight.shape[1] for weight, _ in (*self.hidden, self.output))
        for rows, columns in _blocks(items_BM.shape, widest):
            scores[rows, columns] = self._block(users_B[rows], users_BD[rows], items_BM[rows, columns])
        return scores

    def _block(self, users_B: NDArray[np.int64], users_BD: Array, items_BM: NDArray[np.int64]) -> Array:
        arrays = self.arrays
        product = arrays["product_users"][users_B][:, None, :] * arrays["product_items"][items_BM]
        items = arrays["items"][items_BM]
        x = np.concatenate([np.broadcast_to(users_BD[:, None, :], items.shape), items], axis=2)
        for weight, bias in self.hidden:
            x = np.maximum(x @ weight.T + bias, 0)
        weight, bias = self.output
        scores: Array = (np.concatenate([product, x], axis=2) @ weight.T + bias)[:, :, 0]
        return scores

    def export(self) -> tuple[dict[str, Any], Arrays]:
        return self.config, self.arrays


class DinRankScorer:
    """See `models.din_ranker`."""

    kind: ClassVar[str] = "din"

    def __init__(self, config: dict[str, Any], arrays: Arrays) -> None:
        stored = _StoredDin.model_validate(config)
        num_items, width = shape_of(arrays, "items", 2)
        shapes: dict[str, tuple[int, ...]] = {"items": (num_items, width)}
        if "users" in arrays:
            shapes["users"] = (shape_of(arrays, "users", 2)[0], width)
        attention, last = _chain(arrays, "attention", stored.attention, 3 * width, slopes=True)
        shapes |= attention | linear_shapes("attention_out", last, 1)
        parts = 4 if "users" in arrays or stored.context else 3
        hidden, last = _chain(arrays, "hidden", stored.layers, parts * width, slopes=True)
        check_floats(arrays, shapes | hidden | linear_shapes("output", last, 1))
        self.config, self.arrays = config, arrays
        self.items = arrays["items"]
        self.history_length = stored.history_length
        self.attention = self._layers("attention", stored.attention)
        self.hidden = self._layers("hidden", stored.layers)

    def _layers(self, name: str, count: int) -> list[tuple[Array, Array, Array]]:
        parts = ("weight", "bias", "slope")
        return [tuple(self.arrays[f"{name}.{i}.{part}"] for part in parts) for i in range(count)]  # type: ignore[misc]

    @property
    def num_items(self) -> int:
        return len(self.items)

    @property
    def width(self) -> int:
        return int(self.items.shape[1])

    @property
    def needs_users(self) -> bool:
        """Do users have columns?"""
        return "users" in self.arrays

    @property
    def num_users(self) -> int:
        """U where users have columns, else 0."""
        return len(self.arrays["users"]) - 1 if "users" in self.arrays else 0

    def score(
        self,
        users_B: NDArray[np.int64],
        histories: ItemLists,
        items_BM: NDArray[np.int64],
        context_BD: Array | None = None,
    ) -> Array:
        """See `PairScorer`."""
        history_BL = histories.padded(self.history_length)
        about_BD = self.arrays["users"][users_B] if "users" in self.arrays else None
        if context_BD is not None:
            about_BD = context_BD if about_BD is None else about_BD + context_BD
        scores = np.empty(items_BM.shape, np.float32)
        # A candidate's own matrix of the first attention layer, and that layer at each history item.
        held = len(self.attention[0][1]) * (self.width + history_BL.shape[1])
        for rows, columns in _blocks(items_BM.shape, held):
            about = None if about_BD is None else about_BD[rows]
            scores[rows, columns] = self._block(history_BL[rows], items_BM[rows, columns], about)
        return scores

    def _block(self, history_BL: NDArray[np.int32], items_BM: NDArray[np.int64], about_BD: Array | None) -> Array:
        a_BLD = np.where(history_BL[:, :, None] >= 0, self.items[history_BL], np.float32(0))
        w_BMD = self.items[items_BM]
        z_BMD = self._weights(a_BLD, w_BMD, history_BL >= 0) @ a_BLD
        parts = [z_BMD, w_BMD, z_BMD * w_BMD]
        if about_BD is not None:
            parts.append(np.broadcast_to(about_BD[:, None, :], w_BMD.shape))
        x = np.concatenate(parts, axis=2)
        for weight, bias, slope in self.hidden:
            x = _prelu(x @ weight.T + bias, slope)
        scores: Array = (x @ self.arrays["output.weight"].T + self.arrays["output.bias"])[:, :, 0]
        return scores

    def _weights(self, a_BLD: Array, w_BMD: Array, present_BL: NDArray[np.bool_]) -> Array:
        weight, bias, slope = self.attention[0]
        by_a, by_product, by_w = np.split(weight, 3, axis=1)
        folded_BMAD = by_product * w_BMD[:, :, None, :] + by_a
        size, num_items, hidden, width = folded_BMAD.shape
        x = a_BLD @ folded_BMAD.reshape(size, num_items * hidden, width).transpose(0, 2, 1)
        x = x.reshape(size, -1, num_items, hidden).transpose(0, 2, 1, 3) + (w_BMD @ by_w.T + bias)[:, :, None, :]
        x = _prelu(x, slope)
        for weight, bias, slope in self.attention[1:]:
            x = _prelu(x @ weight.T + bias, slope)
        weights: Array = (x @ self.arrays["attention_out.weight"].T + self.arrays["attention_out.bias"])[:, :, :, 0]
        return weights * present_BL[:, None, :]

    def export(self) -> tuple[dict[str, Any], Arrays]:
        return self.config, self.arrays


class ContextEncoder:
    """What the columns of the context add, [B, D]; the twin of `models.features.FeatureEncoder`."""

    def __init__(self, columns: list[dict[str, Any]], arrays: Arrays) -> None:
        self.columns = tuple(FeatureColumn(**column) for column in columns)
        width = shape_of(arrays, "items", 2)[1]
        check_floats(arrays, {f"context.{column.name}": (column.size, width) for column in self.columns})
        self.weights = [arrays[f"context.{column.name}"] for column in self.columns]

    def encode(self, context: Mapping[str, NDArray[Any]] | None, num_rows: int) -> Array:
        """float32[B, D] of a query's context; a column that it lacks is missing throughout, others are left aside."""
        total = np.zeros((num_rows, self.weights[0].shape[1]), np.float32)
        for column, weight in zip(self.columns, self.weights, strict=True):
            if context is None or column.key not in context:
                total += weight[0 if column.kind == "category" else -1]
                continue
            cells = context[column.key]
            if column.kind != "category":
                total += cells @ weight
                continue
            real = cells >= 0
            sums = (weight[np.maximum(cells, 0)] * real[:, :, None]).sum(axis=1)
            total += sums / np.maximum(real.sum(axis=1), 1)[:, None]
        return total


SCORERS: dict[str, Any] = {
    "graphrec": GraphRecScorer,
    "neumf": NeuMfScorer,
    "din": DinRankScorer,
}


def restore_scorer(config: dict[str, Any], arrays: Arrays) -> PairScorer:
    """The scorer of what `export` gave. Errors: an unknown kind, a configuration or arrays that do not fit."""
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in SCORERS:
        raise ArtefactError(f"scorer kind {kind!r} is unknown{nearest(str(kind), SCORERS)}")
    scorer: PairScorer = SCORERS[kind](config, arrays)
    return scorer


def _chain(
    arrays: Arrays, name: str, count: int, inputs: int, *, slopes: bool = False
) -> tuple[dict[str, tuple[int, ...]], int]:
    """The shapes of the layers `name.0`, `name.1`, .., each fed by the one before, and the last one's outputs."""
    shapes: dict[str, tuple[int, ...]] = {}
    for place in range(count):
        outputs = shape_of(arrays, f"{name}.{place}.weight", 2)[0]
        shapes |= linear_shapes(f"{name}.{place}", inputs, outputs)
        if slopes:
            shapes[f"{name}.{place}.slope"] = (outputs,)
        inputs = outputs
    return shapes, inputs


def _blocks(shape: tuple[int, ...], held: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of [B, M] pairs, few enough at a time that `held` numbers for each stay in bounds."""
    pairs = max(1, _BLOCK_CELLS // max(1, held))
    width = max(1, min(pairs, shape[1]))
    height = max(1, pairs // width)
    for row in range(0, shape[0], height):
        for column in range(0, shape[1], width):
            yield slice(row, row + height), slice(column, column + width)


def _prelu(x: Array, slope: Array) -> Array:
    return np.where(x >= 0, x, x * slope)


def check_pairs(scorer: PairScorer, query: Query, items_BM: NDArray[np.int64]) -> None:
    """Errors: items of another number of rows, an item index outside -1 .. N - 1, a user outside -1 .. U - 1."""
    if items_BM.ndim != 2 or len(items_BM) != len(query):
        raise InputError(f"items has shape {items_BM.shape}; give one row for each of the {len(query)} of the query")
    users = query.users
    if len(users) and (users.min() < -1 or (scorer.needs_users and users.max() >= scorer.num_users)):
        raise InputError(f"users holds an index outside -1..{scorer.num_users - 1}")
    if items_BM.size and (items_BM.max() >= scorer.num_items or items_BM.min() < -1):
        raise InputError(f"items holds an index outside -1..{scorer.num_items - 1}")


def context_of(scorer: PairScorer) -> ContextEncoder | None:
    """The encoder of the context that the scorer looks at, None where it looks at none."""
    columns = scorer.config.get("context")
    return ContextEncoder(columns, scorer.arrays) if columns else None
