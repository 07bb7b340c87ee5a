"""Sixteen threads on one retriever, and concurrent fits from a log that another process rewrites."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import beamwood
from beamwood.errors import InputError
from cli_cases import ENVIRONMENT
from damaged_folders import Folder

THREADS, ROUNDS = 16, 6


@pytest.fixture(params=["tree", "neighbours"])
def retriever(request, tmp_path):
    Folder(request.param, tmp_path / "model")
    return beamwood.load(tmp_path / "model", threads=4)


def questions(retriever):
    """Requests: histories, filters, lists of different lengths, and similar items."""
    items = retriever.items.ids.to_list()
    for number in range(THREADS):
        history, allowed = items[number % len(items) :][:3], items[number % 3 :: 2]
        yield lambda history=history: retriever.recommend([history, []], k=3).item_ids
        yield (
            lambda history=history, allowed=allowed: (
                retriever.recommend([history], k=2, allowed=allowed, seen="keep").scores
            )
        )
        yield lambda item=items[number % len(items)]: retriever.similar([item], k=3).item_ids


def test_threads_give_the_answers_of_one_thread(retriever):
    asked = [*questions(retriever)]
    alone = [ask() for ask in asked]
    start = threading.Barrier(THREADS)

    def ask_all(first):
        start.wait(timeout=60)
        order = [(first + place * 7) % len(asked) for place in range(len(asked))] * ROUNDS
        return [place for place in order if asked[place]() != alone[place]]

    with ThreadPoolExecutor(THREADS) as pool:
        wrong = [pool.submit(ask_all, first) for first in range(THREADS)]
        assert [each.result(timeout=120) for each in wrong] == [[]] * THREADS


def test_processes_fit_while_the_log_and_a_folder_are_replaced(write, planted, tmp_path):
    """Each of four succeeds; a load of the folder that a fifth replaces finds the old or the new one."""
    log, shared = write(planted), tmp_path / "shared"

    def fitting(out, *more):
        words = ["fit", str(log), "--method", "popularity", "--out", str(out), "-q", *more]
        return subprocess.Popen(
            [sys.executable, "-m", "beamwood", *words],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    assert fitting(shared).wait(timeout=120) == 0
    working = [fitting(tmp_path / f"out{number}") for number in range(4)] + [fitting(shared, "--overwrite")]
    loaded = 0
    while any(process.poll() is None for process in working):
        # Written under a new name and renamed, so readers keep the old file.
        fresh = write(planted, name="fresh.csv")
        fresh.replace(log)
        try:
            assert len(beamwood.load(shared).recommend([[]], k=3).item_ids[0]) == 3
            loaded += 1
        except InputError as error:
            raise AssertionError(f"neither the old folder nor the new one: {error}") from error
    for process in working:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said.decode()
    assert loaded > 0
    answers = {str(beamwood.load(tmp_path / f"out{n}").recommend([[]], k=5).item_ids) for n in range(4)}
    assert answers == {str(beamwood.load(shared).recommend([[]], k=5).item_ids)}
