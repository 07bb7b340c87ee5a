"""The search for the best method: selection, limits, and stored results."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.data.queries import Queries
from beamwood.errors import InputError, TimeLimitError
from beamwood.recipes.portfolio import final_evaluation, first_part
from beamwood.recipes.portfolio.find import find
from beamwood.recipes.portfolio.looks import Looks
from beamwood.recipes.portfolio.members import Member, members_of
from beamwood.recipes.portfolio.outline import Outline
from beamwood.recipes.portfolio.search import Search
from beamwood.recipes.portfolio.search_folder import SearchFolder
from beamwood.recipes.portfolio.table import table_lines
from beamwood.recipes.portfolio.wanted import Wanted
from beamwood.training.budget import Budget
from clocks import Ticks
from one_view import evaluate_view
from portfolios import COUNTING, TINY, searched, small_split

OWN = TINY | {"loop.max_steps": 10, "choose.monitor": "both/f@20"}


@pytest.fixture(scope="module")
def split():
    return small_split()


@pytest.fixture(scope="module")
def found(split):
    return find(split, time_limit=600, members=COUNTING)


def test_the_best_is_found_with_a_table(found, split, tmp_path):
    document = found.document
    json.dumps(document, allow_nan=False)
    assert found.retriever.metadata["portfolio"] == document
    rows = {row["name"]: row for row in document["rows"]}
    assert {"popularity", "cooccurrence", "transitions"} <= set(rows)
    assert any("+" in name for name in rows)
    chosen = rows[document["chosen"]]
    assert chosen["chosen"]
    assert chosen["value"] > rows["popularity"]["value"]
    for row in rows.values():
        assert row["value_95"][0] <= row["value"] <= row["value_95"][1]
        if not row["chosen"]:
            assert row["behind"] == pytest.approx(chosen["value"] - row["value"])
    assert document["test"]["removed"]["users"] == len(split.test)
    found.retriever.save(tmp_path / "best")
    again = beamwood.load(tmp_path / "best")
    assert again.recommend([[5, 6]], k=3).item_ids == found.retriever.recommend([[5, 6]], k=3).item_ids
    assert any(line.startswith("* ") for line in table_lines(document))
    views = beamwood.evaluate(found.retriever, split)
    value = document["test"]["kept"]["metrics"]["f@20"]["value"]
    assert views["kept"].means()["f@20"] == pytest.approx(value)


def test_a_choice_among_models_that_find_nothing_is_named(found):
    """As on a log in which each user takes one item again and again: no label is an unseen item."""
    said = "every model scores 0, so the choice means nothing"
    assert not any(line.startswith(said) for line in table_lines(found.document))
    zeros = found.document | {"rows": [row | {"value": 0.0} for row in found.document["rows"]]}
    assert f"{said}; if users take the same items again, choose --monitor kept/f@20" in table_lines(zeros)
    assert said in table_lines(zeros | {"monitor": "kept/f@20"})


def test_a_choice_on_one_user_says_so(found):
    test = {view: figures | {"users": 1} for view, figures in found.document["test"].items()}
    lines = "\n".join(table_lines(found.document | {"validation_users": 1, "test": test}))
    assert "is chosen, on 1 validation user (" in lines
    assert "on 1 test user, seen items kept: " in lines


class Watched(Queries):
    """Queries that count how many of them were read."""

    rows: list

    def take(self, rows):
        self.rows.append(len(rows))
        return Queries(self.users, self.histories, self.labels, self.seen, self.context).take(rows)


def test_the_test_users_are_read_once_after_the_choice(split, monkeypatch):
    test = split.test
    watched = Watched(test.users, test.histories, test.labels, test.seen, test.context)
    object.__setattr__(watched, "rows", [])
    calls, before = [], []
    whole = final_evaluation.evaluate_both
    monkeypatch.setattr(
        final_evaluation, "evaluate_both", lambda *given, **options: calls.append(1) or whole(*given, **options)
    )
    find(
        replace(split, test=watched),
        time_limit=600,
        members=COUNTING,
        better=lambda _: before.append((sum(watched.rows), len(calls))),
    )
    assert len(before) > 1
    assert set(before) == {(0, 0)}
    assert len(calls) == 1
    assert sum(watched.rows) == len(test)


def test_the_choice_does_not_depend_on_the_test_users(found, split):
    turned = split.test.take(np.arange(len(split.test))[::-1])
    other = replace(split.test, labels=turned.labels)
    again = find(replace(split, test=other), time_limit=600, members=COUNTING).document
    assert again["chosen"] == found.document["chosen"]
    values = [{row["name"]: row["value"] for row in each["rows"]} for each in (again, found.document)]
    assert values[0] == values[1]
    assert again["test"] != found.document["test"]


def test_the_choice_uses_the_validation_users(found, split):
    name = found.document["chosen"]
    own = evaluate_view(found.retriever.searcher, split.valid, ks=(20,), remove_seen=True).values["f@20"]
    row = next(row for row in found.document["rows"] if row["name"] == name)
    assert row["value"] == pytest.approx(own.mean())


def test_blends_are_restored_from_their_parts(split, tmp_path):
    parts = SearchFolder(tmp_path / "parts", {})
    with parts.locked(resume=False, overwrite=False):
        one = Search(split, Wanted(600, "removed/f@20"), parts, members=COUNTING)
        one.run()
        blends = [each for each in parts.trials if len(each.parts) > 1]
        assert max(len(each.parts) for each in blends) <= 3
        for each in blends:
            again = one.trials.fitted(each.parts)
            assert np.array_equal(one.trials.validation.values(again.searcher), parts.values[each.name])


def test_fewer_test_users_are_read_if_time_is_short(split, tmp_path):
    from beamwood.data.splits import SPLITS

    many = make_market(MarketConfig(num_users=300, num_items=40, min_events=5, max_events=8), seed=0)
    many = SPLITS["leave-one-out"](Dataset.from_log(read_log(many.log)), seed=1)
    assert len(many.test) > final_evaluation._FEWEST
    for before, users in ((0.0, len(many.test)), (599.99, final_evaluation._FEWEST)):
        clock = Ticks()
        parts = SearchFolder(tmp_path / f"parts-{users}", {})
        with parts.locked(resume=False, overwrite=False):
            wanted, budget = Wanted(600, "removed/f@20"), Budget(600, clock=clock)
            one = Search(many, wanted, parts, members=COUNTING[:1], budget=budget)
            one.looks.run()
            clock.now += before
            assert one.found(tested=True).document["test"]["removed"]["users"] == users


def test_blends_are_tried_only_while_time_is_left(split, tmp_path, monkeypatch):
    given, whole = [], first_part.FirstStage.behind

    def noting(first, second, budget):
        given.append(budget.left)
        return whole(first, second, budget)

    monkeypatch.setattr(first_part.FirstStage, "behind", noting)
    for limit, tried in ((600.0, True), (1e-6, False)):
        given.clear()
        searched(split, tmp_path / f"parts-{limit}", COUNTING, limit)
        assert bool(given) == tried
        assert all(0 < left < limit for left in given)


def test_the_metric_of_the_search_chooses_the_weights_of_its_members(split, tmp_path):
    members = [COUNTING[0], Member("sasrec", "sasrec", TINY | {"loop.max_steps": 10}), Member("own", "sasrec", OWN)]
    parts = SearchFolder(tmp_path / "parts", {})
    with parts.locked(resume=False, overwrite=False):
        wanted = Wanted(600, "kept/mrr@20")
        Search(split, wanted, parts, members=members, budget=Budget(600, clock=Ticks())).run()
    stored = {name: beamwood.load(tmp_path / "parts" / name).metadata["config"] for name in ("sasrec", "own")}
    assert stored["sasrec"]["choose"]["monitor"] == "kept/mrr@20"
    assert stored["own"]["choose"]["monitor"] == "both/f@20"


def test_trainings_share_initial_vectors(split, tmp_path, monkeypatch):
    from beamwood.fitting.vectors import item_start

    made, whole = [], item_start.leading_eigenvectors
    monkeypatch.setattr(
        item_start, "leading_eigenvectors", lambda *given, **options: made.append(1) or whole(*given, **options)
    )
    short = TINY | {"loop.max_steps": 5}
    members = [COUNTING[0], *(Member(f"s{seed}", "sasrec", short | {"model.dropout": seed / 10}) for seed in range(3))]
    _, parts = searched(split, tmp_path / "parts", members, 600)
    assert {each.name for each in parts.trials} >= {"s0", "s1", "s2"}
    assert len(made) == 1
    # Outside a search each computes its own, with the same bits.
    own = [item_start.transition_vectors(split.train, 4, 0) for _ in range(2)]
    assert len(made) == 3
    assert np.array_equal(*own)


def test_budgets_limit_the_choice(split):
    small = find(split, time_limit=600, members=COUNTING, budget_mb=0.001)
    assert small.document["chosen"] == "popularity"
    over = {row["name"] for row in small.document["rows"] if row["note"] == "over the budget"}
    assert {"cooccurrence", "transitions"} <= over
    with pytest.raises(InputError, match=r"nothing is within budget_ms=1e-09: the fastest, \w+, takes"):
        find(split, time_limit=600, members=COUNTING[:1], budget_ms=1e-9)


def test_failed_fits_are_reported(split):
    found = find(split, time_limit=600, members=[COUNTING[0], Member("ranker", "ranker")])
    assert found.document["chosen"] == "popularity"
    row = next(row for row in found.document["rows"] if row["name"] == "ranker")
    assert "recommends to users of the training data only" in row["note"]
    assert "ranker" in "\n".join(table_lines(found.document))


def test_a_fit_or_blend_without_memory_leaves_the_others(split, monkeypatch):
    """torch and the C++ runtime raise RuntimeError there, not MemoryError."""

    def without(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    whole, why = Looks._fitted, "there is too little memory (DefaultCPUAllocator: can't allocate memory)"
    monkeypatch.setattr(
        Looks, "_fitted", lambda self, member, s: (without if member.name == "ease" else whole)(self, member, s)
    )
    monkeypatch.setattr(first_part.FirstPart, "behind", without)
    found = find(split, time_limit=600, members=[*COUNTING, Member("ease", "ease")])
    notes = {row["name"]: row["note"] for row in found.document["rows"]}
    assert notes.pop("ease") == why
    assert [note for name, note in notes.items() if "+" in name] == [why] * sum("+" in name for name in notes)
    assert any("+" in name for name in notes)


def test_a_method_with_too_little_time_reports_the_required_time(split, tmp_path, monkeypatch):
    whole = Looks._fitted

    def short(self, member, seconds):
        if member.name == "sasrec":
            raise TimeLimitError("time_limit=14.5 s is below 67 s; raise it", 700.0)
        return whole(self, member, seconds)

    monkeypatch.setattr(Looks, "_fitted", short)
    found, _ = searched(split, tmp_path / "parts", [COUNTING[0], Member("sasrec", "sasrec", TINY)], 600)
    row = next(row for row in found.document["rows"] if row["name"] == "sasrec")
    assert re.fullmatch(r"its look had \d+ s and needs 700; a longer limit has more", row["note"])
    assert row["looks"] == 1


def test_a_model_whose_initialisation_exceeded_its_look_is_evaluated(split, tmp_path, monkeypatch):
    """It gets the remaining time, because its initialisation exists already."""
    from beamwood.fitting.tree.task import TreeTask

    clock, whole = Ticks(), TreeTask.prepare

    def slow(self, rng, budget):
        clock.now += 250
        whole(self, rng, budget)

    monkeypatch.setattr(TreeTask, "prepare", slow)
    members = [
        COUNTING[0],
        Member("dtr", "dtr", {"model.light_width": 0, "loop.max_steps": 3}),
        Member("sasrec", "sasrec", TINY | {"loop.max_steps": 3}),
    ]
    parts = SearchFolder(tmp_path / "parts", {})
    with parts.locked(resume=False, overwrite=False):
        search_ = Search(split, Wanted(600, "removed/f@20"), parts, members=members, budget=Budget(600, clock=clock))
        search_.looks.run()
    looks = {each.name: each for each in parts.trials}
    assert looks["dtr"].value is not None
    assert looks["dtr"].seconds > 250 > 600 * 0.8 / 4
    assert not looks["dtr"].needs


def test_short_lists_are_used_if_there_are_few_items():
    few = make_market(
        MarketConfig(num_users=80, num_items=9, num_groups=3, categories_per_group=1, min_events=3, max_events=5),
        seed=0,
    )
    document = find(disjoint_users(Dataset.from_log(read_log(few.log))), time_limit=600, members=COUNTING).document
    assert document["metric"] == "f@4"
    assert set(document["test"]["removed"]["metrics"]) >= {"f@4"}


def test_blends_above_the_memory_budget_are_not_tried(split):
    mb = find(split, time_limit=600, members=COUNTING).document["rows"]
    held = {row["name"]: row["mb"] for row in mb}
    limit = (held["cooccurrence"] + held["transitions"]) / 2
    larger = max(("cooccurrence", "transitions"), key=held.__getitem__)
    rows = find(split, time_limit=600, members=COUNTING, budget_mb=limit).document["rows"]
    assert larger in {row["name"] for row in rows}
    assert not any(larger in row["name"].split("+") for row in rows if "+" in row["name"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0}, "time_limit=0 is not a number above 0"),
        ({"budget_ms": -1}, "budget_ms=-1 is not a number above 0"),
        ({"monitor": "removed/f20"}, "did you mean 'removed/f@20'"),
        ({"seed": -1}, "seed=-1 is not a whole number"),
        # numpy numbers are accepted, as for a single method.
        ({"seed": np.int64(3), "budget_ms": np.int64(0)}, r"budget_ms=\S+ is not a number above 0"),
        ({"seed": np.int64(3), "budget_ms": np.int64(5), "monitor": "f"}, "monitor='f' is not measured"),
        ({"resume": True}, "needs the folder"),
        ({"limit": 3}, "option 'limit' is unknown; did you mean 'time_limit'"),
        ({"preset": "paper"}, "config and preset belong to a method"),
    ],
)
def test_wrong_options_are_refused(split, options, message):
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, **options)


def test_limits_may_be_numbers_of_numpy(split):
    found = find(split, time_limit=np.float32(600), members=COUNTING[:1], budget_mb=np.float32(500), seed=np.int8(1))
    json.dumps(found.document)
    assert found.retriever.metadata["portfolio"]["time_limit"] == 600


def test_methods_without_time_are_named(split, tmp_path):
    members = [COUNTING[0], Member("sasrec", "sasrec", TINY)]
    found, _ = searched(split, tmp_path / "parts", members, 5)
    assert found.document["not_tried"] == ["sasrec"]
    assert "not tried in this time: sasrec; a longer --time-limit tries more" in table_lines(found.document)


def test_members_depend_on_the_log(split):
    outline = Outline.of(split)
    assert outline.repeats > 0
    assert [member.name for member in members_of(outline, trains=False)][-1] == "ease"
    long = [member.method for member in members_of(outline, trains=True)]
    short = [member.method for member in members_of(replace(outline, length=2.0), trains=True)]
    assert long[4:8] == ["dtr", "two_tower", "sasrec", "gru4rec"]
    assert short[4:8] == ["dtr", "two_tower", "gru4rec", "sasrec"]
    for member in members_of(outline, trains=True):
        member.load().configured(dict(member.settings))
    assert "60 items" in outline.words()


def test_counting_methods_are_searched_without_torch(tmp_path):
    """Importing torch takes seconds, and it may not be installed."""
    code = (
        "import sys, beamwood, polars as pl\n"
        "rows = [(u, (u * 7 + t * t) % 23, t) for u in range(40) for t in range(8)]\n"
        "frame = pl.DataFrame(rows, schema=['user_id', 'item_id', 'timestamp'], orient='row')\n"
        "split = beamwood.splits.disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(frame)))\n"
        "from beamwood.recipes.portfolio import search\n"
        "search.is_installed = lambda extra: False\n"
        "found = beamwood.fit(split, time_limit=300)\n"
        "assert found.metadata['portfolio']['chosen']\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
