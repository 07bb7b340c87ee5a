"""Searches on native threads: the answers of a direct search, and tasks that never begin."""

import contextlib
import dataclasses
import gc
import os
import select
import sys
import threading
import time

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.kernels import native
from beamwood.kernels.arrays import values_unread
from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import Way
from beamwood.kernels.search import DinSearch
from bounded import joined
from din_cases import random_case, random_light

pytestmark = pytest.mark.skipif(native() is None, reason="the native core was not built")

WAYS = (Way("beam", 12), Way("steer", 12, 10), Way("cascade", 6, 12))
SOON = 60.0


class Case:
    """A searcher, histories, and one answer for each way."""

    def __init__(self, weights=lambda weights: weights, threads=2):
        self.tree, given, self.histories = random_case(7, num_items=300, num_rows=8, similarity=5, neighbours=3)
        light = random_light(np.random.default_rng(7), len(given.nodes), given.history_length, width=16)
        self.weights = weights(dataclasses.replace(given, light=light))
        self.search = DinSearch(self.weights, self.tree.shape, threads=threads)

    def later(self, row, way=WAYS[1], search=None, **more):
        return (search or self.search).later(
            self.histories[row : row + 1], way, k=6, live=self.tree.live_counts, **more
        )

    def direct(self, row, way):
        history, live = self.histories[row : row + 1], self.tree.live_counts
        if way.kind == "beam":
            return self.search.beam(history, beam_width=way.beam_width, k=6, live=live)
        return self.search.steered(history, way, k=6, live=live)


class Threads:
    """Native threads, and the tasks that ended."""

    def __init__(self, count=2, behind=0):
        self.read, self.write = os.pipe()
        self.native = native().Background(count, behind, self.write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.native.close()
        os.close(self.read)
        os.close(self.write)

    def submit(self, later, seconds=SOON):
        self.native.submit(later.task, seconds)

    def ended(self, count):
        """At least so many ended tasks."""
        found = []
        while len(found) < count:
            assert select.select([self.read], [], [], SOON)[0], "no task ended"
            os.read(self.read, 4096)
            found += self.native.ended()
        return found


def equal(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("leaves", "scores", "scored"))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.kind)
def test_a_task_finds_what_a_direct_search_finds(way):
    case = Case()
    with Threads() as threads:
        laters = [case.later(row, way) for row in range(8)]
        for later in laters:
            threads.submit(later)
        ended = threads.ended(8)
    assert {id(task) for task in ended} == {id(later.task) for later in laters}
    for row, later in enumerate(laters):
        assert equal(later.found(), case.direct(row, way))
        assert later.task.ran
        assert later.task.seconds > 0


def test_a_task_keeps_what_it_reads():
    """The searcher, the counts of a filter and the excluded leaves may be gone by the time that it runs."""
    case = Case()
    live = tuple(counts.copy() for counts in case.tree.live_counts)
    banned, expected = (np.zeros(2, np.int64), np.empty(0, np.int32)), case.direct(2, WAYS[0])
    search = DinSearch(case.weights, case.tree.shape)
    later = search.later(case.histories[2:3].copy(), WAYS[0], k=6, live=live, excluded=banned)
    del search, live, banned
    gc.collect()
    with Threads() as threads:
        threads.submit(later)
        threads.ended(1)
    assert equal(later.found(), expected)


def test_a_late_and_an_abandoned_task_never_run():
    case = Case()
    late, abandoned, other = case.later(0), case.later(1), case.later(2)
    with Threads(1) as threads:
        abandoned.task.abandon()
        threads.submit(late, 0.0)
        threads.submit(abandoned)
        threads.submit(other)
        assert [task.ran for task in threads.ended(3)] == [False, False, True]
    with pytest.raises(ValueError, match="did not run"):
        late.found()


def test_an_unsound_score_is_the_error_of_the_task():
    def damaged(weights):
        arrays = weights.arrays() | {"nodes": np.full_like(weights.nodes, np.nan)}
        with values_unread():
            return DinWeights.from_arrays(arrays, {name: part.term for name, part in weights.terms.items()})

    case = Case(damaged)
    later = case.later(0)
    with Threads() as threads:
        threads.submit(later)
        threads.ended(1)
    assert later.task.ran
    with pytest.raises(ArtefactError):
        later.found()


