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
from beamwood.types import ItemLists


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


def test_nothing_crashes_the_process():
    # The kinds whose arrays reach compiled code that does not check indices.
    program = [
        sys.executable,
        damaged_folders.__file__,
        *({"neighbours", "tree", "tower-hnsw"} & {*damaged_folders.KINDS}),
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
