"""What the contenders find: F@20 in both views, and how much of it is what the same scores put first of all items."""

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
from beamwood.data.split import Queries, Split
from beamwood.evaluation.protocol import evaluate_both
from beamwood.retrieval.top_k import join_hits, sort_candidates
from beamwood.types import Hits, Query, SearchOptions, among
from benchmarks.contenders import Contender
from benchmarks.origin import source_digest

__all__ = ["Found", "Judge", "overlaps", "seeded"]

K = 20
# Users that every row is judged by, and the leaves that the tree's scorer looks at for those of a dear one.
_USERS, _LEAVES = 4000, 10_000_000
# Users whose answers are compared item by item.
_COMPARED = 300


@dataclass(frozen=True)
class Found:
    """Of the first `users` in the seeded order: F@20 of each in both views, and nodes or products scored.

    `items` int32[Q, 20], what was answered to the first of them, seen items removed.
    """

    kept: NDArray[np.float64]
    removed: NDArray[np.float64]
    scored: float
    items: NDArray[np.int32]

    @property
    def both(self) -> NDArray[np.float64]:
        """float64[users], the mean over views."""
        return (self.kept + self.removed) / 2


def seeded(split: Split) -> Queries:
    """Test queries with labels in an order drawn with seed 2026, of which a sample is the beginning."""
    judged = np.flatnonzero(split.test.labels.distinct().lengths > 0)
    return split.test.take(np.random.default_rng(2026).permutation(judged))


class Judge:
    """Judges contenders on test queries in their seeded order, and keeps what it found in a folder.

    `whole`: keys of those that all users are asked for; the others are judged by at most 4,000, and who scores every
    item with the tree's scorer by as many as 10 million scores allow.
    """

    def __init__(self, queries: Queries, folder: Path, whole: Sequence[str]) -> None:
        self.queries, self.folder, self.whole = queries, folder, whole

    def found(self, contenders: Sequence[Contender], state: str) -> Iterator[tuple[str, Found]]:
        """By key what each finds; of one source, and of folders in one `state`, it is not looked for again."""
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
    """A searcher that finds the best of all items, asked once for both views: seen items go out afterwards."""

    def __init__(self, searcher: Any, queries: Queries) -> None:
        self.searcher, self.needs = searcher, searcher.needs
        self.depth = min(K + int(queries.seen.distinct().lengths.max()), searcher.num_items)
        self.known: dict[bytes, Hits] = {}

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `types.Searcher`; `options` may exclude, and no more."""
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
    """By key the share of 20 answers that the row `exact` has too, over the users that both were asked for."""
    shares = {}
    for each in contenders:
        if each.exact in found:
            one, other = found[each.key].items, found[each.exact].items
            pairs = zip(one[: len(other)], other[: len(one)], strict=True)
            same = [len(np.intersect1d(a[a >= 0], b)) / max(int((b >= 0).sum()), 1) for a, b in pairs]
            shares[each.key] = float(np.mean(same))
    return shares


def _core_digest() -> str:
    """Of the compiled core, which is no part of the source's digest."""
    spec = find_spec("beamwood._native")
    if spec is None or spec.origin is None:
        return ""
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:12]
