"""Settings that several indexes share, and the number of buckets that a search opens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from beamwood.retrieval.stored import MOST, StoredConfig

__all__ = [
    "Hidden",
    "NumBuckets",
    "NumChildren",
    "NumCodewords",
    "NumEpochs",
    "NumProbed",
    "Rate",
    "StoredProbes",
    "probed_of",
]

NumBuckets = Annotated[
    int | None,
    Field(ge=1, le=2**20, description="ivf and scann: number of buckets; null: square root of the number of items"),
]
NumProbed = Annotated[
    int | None,
    Field(
        ge=1,
        le=2**20,
        description="buckets opened per search (clusters: nodes per level); null: a tenth, at least eight",
    ),
]
NumCodewords = Annotated[
    int | None, Field(ge=2, le=256, description="codewords per code; null: 16 for scann, 256 for qinco")
]
NumChildren = Annotated[
    int | None,
    Field(ge=2, le=141, description="rotlex and clusters: children per node; null: for 25 items per bucket, and 10"),
]
Hidden = Annotated[int, Field(ge=1, le=4096, description="qinco and rotlex: hidden width of their networks")]
NumEpochs = Annotated[int, Field(ge=1, le=2**31 - 1, description="qinco and rotlex: training epochs")]
Rate = Annotated[float | None, Field(gt=0, description="qinco and rotlex: learning rate of Adam; null: 1e-3 and 3e-3")]


class StoredProbes(StoredConfig):
    """The stored configuration of an index that opens buckets."""

    num_probed: int = Field(ge=1, le=MOST)


def probed_of(num_probed: int | None, num_buckets: int) -> int:
    """The number of buckets to open."""
    return min(num_probed or max(8, -(-num_buckets // 10)), num_buckets)
