"""A store of a user's file: commands and a server take it by its address."""

import json
import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from beamwood.cli.main import main
from beamwood.serve.store.event import Event
from beamwood.serve.store.open import absolute_address, open_store
from served import Server, saved

FILE = Path(__file__).parents[2] / "one_file" / "journal_store.py"


def test_a_killed_server_and_the_commands_read_it(tmp_path, capsys):
    folder, retriever = saved(tmp_path / "model")
    address = f"{FILE}:{tmp_path / 'events.jsonl'}"
    bought = retriever.items.decode([3, 5])
    with Server(folder, "--store", address) as server:
        events = [{"user": "new", "item": item, "key": str(item)} for item in bought]
        status, answer = server.ask("/v1/events", {"events": events})
        assert (status, answer["accepted"], answer["durable"]) == (200, 2, True)
        server.signal(signal.SIGKILL)
        server.ended()
    with Server(folder, "--store", address) as server:
        assert server.ask("/v1/events", {"events": events})[1]["duplicates"] == 2
        expected = [item["item"] for item in server.ask("/v1/recommend", {"user": "new"})[1]["items"]]
        capsys.readouterr()
        asked = ["recommend", str(folder), "--store", address, "--user", "new", "-k", "20", "--json"]
        assert main(asked) == 0
        assert json.loads(capsys.readouterr().out)[0]["items"] == expected
        assert main(["events", "export", address, "--out", str(tmp_path / "taken.parquet")]) == 0
    assert pl.read_parquet(tmp_path / "taken.parquet")["item"].to_list() == bought


def test_its_appends_hold_up_nobody(tmp_path, monkeypatch):
    may_end, synced = threading.Event(), os.fsync

    def slow(descriptor):
        assert may_end.wait(30)
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with closing(open_store(f"{FILE}:{tmp_path / 'events.jsonl'}")) as store:
        done = store.append([Event(1, 2, 1.7e9)])
        assert not done.done()
        may_end.set()
        assert done.result(30).accepted == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the store file {file} does not exist"),
        ("", "the store file {file} defines no STORE; write STORE = MyStore, the class of the store"),
        ("1 / 0", "the store file {file}, line 1: ZeroDivisionError: division by zero; mend the file"),
        ("import torch_not_there", "ModuleNotFoundError: No module named 'torch_not_there'; install that"),
        ("def STORE(place, read_only): return {}[place]", "the store file {file}, line 1: KeyError: 'there'"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path, capsys, content, message):
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_text(content)
    assert main(["events", "export", f"{file}:there", "--out", str(tmp_path / "out.parquet")]) == 2
    assert message.format(file=file) in capsys.readouterr().err


def test_addresses_from_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    same = ("memory", "redis://x.py:1", "sqlite:/a.py:b")
    assert [absolute_address(each) for each in same] == list(same)
    assert absolute_address("sqlite:a.db") == f"sqlite:{tmp_path / 'a.db'}"
    assert absolute_address("memory_of.py:a b:c.py") == f"{tmp_path / 'memory_of.py'}:a b:c.py"
    assert absolute_address("mine.py") == f"{tmp_path / 'mine.py'}:"
