"""Ids without a sign, from 2^63 to 2^64 - 1, as hashes of 64 bits: a log may have them, so its service takes them."""

import polars as pl
import pytest

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.serve.answer.ids import typed_id
from beamwood.serve.items.learned import CatalogueItem, Learned
from beamwood.serve.items.table import export_new_items
from beamwood.serve.store.event import Event, Session
from beamwood.serve.store.export import export_events
from beamwood.serve.store.memory import MemoryStore
from cli_cases import beamwood
from served import post, saved, send, serving

LARGEST = 2**64 - 1
USER, ITEM = LARGEST - 3, LARGEST - 5


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory):
    """A model of a log whose ids are all above 2^63."""
    folder = tmp_path_factory.mktemp("unsigned")
    rows = [(LARGEST - user, LARGEST - (user + step) % 15, step) for user in range(30) for step in range(1 + user % 5)]
    types = {"user": pl.UInt64, "item": pl.UInt64, "time": pl.Int64}
    pl.DataFrame(rows, types, orient="row").write_parquet(folder / "log.parquet")
    assert beamwood("fit", folder / "log.parquet", "--method", "cooccurrence", "--out", folder / "model") == 0
    return folder / "model"


def test_its_users_and_items_are_known(unsigned, tmp_path):
    with serving(unsigned, store=f"sqlite:{tmp_path / 'events.db'}") as client:
        found = post(client, "/v1/recommend", {"user": USER, "k": 15})
        assert (found["history_used"], found["items"][0]["item"] > 2**63) == (4, True)
        assert send(client, {"user": USER, "item": LARGEST - 14}, {"user": 5, "item": ITEM})["unknown_items"] == []
        later = post(client, "/v1/recommend", {"user": USER, "k": 15})
        assert later["history_used"] == 5
        assert LARGEST - 14 not in [each["item"] for each in later["items"]]
        new = {"items": [{"item": LARGEST - 20, "similar": [ITEM]}]}
        assert client.put("/v1/items", json=new).status_code == 200
        assert client.patch(f"/v1/items/{LARGEST - 20}", json={"available": False}).status_code == 200
        assert client.get(f"/v1/users/{USER}/history").json()["events"][0]["item"] == LARGEST - 14
        assert 'data-ids="unsigned"' in client.get("/").text
        assert client.delete(f"/v1/users/{USER}").json()["model"] == 4
        assert post(client, "/v1/recommend", {"user": USER, "k": 3})["history_used"] == 0
    recs = tmp_path / "recs.parquet"
    assert (
        beamwood("recommend", unsigned, "--all-users", "--store", f"sqlite:{tmp_path / 'events.db'}", "--out", recs)
        == 0
    )
    assert pl.read_parquet(recs).schema["query"] == pl.UInt64


def test_an_address_has_them_where_the_model_does_or_knows_no_users(unsigned):
    with serving(unsigned) as client:
        users = client.service.models.current.names.users
        for known in (users, None):
            assert typed_id(str(LARGEST), known) == LARGEST
            assert typed_id(str(LARGEST + 1), known) == str(LARGEST + 1)
        assert typed_id(str(LARGEST), Vocabulary(pl.Series([1, 2]))) == str(LARGEST)


def test_such_users_of_the_store_alone_are_seen_and_erased(tmp_path):
    """The model's own users are below 2^63."""
    with serving(saved(tmp_path / "model")[0]) as client:
        send(client, {"user": LARGEST, "item": 1}, {"user": str(LARGEST), "item": 2})
        events = client.get(f"/v1/users/{LARGEST}/history").json()["events"]
        assert [(each["item"], each.get("user")) for each in events] == [(1, LARGEST), (2, None)]
        assert client.delete(f"/v1/users/{LARGEST}").json()["events"] == 2
        assert client.get(f"/v1/users/{LARGEST}/history").json()["events"] == []


@pytest.mark.parametrize(
    ("users", "dtype"),
    [([5, -5], pl.Int64), ([5, LARGEST], pl.UInt64), ([-5, LARGEST], pl.String), (["a", LARGEST], pl.String)],
)
def test_an_export_has_a_type_that_holds_all_ids(tmp_path, users, dtype):
    store = MemoryStore()
    store.append([Event(user, 7, float(place)) for place, user in enumerate([*users, Session("s")])])
    assert export_events(store, tmp_path / "log.parquet") == {"events": 2, "left_out": 1}
    frame = pl.read_parquet(tmp_path / "log.parquet")
    assert (frame.schema["user"], frame.schema["item"]) == (dtype, pl.Int64)
    assert [str(user) for user in frame["user"]] == [str(user) for user in users]


def test_exported_new_items_have_the_type_of_exported_events(tmp_path):
    export_new_items(Learned([CatalogueItem(LARGEST, fields={"code": -1}), CatalogueItem(7)]), tmp_path / "new.parquet")
    frame = pl.read_parquet(tmp_path / "new.parquet")
    assert (frame.schema["item"], frame["item"].to_list()) == (pl.UInt64, [LARGEST, 7])
