"""Concurrent searches: equal answers, and no caller waits longer than the running search."""

import threading

import numpy as np
import pytest

from beamwood.kernels import native
from beamwood.kernels.search import DinSearch
from bounded import joined
from din_cases import WINDOWS, random_case

native_only = pytest.mark.skipif(native() is None, reason="the native core was not built")


class Case:
    """A searcher with this many threads, histories, and the answers of one thread."""

    def __init__(self, threads, num_rows=24):
        self.tree, weights, self.histories = random_case(
            3, num_items=600, num_rows=num_rows, width=24, hidden=36, windows=WINDOWS, mlp=(64, 24)
        )
        self.search = DinSearch(weights, self.tree.shape, threads=threads)
        self.expected = self._ask(DinSearch(weights, self.tree.shape), self.histories)

    def _ask(self, search, histories):
        found = search.beam(histories, beam_width=40, k=10, live=self.tree.live_counts)
        return np.concatenate([found.leaves, found.scores], axis=1)

    def is_right(self, rows):
        return np.array_equal(self._ask(self.search, self.histories[rows]), self.expected[rows])


def together(*works):
    """Run all at once; return whether all answers were correct."""
    wrong = []

    def run(work):
        if not work():
            wrong.append(work)

    others = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in others:
        thread.start()
    joined(others)
    return not wrong


def one_by_one(case, start):
    rows = np.roll(np.arange(len(case.histories)), -start)
    return lambda: all(case.is_right(rows[at : at + 1]) for at in range(len(rows)))


@pytest.mark.parametrize("callers", [2, 6])
@pytest.mark.parametrize("threads", [1, 3])
def test_concurrent_callers_get_the_answers_of_one(threads, callers):
    case = Case(threads)
    batch = np.arange(len(case.histories))
    assert together(lambda: case.is_right(batch), *(one_by_one(case, start) for start in range(callers)))


@native_only
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_as_many_callers_as_threads_never_wait(threads):
    case = Case(threads)
    assert together(*(one_by_one(case, start) for start in range(threads)))
    assert case.search.queue == (24 * threads, 0, 0)
    assert case.is_right(np.arange(24))
    assert case.search.queue == (24 * threads + 24, 0, 0)


@native_only
@pytest.mark.parametrize("threads", [1, 2])
def test_a_query_beside_a_batch_waits_for_one_search(threads):
    case, done, asked = Case(threads, num_rows=256), threading.Event(), []

    def batch():
        right = case.is_right(np.arange(256))
        done.set()
        return right

    def beside():
        while not done.is_set():
            asked.append(case.is_right(np.array([7])))
        return all(asked)

    assert together(batch, beside)
    # One more caller than threads: the waiting one is first in the queue and gets the next free worker.
    assert case.search.queue.asked == 256 + len(asked)
    assert case.search.queue.most_ahead == 0
