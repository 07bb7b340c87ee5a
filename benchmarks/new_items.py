"""The value of each source of new items: recall of items added after the fit, and NDCG over all items.

`python -m benchmarks.new_items [LOG] [--items ITEMS] [--methods dtr,two_tower] [--steps N] [--json]`. Without a log,
a planted market is used. A share of the items is held out of the fit and added from a source: their category, their
vector in the column `embedding`, their first 3 or 10 events, or 10 items that an operator names (here the items near
all of their events). New items get at most a share of an answer's positions, as in the service.

`recall` is recall@100 of the held-out items, relative to a model fitted with them. `ndcg` is NDCG@20 of all targets,
relative to no new items. The exit code is 0 once all is measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import beamwood
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.methods import load_method
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.retrieval.new_items.added import NewItem
from beamwood.retrieval.new_items.content import NEAREST
from beamwood.retrieval.new_items.sources import Sources, items_near
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.answer.shares import order_by_share
from beamwood.types import Hits, SearchOptions
from benchmarks.bars import Bar
from benchmarks.command import exit_code
from benchmarks.held_items import Held, draw, renamed
from benchmarks.measure import one_thread, print_results

BARS = {"category": 0.5, "vector": 0.5, "3 events": 0.7, "10 events": 0.9, "similar": 0.9}
"""The bound of each source: the least recall, as a share of that of a model fitted with the items."""
LEAST_NDCG = 0.99
_FEWEST, _MANY, _K, _CUT = 10, 10**9, 100, 20
_VECTORS = "embedding"
Judged = dict[str, float]


def source_mixture(held: Held, sources: Sources, item: int, source: str) -> dict[int, float]:
    """The mixture of a held-out item: weights by index of known items."""
    if source == "category":
        table = held.whole.train.item_table
        if table is None or table.categories[item] < 0:
            return {}
        alike = np.flatnonzero(table.categories == table.categories[item])
        places = held.place[alike]
        return sources.category(places[places < len(sources.counts)])
    if source == "vector":
        table = held.whole.train.item_table
        if table is None or _VECTORS not in table.frame.columns:
            return {}
        vectors = table.vectors(_VECTORS)
        known = VectorColumn.of(np.delete(vectors, held.items, axis=0))
        (near,) = known.similar(_VECTORS, [vectors[item]], NEAREST)
        return sources.vector(near)
    count = _MANY if source == "similar" else int(source.split()[0])
    beside = [held.place[items_near(history, place)] for history, place in held.first_events(item, count)]
    mixture = sources.events(beside)
    return sources.similar(mixture) if source == "similar" else mixture


def with_held(retriever: Retriever, held: Held, source: str) -> Retriever:
    """The retriever of `held.fitted` with the held-out items added, in their order."""
    sources, ids = Sources(held.fitted.train.item_counts), held.whole.train.items.decode(held.items)
    new = []
    for item, name in zip(held.items.tolist(), ids, strict=True):
        mixture = source_mixture(held, sources, item, source)
        known = retriever.items.decode(np.array(list(mixture), np.int64)) if mixture else []
        new.append(NewItem(name, dict(zip(known, mixture.values(), strict=True))))
    return retriever.with_items(new)


def found_by(retriever: Retriever, queries: Queries, k: int, *, known: int, share: float) -> Hits:
    """The k best unseen items of each query; items with an index of at least `known` get at most a `share` of them."""
    searcher, options = retriever.searcher, SearchOptions(queries.seen.distinct())
    query = queries.query(searcher.needs)
    hits = searcher.search(query, k, options)
    if searcher.num_items == known or share >= 1:
        return hits
    others = searcher.search(query, k, replace(options, allowed=np.arange(searcher.num_items) < known))
    new = hits.items >= known
    kept = new & (np.cumsum(new, axis=1) <= math.ceil(share * k))
    found = Hits(np.full_like(hits.items, -1), np.full_like(hits.scores, -np.inf), hits.scored + others.scored)
    for row in range(len(hits.items)):
        there = others.items[row] >= 0
        items = np.concatenate([hits.items[row, kept[row]], others.items[row, there]])
        scores = np.concatenate([hits.scores[row, kept[row]], others.scores[row, there]])
        order = order_by_share(scores, items >= known, share, k)
        found.items[row, : len(order)], found.scores[row, : len(order)] = items[order], scores[order]
    return found


def judged(retriever: Retriever, queries: Queries, new: NDArray[np.bool_], *, known: int, share: float) -> Judged:
    """Recall@100 of the new labels, and NDCG@20 of all labels; a seen item is not a target."""
    is_label = np.zeros((len(queries), len(new)), bool)
    is_label[queries.labels.rows, queries.labels.items] = True
    is_label[queries.seen.rows, queries.seen.items] = False
    counts = is_label.sum(axis=1)
    asked = counts > 0

    def hit_by(k: int, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        hits = found_by(retriever, queries, k, known=known, share=share)
        found: NDArray[np.bool_] = np.take_along_axis(wanted, np.maximum(hits.items, 0), axis=1) & (hits.items >= 0)
        return found

    discounts = 1 / np.log2(np.arange(2, _CUT + 2))
    ideal = np.concatenate([[0], np.cumsum(discounts)])[np.minimum(counts, _CUT)]
    gained = hit_by(_CUT, is_label) @ discounts
    return {
        "recall": float(hit_by(_K, is_label & new).sum() / max(1, (is_label & new).sum())),
        "ndcg": float(np.mean(gained[asked] / ideal[asked])) if asked.any() else 0.0,
    }


def measured_sources(
    split: Split, method: str, settings: Mapping[str, Any], *, held_share: float, share: float, seed: int
) -> dict[str, Any]:
    """Results of one method: a model fitted with the items, without them, and without them plus each source."""
    held = draw(split, held_share, events=_FEWEST, seed=seed)
    options: dict[str, Any] = {"seed": seed}
    if load_method(method).needs.steps:
        options["progress"] = False
    whole = beamwood.fit(held.whole, method, settings, **options)
    fitted = beamwood.fit(held.fitted, method, settings, **options)
    num_items, known = held.whole.train.num_items, held.fitted.train.num_items
    of_whole, behind = np.zeros(num_items, bool), np.arange(num_items) >= known
    of_whole[held.items] = True
    queries = held.queries(held.whole.test)
    # The labels keep the new items, so they count as misses.
    without = renamed(held.whole.test, np.where(held.place < known, held.place, -1))
    without = Queries(queries.users, without.histories, queries.labels, without.seen, queries.context)
    alone = {"known": num_items, "share": 1.0}
    own: dict[str, Any] = {"known": known, "share": share}
    return {
        "held": len(held.items),
        "fitted with them": judged(whole, held.whole.test, of_whole, **alone),
        "none": judged(fitted, without, behind, **own),
        "sources": {name: judged(with_held(fitted, held, name), queries, behind, **own) for name in BARS},
    }


def source_bars(method: str, found: Mapping[str, Any]) -> Iterator[tuple[str, Bar]]:
    """The bars of each source: recall and NDCG."""
    reached, before = found["fitted with them"]["recall"], found["none"]["ndcg"]
    for source, least in BARS.items():
        own = found["sources"][source]
        yield f"{method} {source} recall", Bar(own["recall"] / max(reached, 1e-9), least, most=False)
        yield f"{method} {source} ndcg", Bar(own["ndcg"] / max(before, 1e-9), LEAST_NDCG, most=False)


def market(num_items: int) -> Split:
    """The split of a planted market; the vector of an item: each taste's preference for it, and as much noise."""
    from beamwood.data.markets.synthetic import MarketConfig, make_market

    made = make_market(MarketConfig(num_items=num_items), seed=0)
    liking = np.log(made.emission).T
    liking = (liking - liking.mean(axis=1, keepdims=True)) / liking.std()
    noisy = liking + np.random.default_rng(0).normal(size=liking.shape)
    items = made.item_frame.with_columns(pl.Series(_VECTORS, noisy.tolist()))
    return beamwood.splits.disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(made.log), items), seed=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("log", nargs="?", help="a log; by default a planted market")
    parser.add_argument("--items", help="the log's item table, with a category")
    parser.add_argument("--methods", default="dtr,two_tower")
    parser.add_argument("--steps", type=int, help="steps of each training; by default those of the method")
    parser.add_argument("--held", type=float, default=0.05, help="the share of items to hold out")
    parser.add_argument(
        "--share", type=float, default=0.1, help="the largest share of an answer's positions for new items; 1: no limit"
    )
    parser.add_argument("--num-items", type=int, default=1000, help="size of the planted market")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    one_thread()
    return exit_code("benchmarks.new_items", lambda: run(given))


def run(given: argparse.Namespace) -> int:
    """Measure each method, and print the bars."""
    if given.log is None:
        split = market(given.num_items)
    else:
        split = beamwood.splits.disjoint_users(
            beamwood.Dataset.from_log(beamwood.read_log(given.log), given.items), seed=given.seed
        )
    found: dict[str, Any] = {}
    bars: dict[str, Bar] = {}
    for method in given.methods.split(","):
        trains = load_method(method).needs.steps
        settings = {"loop.max_steps": given.steps} if trains and given.steps is not None else {}
        found[method] = measured_sources(
            split, method, settings, held_share=given.held, share=given.share, seed=given.seed
        )
        bars |= dict(source_bars(method, found[method]))
    if given.json:
        print_results(found | {"bars": {name: bar.as_dict() for name, bar in bars.items()}}, as_json=True)
        return 0
    for name, bar in bars.items():
        print(bar.line(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
