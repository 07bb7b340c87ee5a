"""`indexed` adds an index to the vectors of a fit: those of two towers, or DIN's item vectors with the mean query."""

import json

import numpy as np
import polars as pl
import pytest

import beamwood as package
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.types import ItemLists, Query
from cli_cases import beamwood

SHORT = {"loop.max_steps": 4, "loop.evaluate_every": 2, "choose.validation_users": 20}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    market = make_market(MarketConfig(num_users=200, num_items=60, min_events=5, max_events=14), seed=1)
    market.log.write_parquet(folder / "log.parquet")
    return folder / "log.parquet"


@pytest.fixture(scope="module")
def split(log):
    return disjoint_users(Dataset.from_log(read_log(log)))


@pytest.fixture(scope="module")
def folders(split, tmp_path_factory):
    out = tmp_path_factory.mktemp("fits")
    for name in ("two_tower", "din"):
        package.fit(split, name, SHORT | {"model.width": 8}, progress=False).save(out / name)
    package.fit(split, "popularity").save(out / "popularity")
    return out


def test_with_two_towers_it_gives_equal_answers(split, folders):
    towers = package.load(folders / "two_tower")
    same = {"choose.validation_users": 20, "choose.monitor": "removed/ndcg@20"}
    again = package.fit(split, "indexed", same | {"start.folder": str(folders / "two_tower")})
    query = split.test.query(towers.searcher.needs)
    ours, theirs = (each.searcher.first.search(query, 5) for each in (again, towers))
    assert np.array_equal(ours.items, theirs.items)
    assert again.searcher.seen_weight == towers.searcher.seen_weight


def test_with_din_the_query_is_the_mean_of_the_history(split, folders):
    din = package.load(folders / "din").searcher
    found = package.fit(split, "indexed", {"start.folder": str(folders / "din"), "index.kind": "ivf"})
    searcher = found.searcher.first
    shape = din.tree.shape
    vectors = din.weights.nodes[shape.level_offset(shape.depth) + din.tree.leaf_of_item]
    assert np.array_equal(searcher.vectors, vectors)
    asked = Query.of(ItemLists.from_lists([[3, 8, 8]]))
    expected = vectors @ vectors[[3, 8, 8]].mean(axis=0)
    everything = searcher.search(asked, len(vectors))
    assert everything.items[0].tolist() == np.lexsort((np.arange(len(vectors)), -expected)).tolist()


def test_without_vectors_the_fix_is_named(split, folders):
    with pytest.raises(InputError, match="give its folder with --from"):
        package.fit(split, "indexed", {})
    with pytest.raises(InputError, match="holds popularity, which has no item vectors; give one that has"):
        package.fit(split, "indexed", {"start.folder": str(folders / "popularity")})


def test_the_commands_accept_it(log, folders, tmp_path, capsys):
    out, start = tmp_path / "ivf", ("--method", "indexed", "--from", folders / "two_tower")
    for kind in ("exact", "ivf"):
        wanted = ("--set", f"index.kind={kind}", "--out", tmp_path / kind, "--json")
        assert beamwood("fit", log, *start, *wanted) == 0
        assert json.loads(capsys.readouterr().out)["method"] == "indexed"
    assert beamwood("evaluate", out, "--k", "5", "--json") == 0
    assert 0 <= json.loads(capsys.readouterr().out)["views"]["kept"]["metrics"]["f@5"] <= 1
    assert beamwood("compare", log, "--folders", out, tmp_path / "exact", "--json") == 0
    assert {"exact", "ivf"} <= json.loads(capsys.readouterr().out)["methods"].keys()
    items = pl.read_parquet(log)["item_id"].unique().sort().head(3).to_list()
    assert beamwood("recommend", out, "--history", ",".join(map(str, items)), "-k", "4", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)[0]["items"]) == 4
    assert beamwood("similar", out, "--item", items[0], "-k", "3", "--json") == 0
