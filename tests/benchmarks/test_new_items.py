"""The experiment on new items: a planted market, a counting method, and figures computed by hand."""

import numpy as np
import pytest
from benchmarks.new_items import BARS, found_by, judged, market, measured_sources, source_bars
from benchmarks.serve_table import flattened, serve_table

from beamwood.data.queries import Queries
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.types import ItemLists
from retrieval_cases import retriever_of


def test_each_source_has_recall_and_ndcg():
    found = measured_sources(market(200), "cooccurrence", {}, held_share=0.05, share=0.1, seed=0)
    assert found["held"] == 10
    assert found["none"]["recall"] == 0, "absent items cannot be found"
    assert found["fitted with them"]["recall"] > 0.2
    bars = dict(source_bars("cooccurrence", found))
    assert set(bars) == {f"cooccurrence {source} {side}" for source in BARS for side in ("recall", "ndcg")}
    assert bars["cooccurrence 10 events recall"].value > bars["cooccurrence category recall"].value > 0


def test_recall_of_new_items_and_ndcg_of_all():
    """Popularity decreases from item 9 to item 0; the last two items are new."""
    retriever = retriever_of(PopularitySearcher(np.arange(10.0)))
    lists = ItemLists.from_lists
    queries = Queries(np.array([0, 1]), lists([[], []]), lists([[9, 0], [8]]), lists([[], []]))
    new = np.arange(10) >= 8
    told = judged(retriever, queries, new, known=10, share=1.0)
    assert told["recall"] == 1
    first = (1 + 1 / np.log2(11)) / (1 + 1 / np.log2(3))
    assert told["ndcg"] == pytest.approx((first + 1 / np.log2(3)) / 2)
    assert found_by(retriever, queries, 5, known=8, share=0.2).items[0].tolist() == [7, 6, 5, 4, 9]
    assert found_by(retriever, queries, 5, known=8, share=0.0).items[0].tolist() == [7, 6, 5, 4, 3]


def test_a_run_of_the_service_as_a_table():
    figures = flattened({"threads": 2, "load_average": 0.5, "rival": {"saturated": {"a_second": 9.0}}, "words": "no"})
    assert figures == {"threads": 2.0, "load_average": 0.5, "rival/saturated/a_second": 9.0}
    figures |= flattened({"bars": {"p50_ms": {"value": 0.25, "bound": 0.5, "holds": True}}})

    class Line:
        log, date, data, machine = "ml1m", "today", {"items": 3000}, {"processor": "a processor"}

    Line.figures = figures
    table = serve_table("MovieLens", "service", Line)
    assert "3,000 items; today, a processor, 2 threads, load .5" in table
    assert "| p50 ms | .250 | .500 | yes |" in table
    assert "| FastAPI, saturated | 9.0 |  |  |  |" in table
    assert "memory" not in table, "it was not measured"
    Line.figures |= {"machine/slow_share": 0.0, "machine/slow_times": 1.0}
    assert "load .5.\nBefore the run, no memory write was slow" in serve_table("", "", Line)
    Line.figures |= {"machine/slow_share": 0.02, "machine/slow_times": 30.0}
    assert "2.0 % of memory writes were slow: they took 30.0 times the median" in serve_table("", "", Line)
