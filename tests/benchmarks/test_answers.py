"""Answers side by side on a small planted market: fits, measurements, tables, and each part against a slow twin."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
[logs.market]
market = { num_items = 640, num_users = 400, min_events = 8, max_events = 14 }
title = "A planted market"

[logs.absent]
folder = "absent"
title = "An absent log"

[topics.answers]
title = "One user's answer"
logs = ["market", "absent"]
keep = ["*/both"]

[topics.answers.rows.all]
title = "side by side"
recipe = "answers"
start = { dtr = "dtr", two_tower = "two_tower", cooccurrence = "cooccurrence" }

[topics.answers.rows.dtr]
title = "`dtr`"
recipe = "fitted"
method = "dtr"
settings = { "model.width" = 8, "model.light_width" = 8, "loop.max_steps" = 4, "loop.evaluate_every" = 4 }

[topics.answers.rows.two_tower]
title = "`two_tower`"
recipe = "fitted"
method = "two_tower"
settings = { "loop.max_steps" = 4, "loop.evaluate_every" = 4 }

[topics.answers.rows.cooccurrence]
title = "`cooccurrence`"
recipe = "fitted"
method = "cooccurrence"
"""


@pytest.fixture(scope="module", autouse=True)
def benchmarks_are_found():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


def called(module, root, *arguments):
    """The exit code of a command; runs are in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEAMWOOD_DATA", str(root / "data"))
        patch.setattr(sys, "argv", ["benchmarks", *arguments, "--root", str(root)])
        patch.setattr(
            "benchmarks.bench.Bench.in_process", lambda bench, run, given=None: bench.make(run, given) is None
        )
        patch.setattr("benchmarks.origin.commit", lambda root: "0123456")
        patch.setattr("benchmarks.side_by_side._TIMED", 12)
        patch.setattr("benchmarks.around._TURNS", 2)
        return module.main()


@pytest.fixture(scope="module")
def made(tmp_path_factory, benchmarks_are_found):
    from benchmarks import answers

    root = tmp_path_factory.mktemp("answers") / "checkout"
    (root / "benchmarks" / "results").mkdir(parents=True)
    (root / "docs").mkdir()
    for name in ("suite.toml", "short.toml"):
        (root / "benchmarks" / name).write_text(SUITE)
    (root / "README.md").write_text("# Page\n\n<!-- table answers -->\n<!-- end answers -->\n")
    assert called(answers, root) == 0
    return root


@pytest.fixture
def line(made):
    (text,) = (made / "benchmarks" / "runs" / "answers.jsonl").read_text().splitlines()
    return json.loads(text)


@pytest.fixture
def bench(made):
    from benchmarks.bench import Bench, Place

    return Bench(Place(made))


@pytest.fixture
def tree(made):
    import beamwood
    from beamwood.retrieval.item_vectors import part_with
    from beamwood.retrieval.searchers.tree import TreeSearcher

    return part_with(beamwood.load(made / "runs/benchmarks/answers/market/dtr/0/fitted").searcher, TreeSearcher)


def test_an_available_log_gets_one_line_with_all_rows(line):
    titles = line["training"]["titles"]
    judged = [f"two_tower hnsw {num}" for num in (50, 100, 200, 500)]
    assert {"tree", "tree full", "exact", "light exact", "light hnsw", *judged} <= titles.keys()
    assert {"two_tower exact", "two_tower hnsw", "cooccurrence"} <= titles.keys()
    assert line["training"]["behind"] == ["light hnsw", *judged]
    for key in titles:
        found = line["figures"]
        assert 0 < found[f"{key}/ms/median"] <= found[f"{key}/ms/p99"]
        assert 0 <= found[f"{key}/kept/f@20"] <= 1
        assert found[f"{key}/scored"] > 0
        assert found[f"{key}/mb"] > 0
    assert line["figures"]["exact/scored"] == 640
    assert line["figures"]["two_tower exact/scored"] == 640
    assert line["figures"]["light exact/scored"] <= line["figures"]["tree full/scored"]


def test_exact_rows_lose_nothing_and_others_have_an_overlap_with_them(line):
    figures = line["figures"]
    assert "exact/overlap" not in figures
    # 500 of 640 items are candidates, ordered by the same scores.
    assert figures["two_tower hnsw 500/overlap"] > figures["two_tower hnsw 50/overlap"] > 0
    assert figures["two_tower hnsw/overlap"] > 0.9


def test_costs_around_a_search_are_measured(line):
    figures = line["figures"]
    for name in ("python/history", "python/user", "filter/.1 %", "threads/2 over 1", "job/share", "load/s"):
        assert figures[name] > 0, name
    assert 0 < figures["light/share"] < 1
    assert figures["load/artefact_mb"] > 0
    assert figures["machine/multiply_adds_a_ms"] > 1e4


def test_the_document_has_each_bar_and_finding(made, capsys):
    from benchmarks import answers

    capsys.readouterr()
    assert called(answers, made, "market", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {"market: nodes judged", "market: ms", "market: f@20 lost, seen kept, %"} <= document["bars"].keys()
    for bar in document["bars"].values():
        assert bar.keys() == {"value", "bound", "holds"}
    compared = document["logs"]["market"]["equal_time"]
    assert compared.keys() == {"light hnsw", *(f"two_tower hnsw {num}" for num in (50, 100, 200, 500))}


def test_stored_answers_are_reused(made, monkeypatch, capsys):
    from benchmarks.judged import Judge

    from benchmarks import answers

    monkeypatch.setattr(Judge, "_judged", lambda *_: pytest.fail("looked for again"))
    folder = made / "runs/benchmarks/answers/market/dtr/0/fitted"
    assert called(answers, made, "market", "--again", "--folder", f"market={folder}") == 0
    assert "The tree as fitted scores" in capsys.readouterr().out
    lines = made / "benchmarks" / "runs" / "answers.jsonl"
    first, again = lines.read_text().splitlines()
    assert json.loads(again)["before"]["dtr"].startswith("a folder of dtr, seed 0, of 20")
    lines.write_text(first + "\n")


def test_the_report_renders_and_checks_the_table(made, capsys):
    from benchmarks import __main__

    assert called(__main__, made, "report") == 0
    page = (made / "README.md").read_text()
    assert "| its scorer over all items |" in page
    assert "| market | nodes judged |" in page
    assert called(__main__, made, "report", "--check") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["markt"], "log 'markt' is not measured; did you mean 'market'?"),
        (["market", "--folder", "market=nowhere"], "must be LOG=FOLDER"),
        (["absent"], ""),
    ],
)
def test_wrong_arguments_name_the_fix(made, capsys, arguments, said):
    from benchmarks import answers

    assert called(answers, made, *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_folder_of_another_log_or_method_is_refused(made, tmp_path, capsys):
    import beamwood
    from beamwood.data.markets.synthetic import MarketConfig, make_market
    from beamwood.data.splits import SPLITS

    market = make_market(MarketConfig(num_users=60, num_items=50, min_events=6, max_events=9), seed=1)
    split = SPLITS["users"](beamwood.Dataset.from_log(beamwood.read_log(market.log)), seed=2026)
    from benchmarks import answers

    for method, log, said in (
        ("cooccurrence", "market", "was not fitted on this log"),
        ("popularity", "market", "its method 'popularity' is not measured here"),
        ("cooccurrence", "absent", "its log 'absent' is not measured here"),
    ):
        beamwood.fit(split, method).save(tmp_path / "other", overwrite=True)
        assert called(answers, made, "market", "--again", "--folder", f"{log}={tmp_path / 'other'}") == 2
        assert said in capsys.readouterr().err


def test_a_light_head_as_vectors_scores_as_in_the_tree(bench, tree):
    from benchmarks.contenders import LightQueries
    from benchmarks.judged import seeded

    from beamwood.types import Query

    queries = seeded(bench._split(bench.suite.find("answers/market/all/0"))).take(np.arange(5))
    light, shape = LightQueries(tree), tree.tree.shape
    encoded = light.encode(Query.of(queries.histories)) @ light.vectors.T
    offset = shape.level_offset(shape.depth)
    leaves = tree.tree.leaves_of(queries.histories.padded(len(light.head.places)))
    for row, leaves_L in enumerate(leaves):
        places = np.flatnonzero(leaves_L >= 0)
        own = light.head.scores(offset + leaves_L[places], places, offset + tree.tree.leaf_of_item)
        np.testing.assert_allclose(encoded[row], own, atol=0.01 * np.abs(own).max())


def test_one_search_for_both_views_finds_what_two_would(bench, tree):
    from benchmarks.contenders import ExactTree
    from benchmarks.judged import Once, seeded

    from beamwood.types import SearchOptions

    queries = seeded(bench._split(bench.suite.find("answers/market/all/0"))).take(np.arange(6))
    query = queries.query(tree.needs)
    for options in (SearchOptions(), SearchOptions(queries.seen)):
        one, two = Once(ExactTree(tree), queries).search(query, 20, options), tree.exact(query, 20, options)
        np.testing.assert_array_equal(one.items, two.items)
        np.testing.assert_array_equal(one.scores, two.scores)


@pytest.mark.parametrize(
    ("items", "nodes", "holds"), [(4000, 220, True), (4000, 221, False), (46_000, 420, True), (46_000, 421, False)]
)
def test_a_bar_allows_a_large_catalogue_twice_as_much(items, nodes, holds):
    from benchmarks.bars import bars

    (bar,) = bars({"log": (items, {"tree/scored": nodes})}).values()
    assert bar.holds is holds


@pytest.mark.parametrize(
    ("gain", "ms", "said"),
    [
        (0.02, 0.9, "**At equal latency, a graph, 50 judged has a higher F@20 than the tree** (the tree)"),
        (
            -0.02,
            0.9,
            "No index reranked by the tree's scorer is significantly above the best search of the tree at equal",
        ),
        (
            0.02,
            0.3,
            "a graph, 50 judged is faster than every search of the tree here; its F@20 against the fastest of them",
        ),
    ],
)
def test_the_result_selects_the_sentence(bench, line, gain, ms, said):
    from benchmarks.answer_table import said as sentences
    from benchmarks.lines import Line

    own = np.random.default_rng(0).random(200) / 5
    values = {"tree/both": own, "graph/both": own + gain + np.linspace(-1e-3, 1e-3, 200)}
    figures = {"tree/ms/median": 0.5, "graph/ms/median": ms, "tree/both": 0.1, "graph/both": 0.1 + gain}
    training = {"titles": {"tree": "the tree", "graph": "a graph, 50 judged"}, "behind": ["graph"]}
    (sentence,) = sentences(Line(**line | {"figures": figures, "training": training}), values)
    assert sentence.startswith(said)


def test_turns_count_time_inside_and_restore_objects():
    from benchmarks.timing import spent_in_turns

    class Owner:
        core = None

    class Core:
        def work(self, number):
            return sum(range(20_000 + number))

    owner = Owner()
    owner.core = inner = Core()
    spent = spent_in_turns({"a": lambda n: owner.core.work(n)}, {"a": [(owner, "core")]}, {"a": 25})["a"]
    assert owner.core is inner
    assert len(spent.ms) == len(spent.inside_ms) == 25
    assert all(0 < inside <= whole for inside, whole in zip(spent.inside_ms, spent.ms, strict=True))


def test_each_turn_begins_with_answers_that_do_not_count():
    from benchmarks.timing import spent_in_turns

    asked = []
    spent = spent_in_turns({"own": asked.append}, {"own": []}, {"own": 25})
    assert asked == [0, 1, 2, *range(20), 20, 21, 22, *range(20, 25)]
    assert len(spent["own"].ms) == 25
