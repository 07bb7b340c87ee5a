"""Trained rankers as plain arrays: scores without torch.

Shape legend: B rows, L history length, M items a row, D width, U users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import cell_blocks
from beamwood.data.features import FeatureColumn
from beamwood.errors import UnknownSearcherError, nearest
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.columns import column_vectors
from beamwood.models.parameters import check_declared
from beamwood.models.scorer import PairScore, Rows
from beamwood.models.scorers import SCORERS
from beamwood.retrieval.stored import StoredConfig
from beamwood.types import ItemLists

__all__ = ["ContextEncoder", "PlainScorer", "context_encoder", "restore_scorer"]

Array = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
# Values of an intermediate array held at a time (8 MiB): a larger block is no faster.
_BLOCK_CELLS = 2**21


class _Stored(StoredConfig):
    kind: str
    sizes: dict[str, Any] = Field(default_factory=dict)
    context: tuple[dict[str, Any], ...] = Field((), strict=False)
    # For rankers that read histories.
    history_length: int = Field(1, ge=1, le=MAX_HISTORY)


class PlainScorer:
    """A fitted scorer in plain arrays: the tables of users and items, and the parameters by name.

    `needs_users`: it uses the user, not only the history. `num_users`: U, 0 where it knows none. `width`: D, of the
    vector that context columns are mapped to.

    Raises `ArtefactError` on missing, superfluous, inconsistent or non-finite arrays, and `ValueError` on an invalid
    configuration.
    """

    def __init__(self, score: PairScore, config: dict[str, Any], arrays: Arrays) -> None:
        stored = _Stored.model_validate(config)
        self.kind, self.history_length = score.kind, stored.history_length
        self._score, self._sizes = score, score.sizes.model_validate(stored.sizes)
        self.num_items, self.width = shape_of(arrays, "items", 2)
        self.needs_users = score.needs_users or "users" in arrays
        rows = {"items": self.num_items, "users": shape_of(arrays, "users", 2)[0] if self.needs_users else 0}
        self.num_users = max(0, rows["users"] - 1)
        self._tables: dict[str, list[str]] = {"users": [], "items": []}
        shapes = {}
        for name, width in score.tables(self.width, self._sizes).items():
            what = "users" if name.endswith("users") else "items"
            if rows[what]:
                self._tables[what].append(name)
                shapes[name] = rows[what], width
        check_floats(arrays, shapes)
        about = self.needs_users or bool(stored.context)
        context = [name for name in arrays if name.startswith("context.")]
        check_declared(arrays, score.parameters(self.width, self._sizes, about), [*shapes, *context])
        self.config, self.arrays = config, arrays
        self._held = score.held(self.width, self._sizes, self.history_length)

    def score(
        self,
        users_B: NDArray[np.int64],
        histories: ItemLists,
        items_BM: NDArray[np.int64],
        context_BD: Array | None = None,
    ) -> Array:
        """float32[B, M]; users are -1 if unknown; `context_BD`: the vector of the context columns."""
        score, arrays = self._score, self.arrays
        users = {name: arrays[name][users_B] for name in self._tables["users"]}
        if context_BD is not None:
            users["users"] = users["users"] + context_BD if "users" in users else context_BD
        if score.catalogue is not None and _is_one_row(items_BM) and 4 * items_BM.shape[1] >= self.num_items:
            same = {name: arrays[name][items_BM[0]] for name in self._tables["items"]}
            every: Array = score.catalogue(Rows(users, same), self._sizes)
            return every
        history_BL = histories.padded(self.history_length) if score.reads_history else None
        scores = np.empty(items_BM.shape, np.float32)
        for rows, columns in cell_blocks(len(items_BM), items_BM.shape[1], _BLOCK_CELLS // max(1, self._held)):
            items = {name: arrays[name][items_BM[rows, columns]] for name in self._tables["items"]}
            some = Rows({name: vectors[rows] for name, vectors in users.items()}, items)
            if history_BL is not None:
                some = replace(some, history_BLD=arrays["items"][history_BL[rows]], real_BL=history_BL[rows] >= 0)
            scores[rows, columns] = score.forward(arrays, some, self._sizes)
        return scores

    def export(self) -> tuple[dict[str, Any], Arrays]:
        """The configuration and the arrays, for `restore_scorer`."""
        return self.config, self.arrays


class ContextEncoder:
    """The vector of the context columns, [B, D]."""

    def __init__(self, columns: list[dict[str, Any]], arrays: Arrays) -> None:
        self.columns = tuple(FeatureColumn(**column) for column in columns)
        width = shape_of(arrays, "items", 2)[1]
        check_floats(arrays, {f"context.{column.name}": (column.size, width) for column in self.columns})
        self.weights = [arrays[f"context.{column.name}"] for column in self.columns]

    def encode(self, context: Mapping[str, NDArray[Any]] | None, num_rows: int) -> Array:
        """float32[B, D] of a query's context; columns that it lacks count as missing, others are ignored."""
        given = {} if context is None else context
        cells = [given[column.key] if column.key in given else column.encode(None, num_rows) for column in self.columns]
        vectors: Array = column_vectors(self.columns, self.weights, cells)
        return vectors


def restore_scorer(
    config: dict[str, Any], arrays: Arrays, own: Mapping[str, PairScore] = MappingProxyType({})
) -> PlainScorer:
    """The scorer from its `export`; `own`: further scores by kind.

    Errors: an unknown kind, a configuration or arrays that do not fit.
    """
    kind, known = config.get("kind"), SCORERS | dict(own)
    if not isinstance(kind, str) or kind not in known:
        raise UnknownSearcherError(f"scorer kind {kind!r} is unknown{nearest(str(kind), known)}")
    return PlainScorer(known[kind], config, arrays)


def _is_one_row(items_BM: NDArray[np.int64]) -> bool:
    """Whether all rows have the same items, as a broadcast view of one row."""
    return len(items_BM) > 0 and items_BM.strides[0] == 0


def context_encoder(scorer: PlainScorer) -> ContextEncoder | None:
    """The encoder of the scorer's context, None where it uses none."""
    columns = scorer.config.get("context")
    return ContextEncoder(columns, scorer.arrays) if columns else None
