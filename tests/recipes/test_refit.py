"""`refit`: the methods and settings of a fitted model, on the whole log."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data.whole import whole
from beamwood.errors import InputError
from beamwood.recipes.refit import refit_parts
from beamwood.retrieval.forget import without_users
from portfolios import COUNTING, TINY, searched, small_split


@pytest.fixture(scope="module")
def split():
    return small_split()


def same_answers(one, other, split):
    rows = [split.test.histories[row] for row in range(8)]
    found, expected = (each.recommend([each.items.ids.gather(row) for row in rows], k=10) for each in (one, other))
    return np.array_equal(found.scores, expected.scores) and found.item_ids == expected.item_ids


def test_it_is_a_fit_with_the_same_settings_on_the_whole_log(split):
    fitted = beamwood.fit(split, "ease", {"model.regularisation": 70.0}, seed=3)
    again = beamwood.refit(fitted, split)
    expected = beamwood.fit(whole(split), "ease", {"model.regularisation": 70.0}, seed=3)
    assert same_answers(again, expected, split)
    assert not same_answers(again, fitted, split)
    assert again.metadata["config"] == fitted.metadata["config"]
    assert again.metadata["seed"] == 3
    assert again.metadata["refit"]["validation_users"] == len(split.test)
    assert same_answers(beamwood.refit(again, split), again, split)
    with pytest.raises(InputError, match="was fitted on another split"):
        beamwood.evaluate(again, split)


def test_a_sum_is_put_together_again(split, tmp_path):
    fitted = beamwood.fit(split, "sasrec+cooccurrence", {**TINY, "loop.max_steps": 4}, progress=False)
    first, second = refit_parts(fitted)
    assert (first.method.name, first.trains, first.settings["loop.max_steps"]) == ("sasrec", True, 4)
    assert (second.method.name, second.trains) == ("cooccurrence", False)
    fitted.save(tmp_path / "sum")
    again = beamwood.refit(beamwood.load(tmp_path / "sum"), split, progress=False)
    assert again.metadata["method"] == "sasrec+cooccurrence"
    assert again.metadata["training"]["steps"] == 4
    assert "cooccurrence/retriever_weight" in again.metadata["training"]


def test_what_a_search_found_keeps_its_metric_and_its_limit(split, tmp_path):
    found, _ = searched(split, tmp_path / "search", COUNTING, 40.0)
    fitted = found.retriever
    names = fitted.metadata["portfolio"]["chosen"].split("+")
    assert [part.method.name for part in refit_parts(fitted)] == names
    again = beamwood.refit(fitted, split, time_limit=20.0)
    assert again.metadata["refit"]["monitor"] == "removed/f@20"
    assert again.metadata["refit"]["time_limit"] == 40.0


@pytest.mark.parametrize("method", ["sasrec", "sasrec+cooccurrence", "ease"])
def test_the_time_limit_of_a_fit_applies_again(split, tmp_path, method):
    """Without it a short fit would be refitted for all of its steps."""
    config = {**TINY, "loop.max_steps": 4} if method != "ease" else None
    fitted = beamwood.fit(split, method, config, time_limit=30.0)
    fitted.save(tmp_path / "fitted")
    again = beamwood.refit(beamwood.load(tmp_path / "fitted"), split)
    assert again.metadata["refit"]["time_limit"] == fitted.metadata["time_limit"] == 30.0
    once_more = beamwood.refit(again, split, time_limit=20.0)
    assert once_more.metadata["refit"]["time_limit"] == 30.0
    assert beamwood.refit(beamwood.fit(split, method, config), split).metadata["refit"]["time_limit"] is None


def test_without_histories_it_stays_so(split):
    fitted = without_users(beamwood.fit(split, "popularity"))
    again = beamwood.refit(fitted, split)
    assert again.users is None
    assert again.histories is None


def test_folders_that_it_starts_from_are_refitted_first(split, tmp_path):
    beamwood.fit(split, "cooccurrence").save(tmp_path / "first")
    settings = {"start.retriever": str(tmp_path / "first"), "start.ranker": "ease"}
    fitted = beamwood.fit(split, "two_stage", settings)
    with pytest.raises(InputError, match="refit that first, and give its new folder with --retriever"):
        beamwood.refit(fitted, split)
    with pytest.raises(InputError, match="--from is not for two_stage; it starts from --retriever"):
        beamwood.refit(fitted, split, start={"--from": str(tmp_path / "first")})
    with pytest.raises(
        InputError, match="first was not refitted on the whole log, as this model is; refit it, and put"
    ):
        beamwood.refit(fitted, split, start={"--retriever": str(tmp_path / "first")})
    beamwood.refit(beamwood.load(tmp_path / "first"), split).save(tmp_path / "again")
    again = beamwood.refit(fitted, split, start={"--retriever": str(tmp_path / "again")})
    assert again.metadata["config"]["start"]["retriever"] == str(tmp_path / "again")


def test_a_log_whose_ids_have_another_type_is_refused(split):
    """As a single 'guest' among the numbers of a store's events makes them: no user would be found by number."""
    log = split.dataset.histories
    taken = split.dataset.items.ids.gather(log.items)
    users = split.dataset.users.ids.gather(log.rows).cast(pl.String)
    later = pl.DataFrame({"user": users, "item": taken}).vstack(pl.DataFrame({"user": ["guest"], "item": taken[:1]}))
    named = beamwood.splits.disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(later)))
    fitted = beamwood.fit(split, "popularity")
    said = r"the user ids of the log are text \(1 is no whole number, such as 'guest'\), those of the model are numbers"
    with pytest.raises(InputError, match=said):
        beamwood.refit(fitted, named)
    with pytest.raises(InputError, match="the user ids of the log are numbers, those of the model are text"):
        beamwood.refit(beamwood.fit(named, "popularity"), split)


