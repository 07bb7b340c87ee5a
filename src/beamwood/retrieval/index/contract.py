"""The contract of an index over item vectors: its settings, its inputs when built, and its search.

Shape legend: B rows, N items, D width, Q queries, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from beamwood.errors import InputError, UnknownSearcherError, nearest
from beamwood.extras import asking_for
from beamwood.retrieval.search_checks import check_search
from beamwood.retrieval.stored import StoredPart
from beamwood.retrieval.top_k import join_hits
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = [
    "Index",
    "IndexSettings",
    "IndexInputs",
    "by_row",
    "check_installed",
    "own_settings",
    "restore_index",
    "settings_of",
]

_Settings = TypeVar("_Settings", bound="IndexSettings")


class IndexSettings(BaseModel):
    """The settings of an index: each field with a default and a description of at most 20 words.

    A field shared by two indexes has the same definition in both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class IndexInputs:
    """What an index may use when it is built, besides the vectors.

    `seed`: of all random draws; `queries()`: float32[Q, D], the vectors of training users' queries, computed on demand
    (None: not available); `seconds`: the time limit (None: none).
    """

    seed: int = 0
    queries: Callable[[], FloatArray] | None = None
    seconds: float | None = None


class Index(Protocol):
    """Finds items by the inner product of their vectors, float32[N, D], with a query's.

    Its contract tests are in `beamwood.testing.IndexContract`. `kind`: its name in `index.kind` and in a saved folder.
    `Settings`: its settings. `modules`: have to be installed to build it. `trains`: building it is a training.
    """

    kind: ClassVar[str]
    Settings: ClassVar[type[IndexSettings]]
    modules: ClassVar[tuple[str, ...]]
    trains: ClassVar[bool]

    def __init__(
        self, vectors_ND: FloatArray, settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs(), /
    ) -> None:
        """Build it; None: the defaults of `Settings`."""

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items found for each row, in the order of `top_k`; fewer only where fewer are allowed.

        No row's answer depends on another's. `scored` counts the products that were computed.
        """
        ...

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Its state besides the vectors: a JSON-able configuration and plain arrays."""
        ...

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The inverse of `export`. Errors: `ArtefactError`, or a `ValueError`, on inconsistent arrays."""
        ...


def check_installed(index: type[Index]) -> None:
    """Raise `NotInstalledError` where a module that builds an index of this class is missing."""
    for module in index.modules:
        with asking_for(f"index.kind={index.kind}"):
            import_module(module)


def settings_of(index: type[Index], given: Mapping[str, Any]) -> IndexSettings:
    """An index's own settings among those of all indexes."""
    return index.Settings(**{name: value for name, value in given.items() if name in index.Settings.model_fields})


def own_settings(kind: type[_Settings], settings: IndexSettings | None) -> _Settings:
    """The settings given to an index whose class of settings is `kind`, or its defaults. Errors: another class."""
    if settings is None:
        return kind()
    if type(settings) is not kind:
        raise InputError(f"settings is of the class {type(settings).__name__}; give {kind.__name__}, or None")
    return settings


def restore_index(
    stored: StoredPart, vectors_ND: FloatArray, arrays: dict[str, NDArray[Any]], known: Mapping[str, type[Index]]
) -> Index:
    """The inverse of an index's `export`. Errors: an unknown kind; see `Index.restore`."""
    if stored.kind not in known:
        raise UnknownSearcherError(f"index '{stored.kind}' is unknown{nearest(stored.kind, known)}")
    return known[stored.kind].restore(vectors_ND, stored.config, arrays)


def by_row(
    row: Callable[[FloatArray, int, SearchOptions], Hits],
    num_items: int,
    queries_BD: FloatArray,
    k: int,
    options: SearchOptions,
) -> Hits:
    """The hits of each row, found independently by `row(query [D], k, options of the row)`."""
    check_search(len(queries_BD), num_items, k, excluded=options.excluded, allowed=options.allowed)
    queries = np.ascontiguousarray(queries_BD, np.float32)
    return join_hits([row(query, k, options.take(np.array([place]))) for place, query in enumerate(queries)], k)
