"""`recommend --store`: every list equals the answer of the server on that store."""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import polars as pl
import pytest

from beamwood import load
from beamwood.retrieval.batch import group_answers
from beamwood.retrieval.batch import job as jobs
from beamwood.serve.settings import Limits
from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store
from cli_cases import beamwood, interrupt_second_block
from served import post, serving, wait_until

K = 5
NEW_USERS = ("guest", 9001)


@pytest.fixture
def store(fitted, tmp_path):
    """A store with events of known and new users, a new, a hidden and an erased item, and two erased users."""
    address = f"sqlite:{tmp_path / 'events.db'}"
    with serving(fitted, store=address) as client:
        for user, items in ((1, [5, 9]), ("guest", [7]), (9001, [3, "unheard of"]), (3, [8]), (4, [2])):
            post(client, "/v1/events", {"events": [{"user": user, "item": item} for item in items]})
        post(client, "/v1/events", {"events": [{"session": "visitor", "item": 4}]})
        for user in (3, 4, 6):
            assert client.delete(f"/v1/users/{user}").status_code == 200
        post(client, "/v1/events", {"events": [{"user": 4, "item": 12}]})
        new = {"items": [{"item": 777, "similar": [5, 9], "category": "group 0, category 1"}]}
        assert client.put("/v1/items", json=new).status_code == 200
        assert client.put("/v1/items/availability", json={"clear": [8]}).status_code == 200
        assert client.delete("/v1/items/10").status_code == 200
    return address


@contextmanager
def server(fitted, store):
    """A client of a server that has read the items of the store."""
    with serving(fitted, store=store) as client:
        wait_until(lambda: client.service.models.current.learned)
        yield client


def answered(fitted, store, users, **body):
    """The server's items and scores of each user."""
    with server(fitted, store) as client:
        found = {user: post(client, "/v1/recommend", {"user": user, "k": K} | body)["items"] for user in users}
    return {user: [(item["item"], item["score"]) for item in items] for user, items in found.items()}


def lists(path):
    """The items and scores in a file by user, in the file's order."""
    found = {}
    for row in pl.read_parquet(path).iter_rows(named=True):
        found.setdefault(row["query"], []).append((row["item"], row["score"]))
    return found


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ((), {}),
        (("--include-seen",), {"exclude_seen": False}),
        (("--category", "group 0, category 1"), {"filter": {"category": ["group 0, category 1"]}}),
        (("--where", "category in ('group 0, category 2')"), {"filter": {"category": ["group 0, category 2"]}}),
    ],
)
def test_all_users_are_answered_as_by_the_server(fitted, store, tmp_path, options, body, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "GROUP_ROWS", 50)
    monkeypatch.setattr(group_answers, "_ROWS", 7)
    out = tmp_path / "recs.parquet"
    ask = ("recommend", fitted, "--all-users", "-k", K, "--store", store, "--threads", 2, "--out", out, *options)
    assert beamwood(*ask) == 0, capsys.readouterr().err
    found = lists(out)
    # 3 and 6 were erased, and 4 has come back.
    users = [user for user in range(120) if user not in (3, 4, 6)] + [4, *NEW_USERS]
    expected = answered(fitted, store, users, **body)
    assert found == {str(user): given for user, given in expected.items() if given}
    shown = {item for given in found.values() for item, _ in given}
    assert not shown & {8, 10}
    assert options or 777 in shown


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_new_items_is_that_of_the_server(fitted, store, tmp_path, share, capsys):
    out, users = tmp_path / "recs.parquet", (1, 2, 5)
    listed = tmp_path / "users.txt"
    listed.write_text("\n".join(map(str, users)))
    ask = ("recommend", fitted, "--users", listed, "-k", 40, "--out", out)
    assert beamwood(*ask, "--store", store, "--new-item-share", share) == 0, capsys.readouterr().err
    with serving(fitted, store=store, limits=Limits(new_item_share=share)) as client:
        wait_until(lambda: client.service.models.current.learned)
        expected = {user: post(client, "/v1/recommend", {"user": user, "k": 40})["items"] for user in users}
    assert lists(out) == {user: [(item["item"], item["score"]) for item in items] for user, items in expected.items()}
    assert {777 in {item for item, _ in given} for given in lists(out).values()} == {share == 1}
    assert beamwood(*ask, "--new-item-share", share, "--overwrite") == 2
    assert "--new-item-share is about the new items of a store; give --store" in capsys.readouterr().err


