"""The contenders: a fitted tree, searched in each possible way, and its rivals, all loaded from saved folders.

Shape legend: B rows, L history length, N items, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels.light import Way, light_query
from beamwood.retrieval.index import HnswIndex
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.types import Hits, Query, QueryNeeds, Searcher, SearchOptions

__all__ = ["BEHIND", "TREE", "Contender", "contenders", "natives"]

TREE = "dtr"
"""The folder whose tree reranks the candidates of the others."""
Graphs = Callable[[str, NDArray[np.float32]], HnswIndex]
"""Gives the HNSW graph of the vectors under a name."""
BEHIND = (50, 100, 200, 500)
"""Numbers of candidates from two towers in HNSW that the tree's scorer reranks."""


@dataclass(frozen=True)
class Contender:
    """A row: `searcher` answers; `exact` names the row that searches all items by the same scores (None: this row).

    `dear`: the tree's scorer scores every item, so a sample of users is measured. `behind`: the tree's scorer reranks
    the candidates of a vector index. `holds`: the searchers whose arrays the row needs.
    """

    key: str
    title: str
    searcher: Any
    holds: tuple[Any, ...]
    exact: str | None = None
    dear: bool = False
    behind: bool = False

    @property
    def megabytes(self) -> float:
        """The size of these arrays in units of 1e6 bytes."""
        arrays = [array for each in self.holds for array in each.export()[1].values()]
        return sum({id(array): array.nbytes for array in arrays}.values()) / 1e6


class TreeInWay:
    """The tree, searched in one given way instead of the one that its fit chose."""

    def __init__(self, tree: TreeSearcher, way: Way) -> None:
        self.tree, self.way, self.needs, self.num_items = tree, way, tree.needs, tree.num_items

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `types.Searcher`."""
        return self.tree.searched(query, k, options, self.way.wide_enough(k))


class ExactTree:
    """The tree's scorer applied to every item."""

    def __init__(self, tree: TreeSearcher) -> None:
        self.tree, self.needs, self.num_items = tree, tree.needs, tree.num_items

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `types.Searcher`."""
        return self.tree.exact(query, k, options)


class LightQueries:
    """A query's vector by the light head on the level of leaves, and a 1 for the biases: float32[B, D + 1]."""

    kind: ClassVar[str] = "light"
    needs: ClassVar[QueryNeeds] = QueryNeeds()

    def __init__(self, tree: TreeSearcher) -> None:
        assert tree.weights.light is not None
        self.tree, self.head = tree.tree, tree.weights.light
        self.offset = tree.tree.shape.level_offset(tree.tree.shape.depth)

    @property
    def shape(self) -> tuple[int | None, int]:
        """See `QueryVectors`."""
        return self.tree.num_items, self.head.width + 1

    @property
    def vectors(self) -> NDArray[np.float32]:
        """float32[N, D + 1], the item side of the same product."""
        rows, head = self.offset + self.tree.leaf_of_item, self.head
        vectors_ND = head.nodes[rows].astype(np.float32) * head.node_scales[rows, None]
        return np.concatenate([vectors_ND, head.biases[rows, None]], axis=1)

    def encode(self, query: Query) -> NDArray[np.float32]:
        """See `QueryVectors`."""
        head = self.head
        leaves_BL = self.tree.leaves_of(query.histories.padded(len(head.places)))
        sums_BD = np.zeros((len(query), head.width), np.float32)
        for row, leaves_L in enumerate(leaves_BL):
            places = np.flatnonzero(leaves_L >= 0)
            rows = self.offset + leaves_L[places]
            weights_L = head.places[places] * head.history_scales[rows]
            sums_BD[row] = weights_L @ head.history[rows].astype(np.float32)
        vectors_BD = np.asarray(light_query(head.arrays(), sums_BD), np.float32)
        return np.concatenate([vectors_BD, np.ones((len(query), 1), np.float32)], axis=1)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Nothing: the head is counted with its tree."""
        return {}, {}


def contenders(found: Mapping[str, Retriever], hnsw: Graphs) -> list[Contender]:
    """The rows for the saved folders, by name; `hnsw` gives the graph of the vectors under a name.

    The folder `TREE` is searched in each way, and its scorer reranks the candidates of the others.
    """
    tree = part_with(found[TREE].searcher, TreeSearcher) if TREE in found else None
    rows: list[Contender] = []
    if tree is not None:
        rows += [*_of_tree(tree), *_of_light_head(tree, hnsw)]
    for name, retriever in found.items():
        if name != TREE:
            rows += _of_rival(name, retriever.searcher, tree, hnsw)
    return rows


def natives(searcher: Any) -> Iterator[tuple[Any, str]]:
    """Where a searcher calls compiled code: pairs of an object and the attribute that is called."""
    if isinstance(searcher, Blend):
        for part in searcher.parts:
            yield from natives(part.searcher)
    elif isinstance(searcher, TreeSearcher):
        yield searcher.core, "_core"
    elif isinstance(searcher, TreeInWay | ExactTree):
        yield from natives(searcher.tree)
    elif isinstance(searcher, VectorSearcher) and isinstance(searcher.index, HnswIndex):
        yield searcher.index, "_index"


def _of_tree(tree: TreeSearcher) -> Iterator[Contender]:
    """The search that the fit chose, then the steered searches of the ladder, the full beam, and a scan."""
    chosen = tree.ways.default
    yield Contender("tree", f"the tree as fitted: {worded(chosen)}", tree, (tree,), "exact")
    for way in tree.ways.ladder:
        if way != chosen and (way.kind != "beam" or way == tree.ways.ladder[-1]):
            key = "tree full" if way.kind == "beam" else f"tree {way.kind} {way.judged}"
            yield Contender(key, f"the tree: {worded(way)}", TreeInWay(tree, way), (tree,), "exact")
    if chosen == tree.ways.ladder[-1]:
        yield Contender("tree full", f"the tree: {worded(chosen)}", TreeInWay(tree, chosen), (tree,), "exact")
    yield Contender("exact", "its scorer over all items", ExactTree(tree), (tree,), None, dear=True)


def _of_light_head(tree: TreeSearcher, hnsw: Graphs) -> Iterator[Contender]:
    """The head over every leaf and in an HNSW graph, each reranked by the tree's scorer."""
    if tree.weights.light is None:
        return
    judged = tree.ways.default.judged or 100
    everywhere = Way("steer", tree.tree.shape.capacity, judged)
    title = f"light head over all items, {judged} judged"
    yield Contender("light exact", title, TreeInWay(tree, everywhere), (tree,), "exact")
    queries = LightQueries(tree)
    vectors = queries.vectors
    graph = VectorSearcher(queries, vectors, hnsw("light", vectors))
    title = f"light head in HNSW, {judged} judged"
    yield Contender("light hnsw", title, _behind(graph, tree, judged), (tree, graph), "exact", behind=True)


