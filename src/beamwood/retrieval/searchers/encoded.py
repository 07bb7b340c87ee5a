"""Shared parts of searchers that encode a history and score by more than one product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import UnknownSearcherError, nearest
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import ENCODERS
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.search_checks import check_histories
from beamwood.retrieval.stored import StoredConfig, part_of, prefixed
from beamwood.types import Query, QueryNeeds

__all__ = ["EncodedSearcher", "StoredEncoded", "restored_encoder"]


class StoredEncoded(StoredConfig):
    """The stored configuration with its encoder."""

    encoder: str
    length: int = Field(ge=1, le=MAX_HISTORY)
    sizes: dict[str, int | list[int]]

    @staticmethod
    def of(encoder: PlainEncoder) -> dict[str, Any]:
        """The stored form of an encoder."""
        return {"encoder": encoder.name, "length": encoder.length, "sizes": encoder.sizes}

    def restored(self, arrays: dict[str, NDArray[Any]], known: Mapping[str, Encoder] = ENCODERS) -> PlainEncoder:
        """The encoder of its arrays. Errors: an unknown encoder, arrays that do not fit."""
        if self.encoder not in known:
            raise UnknownSearcherError(f"encoder '{self.encoder}' is unknown{nearest(self.encoder, known)}")
        check_floats(arrays, {"items.weight": shape_of(arrays, "items.weight", 2)})
        return PlainEncoder(known[self.encoder], arrays, self.sizes, length=self.length)


class EncodedSearcher:
    """A searcher with an encoder of queries."""

    encoder: PlainEncoder

    @property
    def num_items(self) -> int:
        return self.encoder.num_items

    @property
    def needs(self) -> QueryNeeds:
        """Histories only."""
        return QueryNeeds()

    def encode(self, query: Query) -> NDArray[np.float32]:
        """float32[B, D], the vector of each row."""
        check_histories(query.histories, self.num_items)
        return query.once(self, lambda: self.encoder.encode(query.histories.padded(self.encoder.length)))

    def export_encoder(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The form that `restored_encoder` reads."""
        return StoredEncoded.of(self.encoder), prefixed("encoder", self.encoder.arrays)


def restored_encoder(stored: StoredEncoded, arrays: Mapping[str, NDArray[Any]]) -> PlainEncoder:
    """The encoder among a searcher's arrays. Errors: see `StoredEncoded.restored`."""
    return stored.restored(part_of(arrays, "encoder"))
