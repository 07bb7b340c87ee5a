"""A tree of clusters by repeated k-means; a beam over the nodes finds leaves, which may share items.

Shape legend: N items, D width, V nodes, C leaves, P pairs of an item and a leaf, Q queries, k results.

Source: Li et al., "Constructing Tree-based Index for Efficient and Effective Dense Retrieval" (JTR).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import slices
from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_floats, check_integers, shape_of
from beamwood.ragged import indptr_of, places_in_rows, ranges
from beamwood.retrieval.index.buckets import Buckets, best_of, probed_items
from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, by_row, own_settings
from beamwood.retrieval.index.fields import NumChildren, NumProbed, StoredProbes, probed_of
from beamwood.retrieval.index.kmeans import kmeans, nearest_centres
from beamwood.retrieval.products import best_products
from beamwood.retrieval.stored import MOST
from beamwood.types import FloatArray, Hits, IndexArray, SearchOptions

__all__ = ["CHILDREN", "ClusterIndex", "ClusterSettings", "ClusterTree", "grow_tree", "reached_leaves", "shared_leaves"]

# The deepest path; the leaves counted for a query, and the nearest items for which they count.
_DEEPEST, _REACHED, _SAYING = 16, 5, 15
CHILDREN = 10
"""The default children of a node."""
_ROWS = 1024


class ClusterSettings(IndexSettings):
    """The shape of the tree, its beam width, and the leaves of an item."""

    num_probed: NumProbed = None
    num_children: NumChildren = None
    leaf_size: int = Field(100, ge=2, le=MOST, description="clusters: minimum items of a node that is split again")
    num_homes: int = Field(
        2, ge=1, le=64, description="clusters: maximum leaves per item, chosen by where its queries arrive"
    )


@dataclass(frozen=True, slots=True)
class ClusterTree:
    """Nodes level by level: node v has the children `starts[v]` to `starts[v + 1]`, none in a leaf.

    Node 0 is the root. Leaves are numbered in the order of their nodes.
    """

    starts: NDArray[np.int64]

    @classmethod
    def of(cls, num_children_V: IndexArray) -> ClusterTree:
        """The tree of the given numbers of children. Errors: `ArtefactError` where they are not those of a tree."""
        counts_V = np.asarray(num_children_V, np.int64)
        starts = 1 + indptr_of(counts_V)
        if counts_V.min(initial=0) < 0 or starts[-1] != len(counts_V):
            raise ArtefactError(f"children of {len(counts_V)} nodes do not make a tree")
        if (starts[:-1] <= np.arange(len(counts_V)))[counts_V > 0].any():
            raise ArtefactError("a node stands before its parent")
        return cls(starts)

    @property
    def num_children(self) -> NDArray[np.int64]:
        """int64[V]."""
        return np.diff(self.starts)

    @property
    def leaves(self) -> NDArray[np.int64]:
        """int64[C], the nodes that are leaves."""
        return np.flatnonzero(self.num_children == 0)

    @property
    def parents(self) -> NDArray[np.int64]:
        """int64[V]; -1 of the root."""
        return np.concatenate([[-1], np.repeat(np.arange(len(self.starts) - 1), self.num_children)])

    def siblings(self) -> NDArray[np.int64]:
        """int64[V, S], the other children of each node's parent, ascending; -1 behind the last."""
        nodes, parents, counts = np.arange(len(self.parents)), self.parents, self.num_children
        place = np.arange(max(0, int(counts.max()) - 1))
        found = self.starts[parents][:, None] + place
        found += found >= nodes[:, None]
        return np.where((parents >= 0)[:, None] & (place < counts[parents][:, None] - 1), found, -1)

    def levels(self) -> list[tuple[int, int]]:
        """The first node of each level below the root, and the first behind it."""
        found, start, stop = [], 1, int(self.starts[1])
        while start < stop:
            found.append((start, stop))
            start, stop = stop, int(self.starts[stop])
        return found

    def paths(self) -> NDArray[np.int64]:
        """int64[C, levels], the node of each level above a leaf, the leaf itself, and -1 below it."""
        nodes, levels, parents = self.leaves, self.levels(), self.parents
        paths = np.full((len(nodes), len(levels)), -1)
        for place in reversed(range(len(levels))):
            here = nodes >= levels[place][0]
            paths[here, place] = nodes[here]
            nodes = np.where(here, parents[nodes], nodes)
        return paths

    def walk(self, nodes_VD: FloatArray, query_D: FloatArray, width: int) -> tuple[NDArray[np.int64], int]:
        """int64[M], the leaves reached by a beam of `width` nodes a level, ordered by level and score; and the number
        of products.

        A reached leaf is kept, and its place in the beam is free again.
        """
        front, found, scored = np.zeros(1, np.int64), [], 0
        while len(front):
            first, counts = self.starts[front], self.starts[front + 1] - self.starts[front]
            found.append(front[counts == 0])
            children = ranges(first, counts)
            scored += len(children)
            front = children[np.argsort(-(nodes_VD[children] @ query_D), kind="stable")[:width]]
        return np.concatenate(found), scored


