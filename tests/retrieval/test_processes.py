"""Tree searches in forked and spawned processes; for threads see kernels/test_workers.py."""

import multiprocessing
import os
import threading

import numpy as np
import pytest

from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import ItemLists, Query, SearchOptions
from bounded import joined
from din_cases import WINDOWS, random_case

ROWS = 24


def make(*, threads=1, num_items=600, num_rows=ROWS):
    tree, weights, _ = random_case(
        3, num_items=num_items, num_rows=1, width=24, hidden=36, windows=WINDOWS, mlp=(64, 24)
    )
    rng = np.random.default_rng(5)
    histories = ItemLists.from_lists([rng.integers(0, num_items, 69) for _ in range(num_rows)])
    return TreeSearcher(weights, tree, beam_width=40, threads=threads), histories


def answer(searcher, histories):
    return searcher.search(Query.of(histories), 10).items


def send_answer(searcher, histories, queue):
    queue.put(answer(searcher, histories))


def fork_and_answer(searcher, histories):
    """The child's answer, within a minute."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, answer(searcher, histories).tobytes())
        os._exit(0)
    os.close(theirs)
    chunks, alarm = [], threading.Timer(60, os.kill, (child, 9))
    alarm.start()
    while chunk := os.read(ours, 1 << 16):
        chunks.append(chunk)
    alarm.cancel()
    os.close(ours)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the forked process did not answer"
    return np.frombuffer(b"".join(chunks), np.int32).reshape(len(histories), -1)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.mark.parametrize("threads", [1, 3])
@needs_fork
def test_a_forked_process_answers(threads):
    searcher, histories = make(threads=threads)
    expected = answer(searcher, histories)
    assert np.array_equal(fork_and_answer(searcher, histories), expected)
    assert np.array_equal(answer(searcher, histories), expected)


@needs_fork
@pytest.mark.skipif(
    "BEAMWOOD_SANITIZED" in os.environ, reason="a sanitizer's own allocator may be locked by another thread at a fork"
)
def test_a_process_forked_while_others_search_answers():
    searcher, histories = make(threads=2)
    expected, stop = answer(searcher, histories), threading.Event()

    def search_on():
        while not stop.is_set():
            answer(searcher, histories)

    others = [threading.Thread(target=search_on) for _ in range(4)]
    for thread in others:
        thread.start()
    try:
        # This many, because only some forks happen while the lock is held.
        for _ in range(20):
            assert np.array_equal(fork_and_answer(searcher, histories), expected)
    finally:
        stop.set()
        joined(others)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_every_way_to_start_a_process(way):
    if way not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {way}")
    searcher, histories = make(threads=2)
    expected, context = answer(searcher, histories), multiprocessing.get_context(way)
    queue = context.Queue()
    process = context.Process(target=send_answer, args=(searcher, histories, queue))
    process.start()
    assert np.array_equal(queue.get(timeout=120), expected)
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.slow
def test_workers_of_a_data_loader_answer():
    data = pytest.importorskip("torch.utils.data")
    searcher, histories = make(threads=2)
    expected = answer(searcher, histories)

    class Answers(data.Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, row):
            return answer(searcher, histories.take(np.array([row])))[0]

    loader = data.DataLoader(Answers(), batch_size=6, num_workers=2, timeout=120)
    assert np.array_equal(np.concatenate([batch.numpy() for batch in loader]), expected)


def test_a_restored_searcher_has_the_requested_threads():
    searcher, histories = make()
    restored = TreeSearcher.restore(*searcher.export(), threads=3)
    assert restored.threads == 3
    assert np.array_equal(answer(restored, histories), answer(searcher, histories))
    options = SearchOptions(excluded=histories.distinct())
    expected = searcher.search(Query.of(histories), 10, options).items
    assert np.array_equal(restored.search(Query.of(histories), 10, options).items, expected)
