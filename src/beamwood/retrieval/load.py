"""Which searcher an artefact holds, by its kind."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from beamwood.errors import ArtefactError, nearest
from beamwood.types import Searcher

__all__ = ["SEARCHERS", "restore_searcher"]

# Where each kind lives; imported when an artefact holds it.
SEARCHERS = {
    "tree-din": ("beamwood.retrieval.tree", "TreeSearcher"),
    "popularity": ("beamwood.retrieval.popularity", "PopularitySearcher"),
    "sequence": ("beamwood.retrieval.sequence", "SequenceSearcher"),
    # Written before there were other encoders.
    "sasrec": ("beamwood.retrieval.sequence", "SequenceSearcher"),
    "two-tower": ("beamwood.retrieval.two_tower", "TwoTowerSearcher"),
    "ranking": ("beamwood.retrieval.ranked", "RankingSearcher"),
    "two-stage": ("beamwood.retrieval.ranked", "TwoStageSearcher"),
    "neighbours": ("beamwood.retrieval.neighbours", "NeighbourSearcher"),
}


def restore_searcher(kind: Any, config: Any, arrays: dict[str, NDArray[Any]]) -> Searcher:
    """The searcher of a kind from what its `export` gave.

    Errors: an unknown kind, a configuration or arrays that do not fit: `ValueError`, `KeyError` and the like, of which
    `stored.restoring` makes one kind.
    """
    if not isinstance(kind, str) or kind not in SEARCHERS:
        raise ArtefactError(f"searcher kind {kind!r} is unknown{nearest(str(kind), SEARCHERS)}")
    if not isinstance(config, dict):
        raise ArtefactError(f"the configuration of the searcher is {config!r}, no table of keys")
    module, name = SEARCHERS[kind]
    searcher: Searcher = getattr(import_module(module), name).restore(config, arrays)
    return searcher
