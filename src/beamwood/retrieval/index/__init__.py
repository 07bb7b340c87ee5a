"""Indexes over item vectors by name: each finds the largest inner products of a query; each is one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from beamwood.retrieval.index.clusters import ClusterIndex
from beamwood.retrieval.index.contract import (
    Index,
    IndexInputs,
    IndexSettings,
    check_installed,
    own_settings,
    restore_index,
    settings_of,
)
from beamwood.retrieval.index.exact import ExactIndex
from beamwood.retrieval.index.hnsw import HnswIndex
from beamwood.retrieval.index.ivf import IvfIndex
from beamwood.retrieval.index.qinco import QincoIndex
from beamwood.retrieval.index.rotlex import RotlexIndex
from beamwood.retrieval.index.scann import ScannIndex

__all__ = [
    "INDEXES",
    "ClusterIndex",
    "ExactIndex",
    "HnswIndex",
    "Index",
    "IndexKind",
    "IndexSettings",
    "IvfIndex",
    "IndexInputs",
    "QincoIndex",
    "RotlexIndex",
    "ScannIndex",
    "check_installed",
    "own_settings",
    "restore_index",
    "settings_of",
]

INDEXES: dict[str, type[Index]] = {
    "exact": ExactIndex,
    "hnsw": HnswIndex,
    "ivf": IvfIndex,
    "scann": ScannIndex,
    "qinco": QincoIndex,
    "rotlex": RotlexIndex,
    "clusters": ClusterIndex,
}

if TYPE_CHECKING:
    IndexKind = str
else:
    IndexKind = Literal[tuple(INDEXES)]
