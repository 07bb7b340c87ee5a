"""Export of a store's events as a log, and models without erased users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import beamwood
from beamwood.artefact import read_manifest
from beamwood.cli.main import app
from beamwood.data import Dataset, read_log
from beamwood.data.cells.times import parts_of_second
from beamwood.data.splits import disjoint_users
from beamwood.errors import InputError
from beamwood.retrieval.forget import without_erased, without_users
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.items.learned import CatalogueItem, Learned, erased_items, write_learned
from beamwood.serve.items.table import export_new_items
from beamwood.serve.store.event import Event, Session
from beamwood.serve.store.export import export_events
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore, Record
from served import saved

NOW = 1.7e9


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_an_export_is_the_next_log(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = open_store(f"sqlite:{path}")
    store.append([Event(7, "b", NOW + 0.000002), Event(7, "a", NOW, "buy", 4.5), Event(Session("s"), "c", NOW)]).result(
        10
    )
    store.append([Event(3, "a", NOW - 1)]).result(10)
    # While the server writes to it.
    out = tmp_path / "log.parquet"
    told = json.loads(run("events", "export", f"sqlite:{path}", "--out", str(out), "--json"))
    store.close()
    assert (told["events"], told["left_out"]) == (3, 1)
    log = read_log(out)
    assert log.frame.select("user", "item").rows() == [(3, "a"), (7, "a"), (7, "b")]
    assert np.diff(log.frame["time"]).tolist() == [1_000_000, 2]
    assert read_log(out, min_weight=4).frame["item"].to_list() == ["a"]
    assert pl.read_parquet(out)["type"].to_list() == [None, "buy", None]
    last = int(log.frame["time"].max())
    assert last / parts_of_second(last) == NOW + 0.000002


def test_events_of_erased_items_are_not_exported(store: HistoryStore, tmp_path: Path) -> None:
    store.append([Event(7, 1, NOW), Event(7, "1", NOW), Event(7, "new", NOW), Event(7, 2, NOW)]).result(10)
    assert erased_items(store) == frozenset()
    learned = Learned([CatalogueItem("new", gone=True), CatalogueItem("newer")], erased=[1])
    write_learned(store, None, learned, Learned())
    found = export_events(store, tmp_path / "log.parquet", erased=lambda: erased_items(store))
    assert found == {"events": 2, "left_out": 2}
    assert pl.read_parquet(tmp_path / "log.parquet")["item"].to_list() == ["1", "2"]


def test_what_is_erased_while_events_are_read_is_not_exported(
    store: HistoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([Event(4, 1, NOW)]).result(10)
    store.erase(4, NOW + 9)
    for user in (4, 7, "7", 9):
        store.append([Event(user, 1, NOW), Event(user, "1", NOW), Event(user, 2, NOW)]).result(10)
    read = store.records

    def records() -> Iterator[Record]:
        yield from list(read())
        # By a process whose clock is behind.
        store.erase(7, NOW)
        store.append([Event(7, 2, NOW + 1)]).result(10)
        write_learned(store, None, Learned(erased=[1]), Learned())

    monkeypatch.setattr(store, "records", records)
    found = export_events(store, tmp_path / "log.parquet", erased=lambda: erased_items(store))
    assert found == {"events": 6, "left_out": 3}
    frame = pl.read_parquet(tmp_path / "log.parquet")
    assert sorted(frame.select("user", "item").rows()) == [(user, item) for user in ("4", "7", "9") for item in "12"]


def test_the_command_exports_no_events_of_erased_items(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'events.db'}")
    store.append([Event(7, 1, NOW), Event(7, 2, NOW)]).result(10)
    write_learned(store, None, Learned(erased=[1]), Learned())
    store.close()
    run("events", "export", f"sqlite:{tmp_path / 'events.db'}", "--out", str(tmp_path / "log.parquet"))
    assert pl.read_parquet(tmp_path / "log.parquet")["item"].to_list() == [2]


def test_new_items_are_exported_as_rows_of_an_item_table(tmp_path: Path) -> None:
    """A refit with them has the categories and fields that they were put with."""
    store, new = open_store(f"sqlite:{tmp_path / 'events.db'}"), tmp_path / "new.parquet"
    store.append([Event(7, 901, NOW), Event(8, 902, NOW)]).result(10)
    learned = [
        CatalogueItem(901, "shoes|hats", {"price": 12, "sale": True, "sizes": [1, 2], "tags": ["a", "b"], "code": 7}),
        CatalogueItem(902, None, {"price": 1.5, "code": "x", "item": 5}),
        CatalogueItem(903, "hats", gone=True),
    ]
    write_learned(store, None, Learned(learned), Learned())
    store.close()
    address, out = f"sqlite:{tmp_path / 'events.db'}", str(tmp_path / "log.parquet")
    told = json.loads(run("events", "export", address, "--out", out, "--new-items", str(new), "--json"))
    assert (told["events"], told["new_items"]) == (2, 2)
    assert pl.read_parquet(new).to_dicts() == [
        {
            "item": 901,
            "category": "shoes|hats",
            "price": 12.0,
            "sale": True,
            "sizes": "[1, 2]",
            "tags": "a|b",
            "code": "7",
        },
        {"item": 902, "category": None, "price": 1.5, "sale": None, "sizes": None, "tags": None, "code": "x"},
    ]
    data = Dataset.from_log(read_log(out), str(new))
    assert data.item_table.frame["category"].to_list() == ["shoes|hats", None]
    export_new_items(Learned([CatalogueItem(902)]), new)
    assert pl.read_parquet(new).to_dicts() == [{"item": 902}]
    for path, said in ((out, "is --out too"), (str(tmp_path / "new.csv"), "does not end in .parquet")):
        with pytest.raises(ValueError, match=said):
            run("events", "export", address, "--out", out, "--new-items", path, "--overwrite")


def test_ids_of_two_kinds_become_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryStore()
    store.append([Event(7, 1, NOW), Event("x", 2, NOW)])
    export_events(store, tmp_path / "log.parquet")
    told = capsys.readouterr().err
    assert "the column 'user' is text: 1 of 2 events have text as user id, such as 'x'" in told
    assert "'item'" not in told
    frame = pl.read_parquet(tmp_path / "log.parquet")
    assert frame["user"].to_list() == ["7", "x"]
    assert frame["item"].to_list() == [1, 2]


def test_another_file_is_never_replaced(tmp_path: Path) -> None:
    """Such as the log, beside which an export is usually written, or the item table, which begins with item, too."""
    store = open_store(f"sqlite:{tmp_path / 'events.db'}")
    store.append([Event(7, "b", NOW), Event(7, "old", -62135596800.0)]).result(10)
    store.close()
    log, out = tmp_path / "log.parquet", tmp_path / "new" / "taken.parquet"
    pl.DataFrame({"user": [1], "item": [2], "price": [3.0]}).write_parquet(log)
    before = log.read_bytes()

    def export(to: Path, *more: str) -> None:
        run("events", "export", f"sqlite:{tmp_path / 'events.db'}", "--out", str(to), *more)

    for more, said in (((), "pass --overwrite"), (("--overwrite",), "is no earlier output of this")):
        with pytest.raises(ValueError, match=said):
            export(log, *more)
    assert log.read_bytes() == before
    items, same = tmp_path / "items.parquet", tmp_path / "same.parquet"
    pl.DataFrame({"item": ["b"], "title": ["a table of one's own"]}).write_parquet(items)
    pl.DataFrame({name: [1] for name in ("user", "item", "time", "type", "weight")}).write_parquet(same)
    for to, *more in ((out, "--new-items", str(items)), (same,)):
        with pytest.raises(ValueError, match="is no earlier output of this"):
            export(to, "--overwrite", *more)
    assert pl.read_parquet(items)["title"].to_list() == ["a table of one's own"]
    export(out, "--new-items", str(tmp_path / "new.parquet"))
    export(out, "--new-items", str(tmp_path / "new.parquet"), "--overwrite")
    out.unlink()
    export(out)
    with pytest.raises(ValueError, match="pass --overwrite"):
        export(out)
    export(out, "--overwrite")
    assert pl.read_parquet(out)["item"].to_list() == ["old", "b"]


def test_an_unwritable_path_is_refused() -> None:
    store = MemoryStore()
    store.append([Event(7, 1, NOW)])
    with pytest.raises(InputError, match=r"/proc/log.parquet could not be written"):
        export_events(store, "/proc/log.parquet")
    with pytest.raises(InputError, match=r"--out log.csv does not end in .parquet"):
        export_events(store, "log.csv")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "sqlite:no.db", "--out", "log.parquet"], "does not exist"),
        (["export", "memory", "--out", "log.parquet"], "read by its server alone"),
        (["exprot", "memory", "--out", "log.parquet"], "did you mean 'export'"),
        (["erase", "memory", "--out", "x"], "--from FOLDER"),
        (["export", f"sqlite:{__file__}", "--out", "log.parquet"], "not a database; give the file"),
        (["export", "redis://127.0.0.1:1/0", "--out", "log.parquet"], "is its server running"),
    ],
)
def test_invalid_exports_are_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run("events", *arguments)


def test_a_model_without_erased_users(tmp_path: Path) -> None:
    folder, retriever = saved(tmp_path / "model")
    assert retriever.users is not None
    assert retriever.histories is not None
    user = retriever.users.decode(np.array([int(retriever.histories.lengths.argmax())]))[0]
    store = open_store(f"sqlite:{tmp_path / 'events.db'}")
    store.erase("never there", NOW - 5)
    store.erase(user, NOW)
    store.close()
    out = tmp_path / "erased"
    run("events", "erase", f"sqlite:{tmp_path / 'events.db'}", "--from", str(folder), "--out", str(out))
    left = Retriever.load(out)
    assert read_manifest(out)["erased_until"] == NOW
    assert left.users is not None
    assert user not in left.users.ids.to_list()
    assert left.recommend(users=[user], on_unknown="ignore").item_ids == left.recommend([[]]).item_ids
    for other in left.users.ids.to_list():
        assert left.recommend(users=[other]).item_ids == retriever.recommend(users=[other]).item_ids
    with pytest.raises(ValueError, match="overwrite"):
        run("events", "erase", f"sqlite:{tmp_path / 'events.db'}", "--from", str(folder), "--out", str(out))


def test_models_without_users() -> None:
    from served import small_retriever

    bare = without_users(small_retriever())
    assert bare.users is None
    assert bare.recommend([[]]).item_ids[0]
    again, gone = without_erased(bare, [1, 2], NOW)
    assert gone == 0
    assert again.metadata["erased_until"] == NOW


def test_fit_saves_no_users_on_request(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    log = pl.DataFrame({"user": draw.integers(0, 30, 400), "item": draw.integers(0, 20, 400), "time": range(400)})
    log.with_columns(time=pl.col("time") + 1_700_000_000).write_csv(tmp_path / "log.csv")
    for extra in ([], ["--without-histories"]):
        run(
            "fit",
            str(tmp_path / "log.csv"),
            "--method",
            "popularity",
            "--out",
            str(tmp_path / "m"),
            "--overwrite",
            *extra,
        )
        assert (Retriever.load(tmp_path / "m").users is None) == bool(extra)
    assert {path.name for path in (tmp_path / "m").iterdir() if "users" in path.name or "hist" in path.name} == set()
    assert read_manifest(tmp_path / "m")["data"]["end"] == 1_700_000_399


def test_the_end_of_the_log_is_its_last_time_that_was_not_ahead_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"user": list(range(20)) * 2, "item": [0, 1, 2, 3] * 10}
    clock = 1.7e9 + 100

    def end(*times: Any, dtype: Any = None) -> Any:
        monkeypatch.setattr(time, "time", lambda: clock)
        split = disjoint_users(
            Dataset.from_log(read_log(pl.DataFrame(row | {"time": pl.Series(times * 10, dtype=dtype)})))
        )
        # A training of a day, in which the service stores events.
        monkeypatch.setattr(time, "time", lambda: clock + 86400)
        return beamwood.fit(split, "popularity").metadata["data"].get("end")

    assert end(1.7e9, 1.7e9, 1.7e9, 1.7e9 + 1) == 1.7e9 + 1
    assert end(1.7e9, 1.7e9 + 100, 1.7e9, 1.7e9 + 200) == 1.7e9 + 100
    assert end(1.7e9, 1.7e9 + 3, 1.7e9, 4e9) == 1.7e9 + 3
    assert end(3e9, 3e9, 3e9, 4e9) == 0
    # The last day of the year 9999: in one unit of the size of the next.
    far = 253_402_214_400
    assert end(1.7e9, 1.7e9 + 3, 1.7e9, float(far)) == 1.7e9 + 3
    seconds = np.array([1_700_000_000, 1_700_000_003, 1_700_000_000, far])
    assert end(*(seconds * 10**6).tolist(), dtype=pl.Datetime("us")) == 1.7e9 + 3
    assert end(*(seconds[:3] * 10**9).tolist(), 2**63 - 1, dtype=pl.Datetime("ns")) == 1.7e9 + 3
    # So are dates of 1971.
    assert end(*[50_000_000_000_000] * 4, dtype=pl.Datetime("us")) == 5e7
    # Day numbers of a spreadsheet, which are not seconds.
    assert end(44_000.5, 44_001.5, 44_002, 44_003) is None


def test_seconds_of_a_log() -> None:
    for parts in (1, 10**3, 10**6, 10**9):
        assert parts_of_second(1_700_000_000 * parts) == parts
    for number in (0, 400, -5, 10**7):
        assert parts_of_second(number) is None