def test_users_and_histories_one_by_one(fitted, store, tmp_path, capsys):
    ask = ("recommend", fitted, "-k", K, "--store", store, "--json")
    assert beamwood(*ask, "--user", 1, "--user", "guest") == 0
    found = {
        each["query"]: list(zip(each["items"], each["scores"], strict=True))
        for each in json.loads(capsys.readouterr().out)
    }
    expected = answered(fitted, store, (1, "guest"))
    assert found == {1: expected[1], "guest": expected["guest"]}
    assert beamwood(*ask, "--history", "5,777") == 0
    with server(fitted, store) as client:
        items = post(client, "/v1/recommend", {"history": [5, 777], "k": K})["items"]
    assert json.loads(capsys.readouterr().out)[0]["items"] == [each["item"] for each in items]
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("8\n11\n777\n")
    assert beamwood(*ask, "--user", 2, "--allowed-items", allowed, "--include-seen") == 0
    assert set(json.loads(capsys.readouterr().out)[0]["items"]) == {11, 777}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--user", "3"), "1 of 1 users have no history in the model or the store, such as 3; leave them out"),
        (("--user", "1", "--user", "nobody"), "1 of 2 users have no history in the model or the store, such as 'no"),
        (("--user", "nobody"), "leave them out or pass --on-unknown ignore"),
        (("--history", "10"), "such as 10; leave them out or pass --on-unknown ignore"),
        (("--user", "1", "-k", "1000"), "is outside 1.."),
        (("--user", "1", "--effort", "0.5"), "--effort 0.5 is for trees, and this model has no tree; leave it out"),
        (("--history", "5", "--without-rejected"), "fit it with --negative-events"),
        (("--user", "1", "--where", "prize < 3"), "no item column 'prize'"),
        (("--user", "1", "--without-rejected"), "--negative-events"),
    ],
)
def test_errors_name_the_fix(fitted, store, arguments, message, capsys):
    assert beamwood("recommend", fitted, "--store", store, *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("store", "message"),
    [("memory", "read by its server alone"), ("sqlite:nothing.db", "does not exist"), ("mysql://x", "is unknown")],
)
def test_a_store_that_cannot_be_read_is_refused(fitted, store, message, capsys):
    assert beamwood("recommend", fitted, "--store", store, "--user", 1) == 2
    assert message in capsys.readouterr().err


def test_unknown_users_on_request(fitted, store, capsys):
    assert beamwood("recommend", fitted, "--store", store, "--user", "nobody", "--on-unknown", "ignore", "--json") == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)[0]["items"]) == 10
    assert "unknown and ignored: 1 of 1 user id, such as 'nobody'" in told.err


def test_an_empty_list_has_a_reason(fitted, store, tmp_path, capsys):
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("5\n9\n")
    ask = ("recommend", fitted, "--store", store, "--allowed-items", allowed)
    assert beamwood(*ask, "--user", 1, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["why"] == "every one of the 2 items passing the filter was seen; --include-seen has them"
    allowed.write_text("8\n")
    assert beamwood(*ask, "--history", "5") == 0
    assert "5: no items, as no item passes the filter" in capsys.readouterr().err


def test_numbers_as_text_ids_of_a_folder_without_users(fitted, tmp_path, capsys):
    retriever = load(fitted)
    replace(retriever, users=None, histories=None).save(tmp_path / "bare")
    store = f"sqlite:{tmp_path / 'events.db'}"
    opened = open_store(store)
    opened.append([Event("42", 5, 1e9), Event(43, 5, 1e9)]).result()
    opened.close()
    ask = ("recommend", tmp_path / "bare", "--store", store, "--json")
    assert beamwood(*ask, "--user", "42", "--user", "43") == 0, capsys.readouterr().err
    capsys.readouterr()
    assert beamwood(*ask, "--user", "44") == 2


def test_a_user_as_number_and_as_text_is_reported(fitted, store, tmp_path, capsys):
    opened = open_store(store)
    opened.append([Event("9001", 5, 1e9)]).result()
    opened.close()
    assert beamwood("recommend", fitted, "--all-users", "--store", store, "--out", tmp_path / "recs.csv") == 0
    said = "1 user is stored both as a number and as text, such as 9001; each has two lists"
    assert said in capsys.readouterr().err


def test_an_interrupted_job_goes_on_while_users_arrive(fitted, store, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "GROUP_ROWS", 50)
    out = tmp_path / "recs.parquet"
    ask = partial(beamwood, "recommend", fitted, "--all-users", "-k", K, "--store", store, "--out", out)
    calls = interrupt_second_block(monkeypatch)
    assert ask() == 130
    opened = open_store(store)
    opened.append([Event("late", 5, 1e9)]).result()
    opened.erase("guest", 2e9)
    opened.erase(100, 2e9)
    opened.close()
    assert ask("--resume") == 0
    # The first group was not computed again, "late" waits for the next job, and erased users have no list.
    assert [calls[at] for at in (0, 1, 2)] == ["0", calls[1], calls[1]]
    found = lists(out)
    assert not {"late", "guest", "100"} & set(found)
    assert {"99", "9001"} <= set(found)
    assert ask("--overwrite") == 0
    assert "late" in lists(out)
