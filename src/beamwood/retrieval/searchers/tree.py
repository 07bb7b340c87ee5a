"""Search of a learned tree with a DIN scorer, without torch.

Shape legend: B rows, M items a row, N items, K results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, InputError, UnknownSearcherError, nearest
from beamwood.kernels.arrays import check_integers
from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import Way
from beamwood.kernels.links import LINKS, Link
from beamwood.kernels.native_search import Later
from beamwood.kernels.reference import SearchResult
from beamwood.kernels.rows import banned_of, items_of_leaves, leaves_of
from beamwood.kernels.search import DinSearch, Queue
from beamwood.kernels.terms import Term, by_name
from beamwood.models.terms import TERMS
from beamwood.ragged import repeats
from beamwood.retrieval.search_checks import check_histories, check_items, check_search
from beamwood.retrieval.searchers.candidates import Candidates, allowed_seen
from beamwood.retrieval.searchers.ways import StoredWay, Ways, narrower_beams
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import sort_candidates
from beamwood.tree.tree import Shape, Tree
from beamwood.types import Hits, IndexArray, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = ["LaterHits", "TreeSearcher", "searcher_with"]

# With this few allowed items for each judged leaf, scoring each is no more expensive than the light head and a beam.
_EXACT_FACTOR = 2


class _Stored(StoredConfig):
    beam_width: int = Field(le=MOST)
    root_fanout: int
    branching: int
    depth: int
    terms: list[str]
    link: Literal["softmax", "sigmoid", "path", "order"]
    ways: list[StoredWay]
    way: int


@dataclass(frozen=True, slots=True)
class LaterHits:
    """A search that the native core makes later, and what its result is made into."""

    search: Later
    hits_of: Callable[[SearchResult], Hits]

    def hits(self) -> Hits:
        """The hits, once it ran. Errors: `ArtefactError` where a score is not a number."""
        return self.hits_of(self.search.found())


class TreeSearcher:
    """Beam search over a tree: k of N items at the cost of about beam_width * branching * depth scores, or of the few
    leaves that are judged after a light head.

    `ways`: the default way of searching and those for each effort; None: the full beam, and narrower ones. A filter
    acts inside the search: a subtree without an allowed item is never opened, so k results are returned whenever k
    items are allowed; allowed items that are no more than a beam would score are all scored, exactly. Counts for a
    `prepared` filter are cached. A search for k above `beam_width` widens the beam to k, and judges more leaves in
    proportion to k, or to `options.num_exact`. Ties on a level go to the lower node, among results to the lower item.
    Where the scorer has a positive weight for seen items, the history's own items are candidates too, as a search may
    not reach their leaves. `link`: the meaning of a score; by "path" that of a leaf is the log-probability of its path,
    each step a sigmoid (PLT); the others do not change answers. `core`: the kernel that searches, by leaf. Source: DTR,
    algorithm 1.
    """

    kind: ClassVar[str] = "tree-din"
    needs: ClassVar[QueryNeeds] = QueryNeeds()
    own_terms: ClassVar[Sequence[Term]] = ()
    """Further terms that a folder may contain."""

    def __init__(
        self,
        weights: DinWeights,
        tree: Tree,
        *,
        beam_width: int = 150,
        threads: int = 1,
        link: Link = LINKS["softmax"],
        ways: Ways | None = None,
    ) -> None:
        if beam_width < 1:
            raise InputError(f"beam_width={beam_width} is below 1; DTR uses 150")
        if len(weights.nodes) != tree.shape.num_nodes:
            raise ArtefactError(f"the scorer has {len(weights.nodes)} nodes, the tree {tree.shape.num_nodes}")
        for part in weights.terms.values():
            part.term.check_tree(part.arrays, tree.shape)
        self.weights, self.tree, self.beam_width = weights, tree, beam_width
        self.link, self.ways = link, ways or narrower_beams(beam_width)
        self._length = weights.history_length
        self.core = DinSearch(weights, tree.shape, threads=threads, by_path=link.along_path)
        self._come_again = any(part.term.seen_again(part.arrays) for part in weights.terms.values())

    @property
    def threads(self) -> int:
        """Rows searched at once."""
        return self.core.threads

    @property
    def queue(self) -> Queue:
        """The queue of waiting callers: `kernels.search.Queue`."""
        return self.core.queue

    @property
    def searched_by(self) -> str:
        """The implementation: the native core, or numpy and why."""
        return f"numpy: {self.core.why_numpy}" if self.core.why_numpy else "the native core"

    @property
    def num_items(self) -> int:
        return self.tree.num_items

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items found for each row; see `types.Searcher`.

        `options.effort` selects another way than the chosen one, `options.beam_width` a full beam of that width.
        """
        return self.searched(query, k, options, self._way(k, options))

    def searched(self, query: Query, k: int, options: SearchOptions, way: Way) -> Hits:
        """`search` in a given way, whose beam has to be wide enough for k results."""
        hits = self._found(query, k, options, way)
        if not self._come_again or way.kind != "beam" or self._scores_all(options, way):
            return hits
        return self._with_history(hits, query, k, options)

    def beam(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The results of the beam alone: `search` without the history's items as candidates."""
        return self._found(query, k, options, self._way(k, options))

    def _found(self, query: Query, k: int, options: SearchOptions, way: Way) -> Hits:
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        if self._scores_all(options, way):
            return self._exact(query, k, options)
        leaves, live, excluded = self._leaves(query), self._live(options), self._excluded(options)
        if way.kind == "beam":
            found = self.core.beam(leaves, beam_width=way.beam_width, k=k, live=live, excluded=excluded)
        else:
            found = self.core.steered(leaves, way, k=k, live=live, excluded=excluded, again=self._come_again)
        return self._hits(found)

    def later(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> LaterHits | None:
        """`search` of one row in two steps, with the native core's work between them; None where it takes more."""
        way = self._way(k, options)
        if self._scores_all(options, way) or (self._come_again and way.kind == "beam"):
            return None
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        leaves, live, excluded = self._leaves(query), self._live(options), self._excluded(options)
        later = self.core.later(leaves, way, k=k, live=live, excluded=excluded, again=self._come_again)
        return None if later is None else LaterHits(later, self._hits)

    def apart(self, query: Query, k: int) -> Candidates:
        """The k best unseen items by the beam, and all items of the latest history; the weight of seen items counts for
        each occurrence.
        """
        latest = query.histories.last(self._length)
        recent = Query(query.users, latest)
        seen, latest_BL = latest.distinct(), latest.padded(self._length)
        seen_BH = seen.padded(int(seen.lengths.max(initial=0)))
        times_BH = np.zeros(seen_BH.shape, np.float32)
        for place_B in latest_BL.T:
            times_BH += seen_BH == place_B[:, None]
        return Candidates(self.beam(recent, k, SearchOptions(seen)), seen_BH, self.score(recent, seen_BH), times_BH)

    def exact(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best of all allowed items by brute force over the leaves, which the beam approximates."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        return self._exact(query, k, options)

    def _exact(self, query: Query, k: int, options: SearchOptions) -> Hits:
        found = self.core.exact(self._leaves(query), k=k, live=self._live(options), excluded=self._excluded(options))
        return self._hits(found)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        items_BM = np.asarray(items_BM)
        check_items(items_BM, len(query), self.num_items)
        return self.core.score(self._leaves(query), self.tree.leaves_of(items_BM))

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        shape = self.tree.shape
        config = {
            "beam_width": self.beam_width,
            "root_fanout": shape.root_fanout,
            "branching": shape.branching,
            "depth": shape.depth,
            "terms": [*self.weights.terms],
            "link": self.link.name,
        } | self.ways.export()
        return config, self.weights.arrays() | {"item_of_leaf": self.tree.item_of_leaf}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> TreeSearcher:
        """See `types.Searcher`; `threads`: rows searched at once, over all callers together."""
        stored = _Stored.model_validate(config)
        check_integers(arrays, {"item_of_leaf": (np.int32,)})
        tree = Tree(Shape(stored.root_fanout, stored.branching, stored.depth), arrays["item_of_leaf"])
        own = {name: array for name, array in arrays.items() if name != "item_of_leaf"}
        weights = DinWeights.from_arrays(own, _terms_named(stored.terms, cls.own_terms))
        ways = Ways.restore(stored.ways, stored.way, steerable=weights.light is not None)
        link = LINKS[stored.link]
        # Not `cls`, a local class that cannot be unpickled in another process.
        return TreeSearcher(weights, tree, beam_width=stored.beam_width, threads=threads, link=link, ways=ways)

    def _leaves(self, query: Query) -> NDArray[np.int32]:
        return query.once(self, lambda: self.leaves_of(query.histories))

    def leaves_of(self, histories: ItemLists) -> NDArray[np.int32]:
        """int32[B, L], the leaves of the latest items, -1 padding on the left."""
        try:
            return leaves_of(self.core.module, self.tree.leaf_of_item, histories, self._length)
        except IndexError:
            check_histories(histories, self.num_items)
            raise

    def _live(self, options: SearchOptions) -> tuple[NDArray[np.int32], ...]:
        return self.tree.live_counts if options.allowed is None else options.of_filter(self, self.tree.counts_of)

    def _excluded(self, options: SearchOptions) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        """Each row's leaves to exclude, sorted, distinct, and only live ones."""
        if options.excluded is None:
            return None
        return banned_of(self.core.module, self.tree.leaf_of_item, options.excluded, options.allowed)

    def _way(self, k: int, options: SearchOptions) -> Way:
        """The way of searching for k results."""
        if options.beam_width is not None:
            return Way("beam", max(k, options.beam_width))
        return self.ways.of(options.effort).wide_enough(k, options.num_exact)

    def _scores_all(self, options: SearchOptions, way: Way) -> bool:
        """Whether the allowed items are no more than the nodes that the way would score on average."""
        if options.allowed is None:
            return False
        count, level_most = options.num_allowed, self.tree.shape.branching * way.beam_width
        if way.kind != "beam":
            return count <= _EXACT_FACTOR * way.judged
        # By path an exact search scores each level as well.
        if self.link.along_path or not level_most < count <= self.tree.shape.depth * level_most:
            return count <= level_most
        # The tree as the owner, as the searcher itself owns the counts.
        live = options.of_filter(self.tree, lambda _: _num_live(self._live(options)))
        # No node is live where only items beside the tree are allowed.
        return count <= float((np.minimum(live[:-1], way.beam_width) * live[1:] / np.maximum(live[:-1], 1)).sum())

    def _with_history(self, hits: Hits, query: Query, k: int, options: SearchOptions) -> Hits:
        """The k best of `hits` and of the history's allowed items that are not among them."""
        seen_BL = query.histories.padded(self._length)
        seen_BL = allowed_seen(seen_BL[:, (seen_BL >= 0).any(axis=0)], options)
        if seen_BL.shape[1] == 0:
            return hits
        # The beam's results stand first: what they have, and what the history has twice, is not scored again.
        seen_BL[repeats(np.concatenate([hits.items, seen_BL], axis=1))[:, k:]] = -1
        scores = np.concatenate([hits.scores, self.score(query, seen_BL)], axis=1)
        joined = sort_candidates(np.concatenate([hits.items, seen_BL], axis=1), scores, k)
        return Hits(joined.items, joined.scores, hits.scored + (seen_BL >= 0).sum(axis=1))

    def _hits(self, found: SearchResult) -> Hits:
        # The core orders ties by leaf, an answer by item.
        items = items_of_leaves(self.core.module, self.tree.item_of_leaf, found.leaves, found.scores)
        return Hits(items, found.scores, found.scored)


def _num_live(live: tuple[NDArray[np.int32], ...]) -> NDArray[np.int64]:
    """int64[H + 1], the nodes above an allowed item on each level."""
    return np.array([np.count_nonzero(counts) for counts in live])


def searcher_with(*terms: Term) -> type[TreeSearcher]:
    """A subclass of `TreeSearcher` whose folders may have these further terms, for `Method.searchers`."""
    return type("TreeSearcher", (TreeSearcher,), {"own_terms": terms})


def _terms_named(names: Sequence[str], more: Sequence[Term]) -> dict[str, Term]:
    """The terms of these names, of the package and of `more`. Errors: `UnknownSearcherError` on another name."""
    known = TERMS | by_name(more)
    for name in names:
        if name not in known:
            raise UnknownSearcherError(f"the scorer has a term '{name}', which is unknown{nearest(name, known)}")
    return {name: known[name] for name in names}
