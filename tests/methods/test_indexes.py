"""Every method with vectors accepts every index, including a custom one in a file."""

import re
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import ArtefactError, InputError
from beamwood.methods import METHODS, load_method
from beamwood.retrieval.index import INDEXES
from beamwood.retrieval.searchers.queries import QUERIES
from beamwood.retrieval.searchers.vectors import searcher_with
from beamwood.testing import IndexContract
from one_view import evaluate_view
from plans import read_by

FILE = Path(__file__).parents[1] / "one_file" / "bucket_index.py"
LOOP = {"loop.max_steps": 4, "loop.evaluate_every": 2, "choose.validation_users": 20}
SMALL = LOOP | {"model.width": 8, "model.length": 6, "optimiser.learning_rate": 0.01}
SEQUENCE = ["sasrec", "gru4rec", "caser", "fmlp", "youtube_dnn", "mol", "lpo4rec"]
TOWERS = [("two_tower", {"model.user_tower": tower}) for tower in ("mf", "mean", "gru4rec")]
GRAPHS = [("lightgcn", {"model.num_layers": layers}) for layers in (0, 2)]
VECTORS = [*((name, {}) for name in SEQUENCE), *TOWERS, *GRAPHS, ("melt", {}), ("cities", {"examples.reach": 4})]


class TestBuckets(IndexContract):
    index = runpy.run_path(str(FILE))["Buckets"]
    recall = 0.5


@pytest.fixture(scope="module")
def split():
    """Users have the items of their group of 16, each in another order."""
    rng = np.random.default_rng(0)
    rows = [(u, int(i) + 16 * (u % 5), t) for u in range(150) for t, i in enumerate(rng.permutation(16)[:9])]
    log = read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row"))
    return leave_one_out(Dataset.from_log(log))


@pytest.fixture(scope="module")
def start(split, tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "sasrec"
    beamwood.fit(split, "sasrec", SMALL, progress=False).save(folder)
    return str(folder)


def configured(name, changes, start):
    on_top = {"start.folder": start} | LOOP | ({"examples.user_quantile": 0.5} if name == "melt" else {})
    return read_by(load_method(name), (on_top if name in ("melt", "cities") else SMALL) | changes)


def test_all_methods_and_indexes_are_covered():
    known = {name: load_method(name) for name in METHODS}
    having = [name for name, each in known.items() if each.needs.steps and "index.kind" in each.Config.names()]
    assert sorted(having) == sorted({name for name, _ in VECTORS})


# Each method with one index, and each index with one method.
TRIED = [*((name, changes, "ivf") for name, changes in VECTORS), *(("two_tower", {}, index) for index in INDEXES)]


@pytest.mark.parametrize(("name", "changes", "index"), TRIED)
def test_a_method_accepts_an_index(split, start, tmp_path, name, changes, index):
    if index == "hnsw":
        pytest.importorskip("faiss", reason="faiss is not installed (pip install 'beamwood[ann]')")
    config = configured(name, changes, start) | {"index.kind": index}
    fitted = beamwood.fit(split, name, config, progress=False)
    fitted.save(tmp_path / "saved")
    loaded, users = beamwood.load(tmp_path / "saved"), fitted.users.ids.head(20)
    searcher = loaded.searcher.first
    assert {each.kind for each in (searcher.indexes if name == "mol" else [searcher.index])} == {index}
    answers = fitted.recommend(users=users, k=5)
    assert loaded.recommend(users=users, k=5) == answers
    if index == "qinco":
        return
    # Any index finds items of so small a catalogue, and codes have no exact scores.
    exact = beamwood.fit(split, name, config | {"index.kind": "exact"}, progress=False)
    assert exact.recommend(users=users, k=5).item_ids == answers.item_ids


def test_an_unknown_index_is_refused(split):
    with pytest.raises(InputError, match=r"index\.kind='hsnw': give 'exact', .*; did you mean 'hnsw'\?$"):
        beamwood.fit(split, "sasrec", {"index.kind": "hsnw"}, progress=False)


def test_settings_of_another_index_are_refused(split):
    with pytest.raises(InputError, match=r"index\.search_width is for index\.kind=hnsw, not ivf; leave it out"):
        beamwood.fit(split, "sasrec", {"index.kind": "ivf", "index.search_width": 9}, progress=False)


def test_an_index_has_its_own_settings(split):
    config = SMALL | {"index.kind": "ivf", "index.num_buckets": 6, "index.num_probed": 2}
    index = beamwood.fit(split, "two_tower", config, progress=False).searcher.first.index
    assert (len(index.centres), index.num_probed) == (6, 2)


def test_settings_shared_by_indexes_have_the_same_definition():
    fields = {}
    for index in INDEXES.values():
        for name, field in index.Settings.model_fields.items():
            assert fields.setdefault(name, field.default) == field.default
            assert 0 < len(field.description.split()) <= 20


def test_a_custom_index_is_one_file(split, tmp_path):
    source = Path(beamwood.__file__).parent
    assert not any("bucket_index" in path.read_text() for path in source.rglob("*.py"))
    fitted = beamwood.fit(split, str(FILE), SMALL, progress=False)
    assert fitted.searcher.first.index.kind == "buckets"
    assert "f@20" in evaluate_view(fitted.searcher, split.test, ks=(20,), remove_seen=False).means()
    fitted.save(tmp_path / "saved")
    users = fitted.users.ids.head(5)
    with pytest.raises(ArtefactError, match=r"index 'buckets' is unknown.*bucket_index\.py, which is not run"):
        beamwood.load(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved", method=str(FILE))
    assert loaded.recommend(users=users, k=5) == fitted.recommend(users=users, k=5)


def test_a_name_that_is_taken_is_refused():
    for index in INDEXES.values():
        with pytest.raises(InputError, match=re.escape("give each a name of its own")):
            searcher_with(indexes=[index])


def test_query_vectors_are_registered_by_name():
    assert all(queries.kind == name for name, queries in QUERIES.items())