def grow_tree(
    vectors_ND: FloatArray, num_children: int, leaf_size: int, rng: np.random.Generator
) -> tuple[ClusterTree, NDArray[np.float32], NDArray[np.int32]]:
    """The tree, its nodes' centres float32[V, D], and the leaf of each item, int32[N].

    A node of `leaf_size` items or more is split by k-means into `num_children`. Equal vectors, and nodes at depth 16,
    are not split.
    """
    vectors_ND = np.asarray(vectors_ND, np.float32)
    waiting = [(np.arange(len(vectors_ND)), vectors_ND.mean(axis=0), 0)]
    counts: list[int] = []
    leaf_N, num_leaves = np.zeros(len(vectors_ND), np.int32), 0
    # The list grows while it is iterated, level by level.
    for items, _, depth in waiting:
        parts: list[tuple[NDArray[np.int64], NDArray[np.float32], int]] = []
        if len(items) >= leaf_size and depth < _DEEPEST:
            centres = kmeans(vectors_ND[items], num_children, rng)
            nearest = nearest_centres(vectors_ND[items], centres)[0]
            parts = [(items[nearest == each], centres[each], depth + 1) for each in np.unique(nearest)]
        if len(parts) < 2:
            parts = []
            leaf_N[items] = num_leaves
            num_leaves += 1
        counts.append(len(parts))
        waiting += parts
    return ClusterTree.of(np.array(counts)), np.stack([centre for _, centre, _ in waiting]), leaf_N


def reached_leaves(queries_QD: FloatArray, leaves_CD: FloatArray) -> NDArray[np.int64]:
    """int64[Q, 5], the leaves with the largest products of each query; fewer where there are fewer."""
    most = min(_REACHED, len(leaves_CD))
    scores_QC = queries_QD @ leaves_CD.T
    return np.argpartition(-scores_QC, most - 1, axis=1)[:, :most]


def shared_leaves(
    leaf_N: NDArray[np.int32], num_leaves: int, items_P: IndexArray, leaves_P: IndexArray, most: int
) -> Buckets:
    """Each item in the `most` leaves that most of its pairs name, ties to the first; then its own leaf.

    An item in no pair stays in its own leaf; with `most` 1 no item is in two leaves.
    """
    own = np.arange(len(leaf_N), dtype=np.int64) * num_leaves + leaf_N
    named = np.asarray(items_P, np.int64) * num_leaves + np.asarray(leaves_P, np.int64)
    keys, counts = np.unique(np.concatenate([named, own]), return_counts=True)
    counts[np.searchsorted(keys, own)] -= 1
    items = keys // num_leaves
    order = np.lexsort((keys, -counts, items))
    kept = order[places_in_rows(np.bincount(items, minlength=len(leaf_N))) < most]
    return Buckets.of_pairs(keys[kept] % num_leaves, items[kept], num_leaves, len(leaf_N))


