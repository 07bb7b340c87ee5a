"""The searcher classes by kind, as named in artefacts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from beamwood.errors import ArtefactError, InputError, UnknownSearcherError, nearest
from beamwood.types import Searcher

__all__ = ["SEARCHERS", "check_names", "files_of", "restore_searcher", "with_searchers"]

# The module of each kind, imported on demand.
SEARCHERS = {
    "tree-din": ("beamwood.retrieval.searchers.tree", "TreeSearcher"),
    "popularity": ("beamwood.retrieval.searchers.popularity", "PopularitySearcher"),
    "vectors": ("beamwood.retrieval.searchers.vectors", "VectorSearcher"),
    "codes": ("beamwood.retrieval.searchers.coded", "CodeSearcher"),
    "mixture": ("beamwood.retrieval.searchers.mixture", "MixtureSearcher"),
    "ranking": ("beamwood.retrieval.searchers.ranked", "RankingSearcher"),
    "blend": ("beamwood.retrieval.searchers.blend", "Blend"),
    "extended": ("beamwood.retrieval.new_items.extended", "Extended"),
    "extended-tree": ("beamwood.retrieval.new_items.extended_tree", "ExtendedTree"),
    "neighbours": ("beamwood.retrieval.searchers.neighbours", "NeighbourSearcher"),
}

# Classes of a method outside the package, while its folder is loaded: searchers may contain others.
_OWN: ContextVar[Mapping[str, type[Any]]] = ContextVar("own searchers")


@contextmanager
def with_searchers(searchers: Mapping[str, type[Any]]) -> Iterator[None]:
    """A context in which these further classes by kind are known."""
    token = _OWN.set(searchers)
    try:
        yield
    finally:
        _OWN.reset(token)


def check_names(what: str, names: Sequence[str], known: Collection[str]) -> None:
    """Errors: a name of the package, or a repeated one, among the further names of a searcher's parts."""
    if len({*names, *known}) < len(names) + len(known):
        raise InputError(f"names of {what} {names} are taken ({', '.join(known)}); give each a name of its own")


def files_of(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The method files in a manifest: of the method itself, and of the stages that it consists of."""
    own, stages = metadata.get("method_file"), metadata.get("stages")
    files = [own] if isinstance(own, Mapping) else []
    for stage in stages.values() if isinstance(stages, Mapping) else ():
        files += files_of(stage) if isinstance(stage, Mapping) else []
    return files


def restore_searcher(kind: Any, config: Any, arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Searcher:
    """The searcher of a kind from its `export`.

    Errors: an unknown kind, an inconsistent configuration or arrays: `ValueError`, `KeyError` and the like, which
    `stored.restoring` converts.
    """
    own = _OWN.get({})
    if not isinstance(kind, str) or kind not in {*SEARCHERS, *own}:
        raise UnknownSearcherError(f"searcher kind {kind!r} is unknown{nearest(str(kind), SEARCHERS)}")
    if not isinstance(config, dict):
        raise ArtefactError(f"the configuration of the searcher is {config!r}, not a mapping")
    if kind in own:
        theirs: Searcher = own[kind].restore(config, arrays, threads=threads)
        return theirs
    module, name = SEARCHERS[kind]
    searcher: Searcher = getattr(import_module(module), name).restore(config, arrays, threads=threads)
    return searcher
