"""The search for the best method: trainings that continue, and searches that are interrupted and resumed."""

import json

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.errors import InputError
from beamwood.recipes.portfolio import choice
from beamwood.recipes.portfolio.find import find
from beamwood.recipes.portfolio.members import Member
from beamwood.recipes.portfolio.search_folder import Trial
from beamwood.training.budget import Budget
from clocks import Ticks
from portfolios import COUNTING, TINY, held, searched, small_split


@pytest.fixture(scope="module")
def split():
    return small_split()


def test_an_interrupted_search_returns_the_best_so_far_and_resumes(split, tmp_path):
    said, bests = [], []

    def interrupt(retriever):
        bests.append(retriever.metadata["portfolio"]["chosen"])
        if len(bests) == 2:
            raise KeyboardInterrupt

    options = {"time_limit": 600, "members": COUNTING, "folder": tmp_path / "kept"}
    first = find(split, better=interrupt, **options)
    assert first.interrupted
    assert first.document["chosen"] == bests[-1] == "cooccurrence"
    assert "test" not in first.document
    with pytest.raises(InputError, match="already holds a search; pass --resume"):
        find(split, **options)
    again = find(split, resume=True, say=said.append, **options)
    assert not again.interrupted
    assert not any(line.startswith(("popularity: ", "cooccurrence: ")) for line in said)
    rows = {row["name"]: row for row in again.document["rows"]}
    assert rows["popularity"]["looks"] == rows["transitions"]["looks"] == 1
    whole = find(split, time_limit=600, members=COUNTING).document
    assert again.document["chosen"] == whole["chosen"]
    assert again.document["test"] == whole["test"]


def test_a_search_leaves_the_files_of_others_in_its_folder(split, tmp_path):
    kept = tmp_path / "kept"
    options = {"time_limit": 600, "members": COUNTING[:2], "folder": kept}
    find(split, **options)
    (kept / "notes").mkdir()
    for name in ("notes/mine", "mine"):
        (kept / name).write_text("mine")
    for how in ({"resume": True}, {"overwrite": True}):
        find(split, **options, **how)
        assert (kept / "notes" / "mine").read_text() == (kept / "mine").read_text() == "mine"
    assert sorted(each.name for each in kept.iterdir()) == [
        "cooccurrence",
        "mine",
        "notes",
        "popularity",
        "search.json",
    ]


def test_a_search_resumes_only_with_the_same_arguments(split, tmp_path):
    options = {"time_limit": 600, "members": COUNTING[:1], "folder": tmp_path / "kept"}
    find(split, **options)
    with pytest.raises(InputError, match="searched with another seed"):
        find(split, resume=True, seed=5, **options)
    with pytest.raises(InputError, match="searched with another split"):
        find(disjoint_users(split.dataset, seed=9), resume=True, **options)
    assert find(split, overwrite=True, **options).document["chosen"] == "popularity"
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").write_text("mine")
    with pytest.raises(InputError, match="does not hold a search of beamwood"):
        find(split, **options | {"folder": tmp_path / "foreign", "overwrite": True})
    with pytest.raises(InputError, match="nothing to resume"):
        find(split, **options | {"folder": tmp_path / "none", "resume": True})
    state = tmp_path / "kept" / "search.json"
    whole = json.loads(state.read_text())
    trial = {"name": "popularity", "parts": ["popularity"]}
    for damage, message in (
        ({"values": ["half"]}, "is damaged"),
        ({"made_of": None}, "is damaged"),
        ({"made_of": {}}, r"searched with another log \(None"),
        ({"measured": [trial | {"seconds": "long"}]}, r"is damaged \(measured\.0\.seconds='long'"),
        ({"measured": [trial | {"more": 1}]}, "is damaged"),
    ):
        state.write_text(json.dumps(whole | damage))
        with pytest.raises(InputError, match=message):
            find(split, resume=True, **options)


