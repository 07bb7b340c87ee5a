"""Which searcher an artefact holds, by its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from beamwood.errors import ArtefactError, UnknownSearcherError, nearest
from beamwood.types import Searcher

__all__ = ["SEARCHERS", "files_of", "restore_searcher", "with_searchers"]

# Where each kind lives; imported when an artefact holds it.
SEARCHERS = {
    "tree-din": ("beamwood.retrieval.tree", "TreeSearcher"),
    "popularity": ("beamwood.retrieval.popularity", "PopularitySearcher"),
    "vectors": ("beamwood.retrieval.vectors", "VectorSearcher"),
    "mixture": ("beamwood.retrieval.mixture", "MixtureSearcher"),
    "ranking": ("beamwood.retrieval.ranked", "RankingSearcher"),
    "blend": ("beamwood.retrieval.blend", "Blend"),
    "extended": ("beamwood.retrieval.extended", "Extended"),
    "extended-tree": ("beamwood.retrieval.extended_tree", "ExtendedTree"),
    "neighbours": ("beamwood.retrieval.neighbours", "NeighbourSearcher"),
}


# Those of a method that is no part of the package, while a folder of it is opened: searchers hold others.
_OWN: ContextVar[Mapping[str, type[Any]]] = ContextVar("own searchers")


@contextmanager
def with_searchers(searchers: Mapping[str, type[Any]]) -> Iterator[None]:
    """Within it, these classes by kind are known besides."""
    token = _OWN.set(searchers)
    try:
        yield
    finally:
        _OWN.reset(token)


def files_of(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The method files that a manifest names: of the method itself, and of the stages that it is put together from."""
    own, stages = metadata.get("method_file"), metadata.get("stages")
    files = [own] if isinstance(own, Mapping) else []
    for stage in stages.values() if isinstance(stages, Mapping) else ():
        files += files_of(stage) if isinstance(stage, Mapping) else []
    return files


def restore_searcher(kind: Any, config: Any, arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Searcher:
    """The searcher of a kind from what its `export` gave.

    Errors: an unknown kind, a configuration or arrays that do not fit: `ValueError`, `KeyError` and the like, of which
    `stored.restoring` makes one kind.
    """
    own = _OWN.get({})
    if not isinstance(kind, str) or kind not in {*SEARCHERS, *own}:
        raise UnknownSearcherError(f"searcher kind {kind!r} is unknown{nearest(str(kind), SEARCHERS)}")
    if not isinstance(config, dict):
        raise ArtefactError(f"the configuration of the searcher is {config!r}, no table of keys")
    if kind in own:
        theirs: Searcher = own[kind].restore(config, arrays, threads=threads)
        return theirs
    module, name = SEARCHERS[kind]
    searcher: Searcher = getattr(import_module(module), name).restore(config, arrays, threads=threads)
    return searcher
