"""Effort and beam width of a tree search, in Python, in batch jobs and on the command line."""

import json

import numpy as np
import polars as pl
import pytest

from beamwood.errors import InputError
from beamwood.kernels.light import Way
from beamwood.retrieval.request import Request
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.types import Query, SearchOptions
from cli_cases import beamwood
from retrieval_cases import retriever_of, tree_searcher, vector_searcher

# Arguments, and the way to search that they select.
EFFORTS = [
    ({}, Way("cascade", 8, 12)),
    ({"effort": 0}, Way("steer", 8, 4)),
    ({"effort": 0.5}, Way("cascade", 8, 12)),
    ({"effort": 1.0}, Way("beam", 8)),
    ({"beam_width": 40}, Way("beam", 40)),
    ({"effort": np.float64(0)}, Way("steer", 8, 4)),
    ({"effort": np.float32(0.5)}, Way("cascade", 8, 12)),
    ({"effort": np.int64(1)}, Way("beam", 8)),
    ({"beam_width": np.int64(40)}, Way("beam", 40)),
]


@pytest.mark.parametrize(("asked", "way"), EFFORTS)
def test_effort_selects_a_way(asked, way):
    retriever = retriever_of(tree_searcher(500, steered=True))
    searcher, users = retriever.searcher, [5, 7, 9]
    query = Query.of(retriever.histories.take(np.array(users)))
    options = SearchOptions(query.histories.distinct())
    expected = searcher.searched(query, 8, options, way)
    found = retriever.recommend(users=users, k=8, **asked)
    assert found == retriever.answer(Request(users=users, k=8, **asked))
    items = [retriever.items.decode(row[row >= 0]) for row in expected.items]
    assert found.item_ids == items
    # A blend passes it on.
    both = retriever_of(Blend([Part(searcher), Part(vector_searcher(500), 0.0)], num_candidates=8))
    assert both.recommend(users=users, k=8, **asked).item_ids == items


def test_ways_differ_and_the_full_beam_scores_most():
    retriever = retriever_of(tree_searcher(500, steered=True))
    query = Query.of(retriever.histories.take(np.arange(3, 12)))
    found = [retriever.searcher.search(query, 8, SearchOptions(effort=effort)) for effort in (0, 0.5, 1)]
    assert found[0].scored.sum() < found[1].scored.sum() < found[2].scored.sum()
    assert not np.array_equal(found[0].items, found[2].items)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"effort": 1.5}, r"effort=1.5 is outside 0\.\.1"),
        ({"effort": float("nan")}, r"effort=nan is outside 0\.\.1"),
        ({"effort": np.True_}, r"effort=np.True_ is"),
        ({"beam_width": True}, r"beam_width=True is"),
        ({"effort": True}, r"effort=True is outside 0\.\.1"),
        ({"effort": "much"}, r"effort='much' is outside 0\.\.1"),
        ({"beam_width": 0}, r"beam_width=0 is outside 1\.\."),
        ({"beam_width": 2.0}, r"beam_width=2.0 is outside 1\.\."),
        ({"effort": 0.5, "beam_width": 3}, "effort=0.5 and beam_width=3 contradict each other"),
    ],
)
def test_errors_name_the_bounds(asked, message):
    with pytest.raises(InputError, match=message):
        retriever_of(tree_searcher(50)).recommend(users=[1], k=2, **asked)


def test_models_without_a_tree_refuse_it():
    for asked in ({"effort": 0.5}, {"beam_width": 9}):
        with pytest.raises(InputError, match=f"{next(iter(asked))}=.* is for trees, and this model has no tree"):
            retriever_of(vector_searcher(50)).recommend(users=[1], k=2, **asked)


def test_on_the_command_line_and_in_batch_jobs(tmp_path, capsys):
    retriever = retriever_of(tree_searcher(500, steered=True), num_users=30)
    retriever.save(tmp_path / "model")
    asks = {"--effort": ("0", {"effort": 0.0}), "--beam-width": ("40", {"beam_width": 40})}
    for option, (text, asked) in asks.items():
        expected = retriever.recommend(users=range(30), k=5, **asked).item_ids
        assert expected != retriever.recommend(users=range(30), k=5).item_ids
        assert beamwood("recommend", tmp_path / "model", "--user", "7", "-k", 5, option, text, "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["items"] == expected[7]
        out = tmp_path / f"recs{option}.parquet"
        assert beamwood("recommend", tmp_path / "model", "--all-users", "-k", 5, option, text, "--out", out) == 0
        capsys.readouterr()
        assert pl.read_parquet(out)["item"].to_list() == [item for row in expected for item in row]

    assert beamwood("recommend", tmp_path / "model", "--user", "7", "--effort", "2") == 2
    assert "--effort 2.0 is outside 0..1" in capsys.readouterr().err


def test_candidates_of_a_blend_are_searched_by_the_selected_way():
    """For 80 candidates and 4 results, 80 leaves are scored, not the larger number that 80 results need."""
    searcher, users = tree_searcher(500, steered=True), np.arange(3, 12)
    histories = retriever_of(searcher).histories.take(users)
    query, brought = Query.of(histories), []

    class Asked:
        """The tree, and the arguments of its searches."""

        def __getattr__(self, name):
            return getattr(searcher, name)

        def search(self, query, k, options=SearchOptions()):
            brought.append((k, options.num_exact))
            return searcher.search(query, k, options)

    two = Blend([Part(Asked()), Part(vector_searcher(500))], num_candidates=80)
    options = SearchOptions(histories.distinct(), effort=0)
    hits = two.search(query, 4, options)
    assert brought == [(80, 48)]
    assert (hits.scored == 160).all()
    wide = searcher.search(query, 80, SearchOptions(histories.distinct(), effort=0))
    # By default all 80 candidates must be good, with the same way to search.
    assert (wide.scored == 80).all()
    assert searcher.search(query, 80, SearchOptions(histories.distinct(), effort=0, num_exact=80)).items.tolist() == (
        wide.items.tolist()
    )
    # A nested blend uses the number of results of the outer one.
    brought.clear()
    Blend([Part(two), Part(vector_searcher(500))], num_candidates=50).search(query, 4, options)
    assert brought == [(80, 48)]


@pytest.mark.parametrize(
    ("way", "k", "good", "wide"),
    [
        (Way("steer", 300, 100), 100, None, Way("steer", 300, 500)),
        (Way("steer", 300, 100), 100, 20, Way("steer", 300, 100)),
        (Way("steer", 300, 100), 100, 40, Way("steer", 300, 200)),
        (Way("steer", 300, 100), 100, 300, Way("steer", 300, 500)),
        (Way("steer", 300, 50), 100, 20, Way("steer", 300, 100)),
        (Way("cascade", 50, 100), 100, 20, Way("cascade", 100, 100)),
        (Way("cascade", 50, 100), 15, 5, Way("cascade", 50, 100)),
        (Way("beam", 150), 200, 20, Way("beam", 200)),
        (Way("beam", 150), 100, 20, Way("beam", 150)),
    ],
)
def test_a_way_is_widened_only_for_the_requested_results(way, k, good, wide):
    assert way.wide_enough(k, good) == wide
