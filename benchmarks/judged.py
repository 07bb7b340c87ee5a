"""The quality of the contenders: F@20 in both views, and the overlap with exact search by the same scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.artefact.replace import whole_file
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.evaluation.protocol import evaluate_both
from beamwood.retrieval.top_k import join_hits, sort_candidates
from beamwood.types import Hits, Query, SearchOptions, among
from benchmarks.contenders import Contender
from benchmarks.origin import source_digest

__all__ = ["Found", "Judge", "overlaps", "seeded"]

K = 20
# The users of every row, and the number of leaves that the tree's scorer may score for the users of a `dear` row.
_USERS, _LEAVES = 4000, 10_000_000
# The users whose answers are compared item by item.
_COMPARED = 300


@dataclass(frozen=True)
class Found:
    """Results for the first `users` in the seeded order: F@20 of each in both views, and nodes or products scored.

    `items` int32[Q, 20]: the answers to the first Q of them, seen items removed.
    """

    kept: NDArray[np.float64]
    removed: NDArray[np.float64]
    scored: float
    items: NDArray[np.int32]

    @property
    def both(self) -> NDArray[np.float64]:
        """float64[users]: the mean over the views."""
        return (self.kept + self.removed) / 2


def seeded(split: Split) -> Queries:
    """Test queries with labels, in an order drawn with seed 2026; a sample is a prefix of it."""
    judged = split.test.labelled()
    return judged.take(np.random.default_rng(2026).permutation(len(judged)))


class Judge:
    """Evaluates contenders on test queries in their seeded order, and keeps the results in a folder.

    `whole`: keys of the contenders that are evaluated on all users. The others use at most 4,000 users; a contender
    that scores every item with the tree's scorer uses as many users as 10 million scores allow.
    """

    def __init__(self, queries: Queries, folder: Path, whole: Sequence[str]) -> None:
        self.queries, self.folder, self.whole = queries, folder, whole

    def found(self, contenders: Sequence[Contender], state: str) -> Iterator[tuple[str, Found]]:
        """Results by key; stored results of the same source and of folders in the same `state` are reused."""
        for contender in contenders:
            users = self._users(contender)
            named = json.dumps([contender.key, contender.title, users, state, source_digest(), _core_digest()])
            path = self.folder / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.npz"
            if not path.exists():
                self._keep(path, self._judged(contender, users))
            with np.load(path) as kept:
                yield contender.key, Found(kept["kept"], kept["removed"], float(kept["scored"]), kept["items"])

    def _users(self, contender: Contender) -> int:
        if contender.key in self.whole:
            return len(self.queries)
        most = max(30, _LEAVES // contender.searcher.num_items) if contender.dear else _USERS
        return min(len(self.queries), _USERS, most)

    def _judged(self, contender: Contender, users: int) -> Found:
        queries = self.queries.take(np.arange(users))
        searcher = Once(contender.searcher, queries) if contender.dear else contender.searcher
        views = evaluate_both(searcher, queries, ks=(K,), batch_size=min(256, _COMPARED))
        few = queries.take(np.arange(min(users, _COMPARED)))
        hits = searcher.search(few.query(searcher.needs), K, SearchOptions(few.seen))
        kept, removed = (views[view].values[f"f@{K}"] for view in ("kept", "removed"))
        return Found(kept, removed, views["kept"].scored, hits.items)

    def _keep(self, path: Path, found: Found) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as fresh, fresh.open("wb") as file:
            np.savez(file, kept=found.kept, removed=found.removed, scored=found.scored, items=found.items)


class Once:
    """An exact searcher whose one search serves both views: seen items are removed afterwards."""

    def __init__(self, searcher: Any, queries: Queries) -> None:
        self.searcher, self.needs = searcher, searcher.needs
        self.depth = min(K + int(queries.seen.distinct().lengths.max()), searcher.num_items)
        self.known: dict[bytes, Hits] = {}

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `types.Searcher`; `options` may only exclude items."""
        for row, user in enumerate(query.users):
            if user.tobytes() not in self.known:
                one = query.take(np.array([row]))
                self.known[user.tobytes()] = self.searcher.search(one, self.depth)
        whole = join_hits([self.known[user.tobytes()] for user in query.users], self.depth)
        kept = whole.items >= 0
        if options.excluded is not None:
            kept &= ~among(whole.items, options.excluded)
        best = sort_candidates(np.where(kept, whole.items, -1), np.where(kept, whole.scores, -np.inf), k)
        return Hits(best.items, best.scores, whole.scored)


def overlaps(found: Mapping[str, Found], contenders: Sequence[Contender]) -> dict[str, float]:
    """The share of 20 answers that the row `exact` also has, by key, over the users of both."""
    shares = {}
    for each in contenders:
        if each.exact in found:
            one, other = found[each.key].items, found[each.exact].items
            pairs = zip(one[: len(other)], other[: len(one)], strict=True)
            same = [len(np.intersect1d(a[a >= 0], b)) / max(int((b >= 0).sum()), 1) for a, b in pairs]
            shares[each.key] = float(np.mean(same))
    return shares


def _core_digest() -> str:
    """The digest of the compiled core, which the source's digest does not cover."""
    spec = find_spec("beamwood._native")
    if spec is None or spec.origin is None:
        return ""
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:12]