def _of_rival(name: str, searcher: Searcher, tree: TreeSearcher | None, hnsw: Graphs) -> Iterator[Contender]:
    """A rival alone; if it has vectors, also in an HNSW graph; two towers in the graph also with reranking."""
    vectors = part_with(searcher, VectorSearcher)
    if vectors is None:
        yield Contender(name, f"`{name}`", searcher, (searcher,))
        return
    yield Contender(f"{name} exact", f"`{name}`, exact", searcher, (searcher,))
    graph = VectorSearcher(vectors.queries, vectors.vectors, hnsw(name, vectors.vectors))
    inside = _with_vectors(searcher, graph)
    yield Contender(f"{name} hnsw", f"`{name}` in HNSW", inside, (inside,), f"{name} exact")
    if tree is not None and name == "two_tower":
        for num in BEHIND:
            title = f"`{name}` in HNSW, {num} judged"
            both = _behind(graph, tree, num)
            yield Contender(f"{name} hnsw {num}", title, both, (tree, graph), "exact", behind=True)


def worded(way: Way) -> str:
    """A description of a search."""
    kinds = {
        "steer": f"the light head keeps {way.beam_width} of a level, {way.judged} leaves judged",
        "cascade": f"{way.judged} of each level judged, {way.beam_width} kept",
        "beam": f"full beam of {way.beam_width}",
    }
    return kinds[way.kind]


def _behind(first: Searcher, tree: TreeSearcher, num: int) -> Blend:
    """The candidates of the first searcher, ordered by the tree's scorer alone."""
    return Blend([Part(first, 0.0), Part(tree)], num_candidates=min(num, tree.num_items))


def _with_vectors(searcher: Searcher, vectors: VectorSearcher) -> Searcher:
    """The same vectors in an index of another kind."""
    if not isinstance(searcher, Blend):
        return vectors
    first = replace(searcher.parts[0], searcher=vectors)
    return replace(searcher, parts=[first, *searcher.parts[1:]])