def test_a_search_resumes_only_with_the_same_item_columns(tmp_path):
    log = pl.DataFrame({"user": [n % 12 for n in range(96)], "item": [n // 12 for n in range(96)]})
    table = pl.DataFrame({"item": range(8), "brand": list("abababab"), "price": range(8)})

    def split_with(table=None, **kept):
        return disjoint_users(Dataset.from_log(read_log(log), table, **kept))

    options = {"time_limit": 600, "members": COUNTING[:1], "folder": tmp_path / "kept"}
    find(split_with(table, keep_columns=["price"]), **options)
    for other in (
        split_with(),
        split_with(table, keep_columns=["price", "brand"]),
        split_with(table.with_columns(pl.col("price") + 1), keep_columns=["price"]),
    ):
        with pytest.raises(InputError, match="searched with another item table or kept columns"):
            find(other, resume=True, **options)
    assert find(split_with(table, keep_columns=["price"]), resume=True, **options).document["chosen"] == "popularity"


def test_trainings_continue_in_each_round(split, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "SHORTEST", 1.0)
    members = [COUNTING[0], *(Member(f"s{seed}", "sasrec", TINY | {"model.dropout": seed / 10}) for seed in range(2))]
    found, parts = searched(split, tmp_path / "parts", members, 40)
    trained = {name: [each for each in parts.trials if each.name == name] for name in ("s0", "s1")}
    looks = sorted(len(each) for each in trained.values())
    assert looks[0] >= 1
    assert looks[1] >= 2
    for each in trained.values():
        seconds = [look.trained for look in each]
        # A continued look includes the time of the previous one.
        assert sorted(set(seconds)) == seconds
    best = max(look.value for each in trained.values() for look in each)
    rows = {row["name"]: row for row in found.document["rows"]}
    assert max(rows[name]["value"] for name in trained) == pytest.approx(best)
    assert found.document["seconds"] <= 40


def test_ctrl_c_during_a_training_keeps_its_run(split, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "SHORTEST", 1.0)
    members = [COUNTING[0], Member("sasrec", "sasrec", TINY)]
    first, parts = searched(split, tmp_path / "kept", members, 30, clock=Ticks(rings=6.0))
    assert first.interrupted
    assert first.document["chosen"] == "popularity"
    assert [each.name for each in parts.trials] == ["popularity"]
    before = len((tmp_path / "kept" / "sasrec.run" / "metrics.jsonl").read_text().splitlines())
    assert before > 0
    again, parts = searched(split, tmp_path / "kept", members, 30, resume=True)
    assert not again.interrupted
    # The interrupted part of the training counts too.
    looks = [each for each in parts.trials if each.name == "sasrec"]
    assert looks[0].trained > looks[0].seconds
    assert again.document["seconds"] > 6


def test_a_part_that_trains_more_leaves_the_blend_that_was_best(split, tmp_path, monkeypatch):
    """Until blends are tried again, the best one is that of the earlier model, also in a resumed search."""
    monkeypatch.setattr(choice, "_CERTAINTY", 0.0)
    members = [*COUNTING, Member("ease", "ease")]
    parts, begun = held(split, tmp_path / "kept", members, 600)
    with parts.locked(resume=False, overwrite=False):
        one = begun()
        one.run()
        best = one.trials.best
        assert len(best.parts) > 1
        name = best.parts[0]
        assert best.parts in parts.tried()
        better, values = parts.model(*parts.kept("popularity").folders), parts.values[name] + 1e-6
        one.trials.add(Trial(name, (name,), value=float(values.mean())), one.budget.clock(), values, better)
        assert one.trials.best.name == best.name
        assert best.parts not in parts.tried()
    parts, begun = held(split, tmp_path / "kept", members, 600)
    with parts.locked(resume=True, overwrite=False):
        one = begun()
        assert (one.trials.best.name, one.trials.best.value) == (best.name, best.value)
        again = one.trials.fitted(best.parts)
        assert np.array_equal(one.trials.validation.values(again.searcher), best.values)
        one.blends.run()
        # What was tried again is the better of both.
        assert best.parts in parts.tried()
        assert one.trials.best.value >= best.value
        stored = {path.name for path in (tmp_path / "kept").iterdir() if path.is_dir()}
        assert {folder for each in parts.trials for folder in each.folders} >= stored
        assert all((tmp_path / "kept" / each).is_dir() for each in one.trials.kept(best.parts).folders)


def test_a_longer_training_over_a_budget_leaves_the_model_within_it(split, tmp_path):
    parts, begun = held(split, tmp_path / "kept", COUNTING, 600, budget_mb=1.0)
    with parts.locked(resume=False, overwrite=False):
        one = begun()
        one.looks.run()
        best = one.trials.best
        name = best.name
        values, fitted = parts.values[name] + 0.1, parts.model(*parts.kept(name).folders)
        longer = Trial(name, (name,), value=float(values.mean()))
        one.trials.measure_cost = lambda trial, searcher: setattr(trial, "megabytes", 2.0)
        one.trials.add_better(longer, one.budget.clock(), values, fitted.searcher, fitted)
        assert (one.trials.best.name, one.trials.best.value) == (name, best.value)
        assert longer.value == best.value
        assert longer.megabytes < 1.0


def test_a_search_without_time_says_that_it_fits_one_method_beyond_its_limit(split):
    clock, said = Ticks(), []
    budget = Budget(1, clock=clock)
    clock.now += 5
    found = find(split, time_limit=budget, members=COUNTING, say=said.append)
    assert found.document["chosen"] == "popularity"
    assert said[0].startswith("the whole search takes 1 second at most")
    assert "the limit leaves no time, so popularity alone is fitted, beyond it" in said
