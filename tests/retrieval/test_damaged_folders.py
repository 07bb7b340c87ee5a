"""Folders with valid checksums but invalid content answer or give one line of error; nothing crashes."""

import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

import beamwood
import damaged_folders
from beamwood.data import Vocabulary
from beamwood.errors import ArtefactError
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.queries import UserVectors
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.types import ItemLists, QueryNeeds


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", damaged_folders.KINDS)
def test_a_damaged_folder_answers_or_is_refused(kind, tmp_path):
    damaged_folders.try_all(kind, tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_manifests_and_bytes(tmp_path):
    damaged_folders.try_all("popularity", tmp_path, common=True)


@pytest.mark.parametrize("kind", ["tower-mf", "neumf"])
def test_users_without_a_vector_are_refused(kind, tmp_path):
    """Each of their requests would end in an error."""
    damaged_folders.Folder(kind, tmp_path / "fits")
    number = damaged_folders.NUM_USERS + 1
    users, histories = Vocabulary(pl.Series(range(number))), ItemLists.empty(number)
    replace(beamwood.load(tmp_path / "fits"), users=users, histories=histories).save(tmp_path / "more")
    with pytest.raises(ArtefactError, match=f"users: it has {number} users, the searcher {number - 1}"):
        beamwood.load(tmp_path / "more")


def by_users(number):
    queries = UserVectors(damaged_folders.numbers(number, damaged_folders.WIDTH))
    return VectorSearcher(queries, damaged_folders.numbers(damaged_folders.NUM_ITEMS, damaged_folders.WIDTH))


@pytest.mark.parametrize("less", [0, 1])
def test_users_that_a_part_of_a_blend_does_not_know_are_refused(tmp_path, less):
    blend = Blend([Part(by_users(3)), Part(by_users(3 - less)), Part(damaged_folders.neighbours())])
    damaged_folders.Folder("tower-mf", tmp_path / "fits")
    replace(beamwood.load(tmp_path / "fits"), searcher=blend).save(tmp_path / "blend")
    if less:
        with pytest.raises(ArtefactError, match="users: it has 3 users, the searcher 2"):
            beamwood.load(tmp_path / "blend")
    else:
        assert beamwood.load(tmp_path / "blend").recommend(users=[10, 30], k=2).item_ids


class Own(VectorSearcher):
    """As a user would write it, by the arguments that have no default."""

    kind = "own"
    needs = QueryNeeds(users=True)

    @classmethod
    def restore(cls, config, arrays, *, threads=1):
        plain = super().restore(config, arrays, threads=threads)
        return cls(plain.queries, plain.vectors, plain.index)


def test_a_searcher_that_does_not_say_how_many_users_it_knows_is_loaded(tmp_path):
    damaged_folders.Folder("tower-mf", tmp_path / "fits")
    own, plain = Own(by_users(3).queries, by_users(3).vectors), by_users(3)
    fitted = beamwood.load(tmp_path / "fits")
    replace(fitted, searcher=own).save(tmp_path / "own")
    loaded = Retriever.load(tmp_path / "own", searchers={"own": Own})
    asked = {"users": [10, 20, 30], "k": 4}
    assert loaded.recommend(**asked) == replace(fitted, searcher=plain).recommend(**asked)


def test_nothing_crashes_the_process():
    # The kinds whose arrays reach compiled code that does not check indices.
    program = [
        sys.executable,
        damaged_folders.__file__,
        *({"neighbours", "tree", "tower-hnsw"} & {*damaged_folders.KINDS}),
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
