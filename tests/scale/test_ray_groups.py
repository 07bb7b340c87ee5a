"""Batch recommendations on a Ray cluster of two nodes: equal to those of one process, also when a node is lost."""

from contextlib import closing
from functools import partial

import polars as pl
import pytest

import beamwood
from beamwood.artefact import read_artefact
from beamwood.cli.answering import open_alone
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.batch import job as jobs
from beamwood.retrieval.batch.group_answers import Group, GroupAnswers, GroupOptions, OfRetriever
from beamwood.retrieval.request import Request
from beamwood.scale.ray_groups import RayGroups, Worker
from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store
from cli_cases import beamwood as command

pytest.importorskip("ray", reason="needs the extra ray")
NUM_USERS = 120


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with a counting model."""
    folder = tmp_path_factory.mktemp("ray")
    log = make_market(MarketConfig(num_users=NUM_USERS, num_items=60, max_events=30), seed=1).log
    log.write_parquet(folder / "log.parquet")
    split = leave_one_out(Dataset.from_log(read_log(folder / "log.parquet")))
    beamwood.fit(split, "cooccurrence").save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine, each with one processor."""
    from ray.cluster_utils import Cluster

    started = None
    try:
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        started.add_node(num_cpus=1)
    except Exception as error:
        if started is not None:
            started.shutdown()
        pytest.skip(f"Ray does not start here: {error}")
    yield started
    started.shutdown()


def engine(cluster, folder, **given):
    checksum = str(read_artefact(folder, kind="retriever", verify=False).manifest["checksum"])
    return RayGroups(
        cluster.address, folder, **{"checksum": checksum, "opened": partial(open_alone, str(folder), None)} | given
    )


def groups(retriever, size=10):
    users = retriever.users.ids.to_list()
    return [Group(at // size, users[at : at + size], users[at : at + size]) for at in range(0, len(users), size)]


OPTIONS = GroupOptions(Request(users=[], k=4), True, pl.Int64, ".csv")


def test_a_file_equals_that_of_one_process(cluster, fitted, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "GROUP_ROWS", 25)
    ask = ("recommend", fitted, "--all-users", "-k", 4, "--out")
    assert command(*ask, tmp_path / "one.parquet") == 0
    assert command(*ask, tmp_path / "all.parquet", "--ray-address", cluster.address) == 0, capsys.readouterr().err
    assert pl.read_parquet(tmp_path / "all.parquet").equals(pl.read_parquet(tmp_path / "one.parquet"))
    assert {path.name for path in tmp_path.iterdir()} == {"one.parquet", "all.parquet"}


def test_events_of_a_store_are_included(cluster, fitted, tmp_path, capsys):
    address = f"sqlite:{tmp_path / 'events.db'}"
    with closing(open_store(address)) as store:
        store.append([Event(user, item, 1e9) for user in (3, "guest") for item in (5, 9)]).result()
    ask = ("recommend", fitted, "--all-users", "-k", 4, "--store", address, "--out")
    assert command(*ask, tmp_path / "one.parquet") == 0
    assert command(*ask, tmp_path / "all.parquet", "--ray-address", cluster.address) == 0, capsys.readouterr().err
    found = pl.read_parquet(tmp_path / "all.parquet")
    assert found.equals(pl.read_parquet(tmp_path / "one.parquet"))
    assert found.filter(pl.col("query") == "guest")["item"].len() == 4


def test_what_is_wrong_on_a_node_is_reported(cluster, fitted, tmp_path, capsys):
    asked = groups(beamwood.load(fitted))
    with pytest.raises(InputError, match="another model in"):
        dict(engine(cluster, fitted, checksum="other")(OPTIONS, asked))
    with pytest.raises(ArtefactError, match="nothing"):
        dict(RayGroups(cluster.address, tmp_path / "nothing", "any", len)(OPTIONS, asked))
    with pytest.raises(InputError, match=r"the Ray cluster has 2 processors; lower --threads 3"):
        dict(engine(cluster, fitted)(GroupOptions(OPTIONS.request, True, pl.Int64, ".csv", 3), asked))
    assert command("recommend", fitted, "--user", 1, "--ray-address", "auto") == 2
    assert "name it with --out" in capsys.readouterr().err


def test_an_actor_that_starts_again_elsewhere_checks_the_model_there(fitted):
    """Ray repeats the group, but not the call that looked at the first node's folder."""
    asked, opened = groups(beamwood.load(fitted)), []
    again = Worker(str(fitted), "of the first node", opened.append, OPTIONS)
    with pytest.raises(InputError, match=rf"another model in {fitted}; copy this one there"):
        again.encoded(asked[0])
    assert opened == []


def test_a_node_that_is_lost_costs_no_answer(cluster, fitted):
    retriever = beamwood.load(fitted)
    asked = groups(retriever, size=2)
    lost = cluster.add_node(num_cpus=1)
    found = {}
    for number, encoded in engine(cluster, fitted)(OPTIONS, asked):
        found[number] = encoded
        if len(found) == 3:
            cluster.remove_node(lost, allow_graceful=False)
    expected = GroupAnswers(OfRetriever(retriever), OPTIONS)
    assert found == {group.number: expected.encoded(group) for group in asked}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "here:there"])
def test_without_a_cluster_it_says_how_to_start_one(fitted, address):
    with pytest.raises(InputError, match="no Ray cluster answers there"):
        dict(RayGroups(address, fitted, "any", len)(OPTIONS, []))
