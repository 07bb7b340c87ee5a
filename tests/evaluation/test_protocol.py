"""The protocol: streaming equals one pass, queries without labels are counted, invalid searches are detected."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beamwood
from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.evaluation import Tail, evaluate_both
from beamwood.evaluation.metrics import METRICS
from beamwood.evaluation.protocol import evaluate_split
from beamwood.retrieval.top_k import top_k
from beamwood.types import Hits, ItemLists, Query, QueryNeeds, SearchOptions
from one_view import evaluate_view

NUM_ITEMS = 25
RARE = Tail(np.arange(NUM_ITEMS) >= NUM_ITEMS - 5, "tail = the last five")


def make_queries(seed, num_queries=17):
    rng = np.random.default_rng(seed)
    histories = ItemLists.from_lists([rng.integers(0, NUM_ITEMS, rng.integers(1, 6)) for _ in range(num_queries)])
    labels = ItemLists.from_lists([rng.integers(0, NUM_ITEMS, rng.integers(0, 6)) for _ in range(num_queries)])
    return Queries(np.arange(num_queries) * 3, histories, labels, histories.distinct())


class Sines:
    """Scores that depend on the history, to detect mixed-up rows."""

    needs = QueryNeeds()

    def search(self, query, k, options=SearchOptions()):
        scores = np.array([np.sin(np.arange(NUM_ITEMS) * (1 + row.sum())) for row in query.histories])
        return top_k(scores.reshape(len(query), NUM_ITEMS), k, excluded=options.excluded, allowed=options.allowed)


SINES = Sines()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.booleans())
def test_streaming_equals_plain_loops(seed, batch_size, remove_seen):
    queries = make_queries(seed)
    judged = [q for q in range(17) if len(queries.labels[q])]
    measured = evaluate_view(
        SINES,
        queries,
        ks=(3, 8),
        remove_seen=remove_seen,
        batch_size=batch_size,
        tail=RARE,
    )
    assert measured.users.tolist() == [3 * q for q in judged]
    assert measured.without_labels == 17 - len(judged)
    assert set(measured.values) == {f"{name}@{k}" for name in METRICS for k in (3, 8)}
    shown = np.zeros(NUM_ITEMS)
    for place, q in enumerate(judged):
        row = ItemLists.from_lists([queries.histories[q]])
        best = SINES.search(Query.of(row), 8, SearchOptions(row if remove_seen else None)).items[0]
        wanted = set(queries.labels[q].tolist())
        hits = len(wanted & set(best.tolist()))
        assert measured.values["f@8"][place] == pytest.approx(2 * hits / (8 + len(wanted)))
        shown[best] += 1
    assert measured.overall["coverage@8"] == pytest.approx(np.mean(shown > 0))
    assert measured.overall["tail_share@8"] == pytest.approx(shown[-5:].sum() / shown.sum())
    assert measured.scored == pytest.approx(np.mean([NUM_ITEMS - len(queries.seen[q]) * remove_seen for q in judged]))


class Watching(Sines):
    """Records the bytes allocated between searches."""

    def __init__(self):
        self.allocated, self.held = [], 0

    def search(self, query, k, options=SearchOptions()):
        now, peak = tracemalloc.get_traced_memory()
        self.allocated.append(peak - self.held)
        self.held = now
        tracemalloc.reset_peak()
        return super().search(query, k, options)


def test_a_batch_takes_no_pass_over_the_catalogue():
    num_items, watching = 1_000_000, Watching()
    tail, groups = Tail(np.zeros(num_items, bool), "none"), np.zeros(num_items, np.int8)
    tracemalloc.start()
    try:
        evaluate_view(watching, make_queries(0), ks=(3,), remove_seen=False, batch_size=2, tail=tail, group_N=groups)
    finally:
        tracemalloc.stop()
    assert len(watching.allocated) > 3
    assert max(watching.allocated[1:]) < num_items


def test_both_views_in_one_call_and_as_dict():
    both = evaluate_both(SINES, make_queries(0), ks=(5,), tail=RARE)
    assert list(both) == ["kept", "removed"]
    document = both["removed"].as_dict()
    assert document["protocol"]["seen"] == "seen items removed"
    assert document["protocol"]["tail_rule"] == RARE.rule
    assert document["metrics"]["f@5"] == both["removed"].means()["f@5"]
    assert both["kept"].means() != both["removed"].means()


def test_a_query_is_encoded_once_for_both_views():
    encoded = []

    class Encoding(type(SINES)):
        def search(self, query, k, options=SearchOptions()):
            query.once(self, lambda: encoded.append(len(query)))
            return super().search(query, k, options)

    both = evaluate_both(Encoding(), make_queries(0), ks=(5,), tail=RARE, batch_size=2)
    assert sum(encoded) == len(both["kept"]) == len(both["removed"])
    for view, found in both.items():
        alone = evaluate_view(SINES, make_queries(0), ks=(5,), remove_seen=view == "removed", tail=RARE)
        assert found.means() == alone.means()
        assert alone.as_dict()["seconds_of"] == "encoding and search"
    told = [found.as_dict()["seconds_of"] for found in both.values()]
    assert told == ["encoding and search", "search, of queries encoded for the other view"]


def test_a_search_that_ignores_exclusions_is_refused():
    class Dishonest(Sines):
        def search(self, query, k, options=SearchOptions()):
            return super().search(query, k, replace(options, excluded=None))

    with pytest.raises(InputError, match="excluded items"):
        evaluate_view(Dishonest(), make_queries(2), ks=(20,), remove_seen=True)


def test_an_answer_of_the_wrong_shape_or_range_is_refused():
    class Short(Sines):
        def search(self, query, k, options=SearchOptions()):
            return super().search(query, k - 1)

    class Beyond(Sines):
        def search(self, query, k, options=SearchOptions()):
            hits = super().search(query, k)
            return Hits(hits.items + NUM_ITEMS, hits.scores, hits.scored)

    with pytest.raises(InputError, match="answered with shape"):
        evaluate_view(Short(), make_queries(2), ks=(5,), remove_seen=False)
    with pytest.raises(InputError, match="catalogue ends at 24"):
        evaluate_view(Beyond(), make_queries(2), ks=(5,), remove_seen=False, tail=RARE)


def test_wrong_arguments_are_refused():
    queries = make_queries(3)
    with pytest.raises(InputError, match="k=0 is below 1"):
        evaluate_view(SINES, queries, ks=(0, 5), remove_seen=False)
    with pytest.raises(InputError, match=r"k=26 is above the 25 items .*; give lower cuts, as ks=\(25,\)"):
        evaluate_view(SINES, queries, ks=(26,), remove_seen=False, tail=RARE)
    with pytest.raises(InputError, match="ks is empty"):
        evaluate_view(SINES, queries, ks=(), remove_seen=False)
    with pytest.raises(InputError, match="batch_size=0"):
        evaluate_view(SINES, queries, ks=(5,), remove_seen=False, batch_size=0)
    queries = replace(queries, labels=ItemLists.empty(17))
    with pytest.raises(InputError, match="none of the 17 queries has a label"):
        evaluate_view(SINES, queries, ks=(5,), remove_seen=False)


def test_a_retriever_in_place_of_its_searcher_is_refused():
    rows = [{"user": row % 9, "item": row % 7} for row in range(90)]
    split = beamwood.splits.leave_one_out(beamwood.Dataset.from_log(beamwood.read_log(rows)))
    with pytest.raises(InputError, match=r"searcher=Retriever by .* does not fit \(Retriever\); give Searches"):
        evaluate_split(beamwood.fit(split, "popularity"), split, ks=(3,))
