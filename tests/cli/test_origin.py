"""Folders with arbitrary records of their data: `evaluate` and `inspect` answer, or exit with 2 and one line."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from beamwood.cli.main import main
from beamwood.cli.origin import split_of
from beamwood.data import Vocabulary
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever
from damaged_folders import changed, put_manifest, value_damages

NEEDED = {("method",), ("data",), ("data", "fingerprint"), ("source", "log"), ("split",), ("split", "name")}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    make_market(MarketConfig(num_users=60, num_items=30, min_events=10, max_events=20), seed=0).log.write_parquet(
        folder / "l.parquet"
    )
    assert main(["fit", str(folder / "l.parquet"), "--method", "popularity", "--out", str(folder / "fitted")]) == 0
    return folder / "fitted"


@pytest.fixture
def manifest(fitted):
    content = (fitted / "manifest.json").read_bytes()
    yield json.loads(content)
    (fitted / "manifest.json").write_bytes(content)


def refusal(fitted):
    """The error of reading the folder's split, "" if it is read."""
    try:
        split_of(str(fitted), Retriever.load(fitted))
    except InputError as error:
        return str(error)
    return ""


def test_a_damaged_origin_is_named(fitted, manifest):
    assert refusal(fitted) == ""
    damages = list(value_damages({name: manifest[name] for name in ("method", "data", "source", "split", "read")}))
    damages += [(("source", "log"), name) for name in ("a" * 300, "a\0b", "/")]
    for path, wrong in damages:
        put_manifest(fitted, changed(manifest, path, wrong))
        said = refusal(fitted)
        if path in NEEDED and wrong in ("gone", None, -1):
            assert said.startswith(f"{fitted}/manifest.json: {path[0]}")
            assert said.endswith("it was not written by this version: fit and save it again")


@pytest.mark.parametrize("part", ["method", "data", "split"])
def test_commands_exit_with_2(fitted, manifest, part):
    for wrong in ("gone", None, [1]):
        put_manifest(fitted, changed(manifest, (part,), wrong))
        assert main(["evaluate", str(fitted), "--k", "5"]) == 2
        assert main(["inspect", str(fitted)]) == 0


def test_unknown_keys_are_named(fitted, manifest, capsys):
    for part in ("source", "split"):
        put_manifest(fitted, manifest | {part: manifest[part] | {"bogus": 3}})
        assert main(["evaluate", str(fitted), "--k", "5"]) == 2
        assert f"{part}.bogus" in capsys.readouterr().err
    for options in ({"bogus": 1}, {"test_share": 0.1}):
        put_manifest(fitted, manifest | {"split": {"name": "users", "options": options}})
        assert main(["evaluate", str(fitted), "--k", "5"]) == 2
        assert next(iter(options)) in capsys.readouterr().err


def test_items_of_another_log_are_refused(fitted, tmp_path, capsys):
    retriever = Retriever.load(fitted)
    replace(retriever, items=Vocabulary(retriever.items.ids.reverse())).save(tmp_path / "turned")
    assert main(["evaluate", str(tmp_path / "turned"), "--k", "5"]) == 2
    assert "turned: its items are not those of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("fit l.parquet --method popularity", "l.parquet"),
        ("fit l.parquet", "l.parquet"),
        ("fit LINK --method popularity", "l.parquet"),
        ("fit LOG --items l.parquet --method popularity", "l.parquet"),
        ("fit LOG --method own.py", "own.py"),
        ("describe l.parquet", "l.parquet"),
        ("refit fitted", "fitted"),
        ("refit FITTED --log l.parquet --out again", "l.parquet"),
    ],
)
def test_what_is_recorded_must_be_utf8(fitted, tmp_path, monkeypatch, capsys, command, named):
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("the file system takes UTF-8 alone")
    log = fitted.parent / "l.parquet"
    shutil.copy(log, odd / "l.parquet")
    shutil.copytree(fitted, odd / "fitted")
    (tmp_path / "link.parquet").symlink_to(odd / "l.parquet")
    names = {"LOG": log, "LINK": tmp_path / "link.parquet", "FITTED": fitted}
    monkeypatch.chdir(odd)
    assert main([str(names.get(word, word)) for word in command.split()]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert f"beamwood: the path '{tmp_path}/caf\\udce9/{named}' is not UTF-8; rename what is not" in said[-1]
    assert not [line for line in said if "rows (" in line]