def test_a_later_log_without_the_times_of_the_first_is_refused():
    """The order of its rows would silently replace that of its times."""
    frame = pl.DataFrame(
        [(user, user % 3 + step) for user in range(30) for step in range(4)], ["user", "item"], orient="row"
    )
    timed = frame.with_columns(time=1_719_820_800 - pl.int_range(pl.len()))
    first, later, ordered = (
        beamwood.splits.leave_one_out(beamwood.Dataset.from_log(beamwood.read_log(each)))
        for each in (timed, frame, frame.with_columns(time=-pl.int_range(pl.len())))
    )
    fitted = beamwood.fit(first, "popularity")
    said = "the frame has no column of times, which the log of the fit had, so the order of its rows would count"
    with pytest.raises(InputError, match=f"{said}; give it that column, under the same name, or fit a new model"):
        beamwood.refit(fitted, later)
    assert beamwood.refit(fitted, ordered).metadata["method"] == "popularity"
    assert beamwood.refit(beamwood.fit(later, "popularity"), first).metadata["method"] == "popularity"


def test_a_log_read_without_the_kinds_of_events_is_refused():
    """Skipped items would silently become taken ones."""
    rows = [(n // 4, (n // 4) % 3 + n % 4, "skip" if n % 8 == 1 else "buy") for n in range(120)]
    frame = pl.DataFrame(rows, ["user", "item", "event"], orient="row")

    def split_with(**kinds):
        return beamwood.splits.leave_one_out(beamwood.Dataset.from_log(beamwood.read_log(frame, **kinds)))

    kinds = {"events": {"buy": 1.0}, "negative_events": ["skip"]}
    fitted = beamwood.fit(split_with(**kinds), "popularity")
    with pytest.raises(InputError, match=r"so all rows would count alike; give read_log\(events=..., negative_events="):
        beamwood.refit(fitted, split_with())
    again = beamwood.refit(fitted, split_with(**kinds))
    assert again.metadata["data"]["events"] == fitted.metadata["data"]["events"]


def test_columns_that_filters_ask_for_are_not_lost():
    """A service that loads the refitted model would refuse all requests with such filters."""
    log = beamwood.read_log({"user": [n // 4 for n in range(120)], "item": [(n // 4) % 3 + n % 4 for n in range(120)]})
    table = pl.DataFrame({"item": range(6), "category": list("ababab"), "price": [1.0, 2.5, None, 4.0, 5.0, 6.0]})

    def split_with(items, *kept):
        return beamwood.splits.leave_one_out(beamwood.Dataset.from_log(log, items, keep_columns=kept))

    fitted = beamwood.fit(split_with(table, "price"), "popularity")
    dearer = split_with(table.with_columns(pl.col("price") + 1), "price")
    again = beamwood.refit(fitted, dearer)
    assert again.recommend([[]], k=6, where={"price": {"gt": 4}, "category": "b"}).item_ids == [[3, 5]]
    for without, said in (
        (
            split_with(None),
            r"item columns for filters \('price', 'category'\), and there is no item table; give one with",
        ),
        (split_with(table), "the item table keeps no column 'price', which filters of the model ask for; give a table"),
        (split_with(table.drop("category"), "price"), "the item table keeps no column 'category', which filters of"),
        (
            split_with(table.cast({"price": pl.String}), "price"),
            "the column 'price' of the item table is of kind text, in the model of kind number; write it as in the",
        ),
    ):
        with pytest.raises(InputError, match=said):
            beamwood.refit(fitted, without)


def test_ids_of_the_model_that_a_later_log_lacks_are_told(split):
    fitted, told = beamwood.fit(split, "popularity"), []
    users = split.dataset.users.ids
    rows = np.flatnonzero(split.dataset.histories.rows > 1)
    frame = {"user": users.gather(split.dataset.histories.rows[rows]), "item": split.dataset.histories.items[rows]}
    later = beamwood.splits.disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(pl.DataFrame(frame))))
    beamwood.refit(fitted, later, say=told.append)
    assert f"the log lacks 2 of the model's {len(users)} users, such as {users[0]!r}" in told
    told.clear()
    beamwood.refit(fitted, split, say=told.append)
    assert not any("lacks" in line for line in told)


def test_unknown_origins_are_refused(split):
    fitted = beamwood.fit(split, "popularity")
    with pytest.raises(InputError, match="does not record how it was fitted"):
        beamwood.refit(replace(fitted, metadata={}), split)
    for damaged in ({"config": 3}, {"config": {"model": 3}}, {"seed": "x"}, {"portfolio": {"time_limit": []}}):
        with pytest.raises(InputError, match=r"does not record how it was fitted \("):
            beamwood.refit(replace(fitted, metadata=fitted.metadata | damaged), split)
    file = {"method_file": {"path": "own.py", "sha256": ""}}
    with pytest.raises(InputError, match=r"is defined in own\.py; give method='own\.py'"):
        beamwood.refit(replace(fitted, metadata=fitted.metadata | file), split)
    with pytest.raises(InputError, match="time_limit="):
        beamwood.refit(fitted, split, time_limit=-1.0)


def test_a_folder_runs_no_file_that_it_names_as_its_method(split, tmp_path):
    fitted, ran, file = beamwood.fit(split, "popularity"), tmp_path / "ran", tmp_path / "own.py"
    file.write_text(f"open({str(ran)!r}, 'w').close()")
    stage = {"method": str(file), "config": {}}
    for named in (stage, {"plan": None, "stages": {"retriever": fitted.metadata, "ranker": stage}}):
        with pytest.raises(InputError, match=r"own\.py', no method of beamwood; give method="):
            beamwood.refit(replace(fitted, metadata=fitted.metadata | named), split)
    assert not ran.exists()


def test_a_model_trained_on_a_gpu_is_refitted_without_one(split, monkeypatch, capsys):
    fitted = beamwood.fit(split, "sasrec", {**TINY, "loop.max_steps": 4}, progress=False)
    loop = fitted.metadata["config"]["loop"] | {"device": "cuda"}
    fitted.metadata["config"] |= {"loop": loop}
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert beamwood.refit(fitted, split, progress=False).metadata["config"]["loop"]["device"] == "cpu"
    assert "here is no GPU, so it trains on the CPU" in capsys.readouterr().err