def test_closing_waits_for_running_tasks_and_drops_the_others():
    case = Case(threads=1)
    with Threads(1) as threads:
        laters = [case.later(row % 8, WAYS[0]) for row in range(200)]
        for later in laters:
            threads.submit(later)
        threads.native.close()
        assert threads.native.ended() == []
        threads.native.close()
        with pytest.raises(ValueError, match="ended"):
            threads.submit(case.later(0))
    ran = [later.task.ran for later in laters]
    assert ran == sorted(ran, reverse=True), "in their order"


def test_closing_by_several_callers_ends():
    case = Case(threads=1)
    for _ in range(10):
        with Threads() as threads:
            for row in range(8):
                threads.submit(case.later(row, WAYS[0]))
            joined([started(threads.native.close) for _ in range(3)])


def started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_task_runs_once():
    case = Case()
    later = case.later(0)
    with Threads() as threads:
        threads.submit(later)
        with pytest.raises(ValueError, match="submitted before"):
            threads.submit(later)
        threads.ended(1)


@pytest.mark.parametrize(("threads", "behind", "seconds"), [(0, 0, 1.0), (2000, 0, 1.0), (1, 0, -1.0), (1, 0, np.nan)])
def test_invalid_numbers_are_refused(threads, behind, seconds):
    later = Case().later(0)
    with pytest.raises(ValueError, match=r"must be in"):
        native().Background(threads, behind, 1).submit(later.task, seconds)


def test_what_a_task_cannot_do_is_left_to_a_direct_search():
    case = Case()
    assert case.later(0, Way("beam", 3)) is None, "fewer than k"
    assert case.search.later(case.histories[:2], WAYS[0], k=6, live=case.tree.live_counts) is None, "two rows"
    assert case.search.later(case.histories[:1].astype(np.int64), WAYS[0], k=6, live=case.tree.live_counts) is None


def test_a_forked_child_leaves_the_threads_to_its_parent():
    case = Case()
    with Threads() as threads:
        threads.submit(case.later(0))
        threads.ended(1)
        child = os.fork()
        if child == 0:
            try:
                threads.submit(case.later(1))
            except ValueError:
                threads.native.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        later = case.later(1)
        threads.submit(later)
        threads.ended(1)
        assert later.task.ran


def test_many_callers_share_the_threads():
    """Direct searches and tasks lease the same workers."""
    case, wrong = Case(), []
    expected = [case.direct(row, WAYS[1]) for row in range(8)]

    def direct():
        for row in range(8):
            if not equal(case.direct(row, WAYS[1]), expected[row]):
                wrong.append(row)

    others = [threading.Thread(target=direct) for _ in range(3)]
    with Threads(3) as threads:
        laters = [case.later(at % 8) for at in range(64)]
        for other in others:
            other.start()
        for later in laters:
            threads.submit(later)
        threads.ended(64)
    for other in others:
        other.join(60)
    assert not wrong
    assert all(equal(later.found(), expected[at % 8]) for at, later in enumerate(laters))


def test_waiting_is_measured():
    case = Case()
    later = case.later(0)
    with Threads(1) as threads:
        for row in range(50):
            threads.submit(case.later(row % 8, WAYS[0]))
        began = time.monotonic()
        threads.submit(later)
        threads.ended(51)
        assert 0 < later.task.waited < time.monotonic() - began


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone gives each thread a priority of its own")
def test_the_threads_stand_behind_their_creator():
    before, own, found, until = set(os.listdir("/proc/self/task")), os.nice(0), [], time.monotonic() + SOON
    with Threads(2, behind=3):
        # A thread does so when it begins; pytest may begin others.
        while found.count(min(19, own + 3)) < 2 and time.monotonic() < until:
            # One of pytest's may end meanwhile.
            with contextlib.suppress(ProcessLookupError):
                made = [int(each) for each in set(os.listdir("/proc/self/task")) - before]
                found = [os.getpriority(os.PRIO_PROCESS, each) for each in made]
    assert found.count(min(19, own + 3)) == 2
