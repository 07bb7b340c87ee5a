"""Folders with valid checksums but invalid content answer or give one line of error; nothing crashes."""

import subprocess
import sys

import pytest

import damaged_folders


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", damaged_folders.KINDS)
def test_a_damaged_folder_answers_or_is_refused(kind, tmp_path):
    damaged_folders.try_all(kind, tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_manifests_and_bytes(tmp_path):
    damaged_folders.try_all("popularity", tmp_path, common=True)


def test_nothing_crashes_the_process():
    # The kinds whose arrays reach compiled code that does not check indices.
    program = [
        sys.executable,
        damaged_folders.__file__,
        *({"neighbours", "tree", "tower-hnsw"} & {*damaged_folders.KINDS}),
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
