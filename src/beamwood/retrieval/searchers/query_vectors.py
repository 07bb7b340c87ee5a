"""The contract of query vectors: how a query becomes a vector, and how that is stored.

Shape legend: B rows, N items, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.models.encoder import Encoder
from beamwood.types import Query, QueryNeeds

__all__ = ["Arrays", "QueryKinds", "QueryVectors"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class QueryKinds:
    """The encoders and query vectors by name that a folder may contain."""

    encoders: Mapping[str, Encoder]
    queries: Mapping[str, type[QueryVectors]]


class QueryVectors(Protocol):
    """Encodes a query as a vector, whose inner product with an item's is the score; `kind` names the class in an
    artefact.
    """

    kind: ClassVar[str]

    @property
    def needs(self) -> QueryNeeds:
        """What it reads besides histories."""
        ...

    @property
    def shape(self) -> tuple[int | None, int]:
        """N, None where it has no items, and D."""
        ...

    def encode(self, query: Query) -> NDArray[np.float32]:
        """float32[B, D], zeros for a row without usable input."""
        ...

    def export(self) -> tuple[dict[str, Any], Arrays]: ...

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, known: QueryKinds) -> Self:
        """The inverse of `export`, with the known names."""
        ...