class ClusterIndex:
    """Exact products in the leaves that a beam of `num_probed` nodes a level reaches; all leaves are exact search.

    Built from vectors, an item's further leaves are those reached by queries that have it among their 15 best; the
    method `jtr` trains the nodes, and uses the targets of queries.
    """

    kind: ClassVar[str] = "clusters"
    Settings: ClassVar[type[IndexSettings]] = ClusterSettings
    modules: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[bool] = True

    def __init__(
        self, vectors_ND: FloatArray, settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> None:
        given = own_settings(ClusterSettings, settings)
        vectors, began = np.ascontiguousarray(vectors_ND, np.float32), time.monotonic()
        tree, nodes, leaf_N = grow_tree(
            vectors, given.num_children or CHILDREN, given.leaf_size, np.random.default_rng(inputs.seed)
        )
        leaves = tree.leaves
        queries = np.empty((0, vectors.shape[1]), np.float32) if inputs.queries is None else inputs.queries()
        pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for rows in slices(len(queries), _ROWS):
            if inputs.seconds is not None and time.monotonic() - began > inputs.seconds:
                break
            some = np.asarray(queries[rows], np.float32)
            wanted = best_products(some, vectors, min(_SAYING, len(vectors))).items
            arrived = reached_leaves(some, nodes[leaves])
            pairs.append((np.repeat(wanted, arrived.shape[1]), np.repeat(arrived, wanted.shape[1], axis=0).ravel()))
        items_P, leaves_P = (np.concatenate(each) for each in zip(*pairs, strict=True))
        buckets = shared_leaves(leaf_N, len(leaves), items_P, leaves_P, given.num_homes)
        self._set(vectors, tree, nodes, buckets, probed_of(given.num_probed, len(leaves)))

    def _set(
        self, vectors: FloatArray, tree: ClusterTree, nodes: FloatArray, buckets: Buckets, num_probed: int
    ) -> None:
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self.tree, self.nodes, self.buckets = tree, np.ascontiguousarray(nodes, np.float32), buckets
        self.num_probed = num_probed
        self._leaf_of = np.cumsum(tree.num_children == 0) - 1

    @classmethod
    def of(
        cls, vectors_ND: FloatArray, tree: ClusterTree, nodes_VD: FloatArray, buckets: Buckets, num_probed: int | None
    ) -> Self:
        """An index of a tree, nodes and leaves that were trained elsewhere."""
        made = cls.__new__(cls)
        made._set(vectors_ND, tree, nodes_VD, buckets, probed_of(num_probed, len(buckets)))
        return made

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `Index`; `scored` counts products with nodes and with items."""
        return by_row(self._row, len(self.vectors), queries_BD, k, options)

    def _row(self, query_D: FloatArray, k: int, options: SearchOptions) -> Hits:
        width, scored = self.num_probed, 0
        while True:
            nodes, products = self.tree.walk(self.nodes, query_D, width)
            scored += products
            items = probed_items(self.buckets, self._leaf_of[nodes], len(nodes), k, options)
            if len(items) >= k or len(nodes) == len(self.buckets):
                break
            # Where a filter leaves too few, the beam is widened, up to all nodes.
            width *= 2
        hits = best_of(items, self.vectors[items] @ query_D, k)
        return Hits(hits.items, hits.scores, hits.scored + scored)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The tree, its nodes, and the items of each leaf."""
        arrays = {"nodes": self.nodes, "num_children": self.tree.num_children.astype(np.int32)}
        return {"num_probed": self.num_probed}, arrays | self.buckets.arrays()

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        num_probed = StoredProbes.model_validate(config).num_probed
        check_integers(arrays, {"num_children": (np.int32,)})
        tree = ClusterTree.of(arrays["num_children"])
        check_floats(arrays, {"nodes": (shape_of(arrays, "num_children", 1)[0], vectors_ND.shape[1])})
        buckets = Buckets.restore(arrays, len(vectors_ND), len(tree.leaves))
        return cls.of(vectors_ND, tree, arrays["nodes"], buckets, num_probed)
