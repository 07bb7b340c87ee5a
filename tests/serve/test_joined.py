"""Searches that wait together are one search, and each has the answer that it would have alone."""

import asyncio
import threading
import time

import numpy as np
import pytest

from beamwood.serve.engine import Engine, Priority
from beamwood.serve.joined import JoinedSearches
from beamwood.serve.problems import Problem
from beamwood.types import ItemLists, Query, SearchOptions
from retrieval_cases import tree_searcher
from served import post, saved, serving

NUM_ITEMS = 90
NO_ITEM = NUM_ITEMS + 7


class Watched:
    """A searcher that notes how many rows each search has; it is held until it is let go, and refuses some rows."""

    def __init__(self):
        self.searcher, self.rows, self.open = tree_searcher(NUM_ITEMS), [], threading.Event()

    def search(self, query, k, options=SearchOptions()):
        self.open.wait(30)
        self.rows.append(len(query))
        if (query.histories.items == NO_ITEM).any():
            raise ZeroDivisionError("no such item")
        return self.searcher.search(query, k, options)


@pytest.fixture
def watched():
    watched = Watched()
    yield watched
    watched.open.set()


def histories(count):
    rng = np.random.default_rng(5)
    return [rng.integers(0, NUM_ITEMS, rng.integers(0, 12)) for _ in range(count)]


def query_of(history):
    return Query.of(ItemLists.from_lists([history]))


def run(main, threads=1):
    engine = Engine(threads)
    try:
        return asyncio.run(main(engine, JoinedSearches(engine)))
    finally:
        engine.close()


async def asked(joined, watched, history, k=5, options=None, seconds=30):
    query = query_of(history)
    options = SearchOptions(query.histories) if options is None else options
    task = asyncio.create_task(joined.search(watched, query, k, options, deadline=time.monotonic() + seconds))
    await asyncio.sleep(0)
    return task


def same(hits, other):
    return all(np.array_equal(getattr(hits, name), getattr(other, name)) for name in ("items", "scores", "scored"))


@pytest.mark.parametrize("way", [{}, {"beam_width": 4}, {"effort": 0.0}])
@pytest.mark.parametrize("seen", ["remove", "keep"])
def test_each_has_the_answer_that_it_has_alone(watched, way, seen):
    given = histories(12)

    def options(history):
        return SearchOptions(query_of(history).histories if seen == "remove" else None, **way)

    async def main(engine, joined):
        tasks = [await asked(joined, watched, history, options=options(history)) for history in given]
        watched.open.set()
        return [ran.value for ran in await asyncio.gather(*tasks)]

    found = run(main)
    alone = [watched.searcher.search(query_of(history), 5, options(history)) for history in given]
    assert all(map(same, found, alone))
    assert watched.rows == [1, 8, 3], "the first found the thread free, the others waited for it"


def test_only_those_that_are_asked_alike_go_together(watched):
    async def main(engine, joined):
        first = await asked(joined, watched, [1])
        mixed = [await asked(joined, watched, [2 + at], k=3 + at % 2) for at in range(6)]
        assert len(joined) == 6
        watched.open.set()
        await asyncio.gather(first, *mixed)
        return [task.result().value.items.shape for task in mixed]

    assert run(main) == [(1, 3), (1, 4)] * 3
    assert watched.rows == [1, 3, 3]


def test_who_is_gone_or_late_is_not_searched(watched):
    async def main(engine, joined):
        first = await asked(joined, watched, [1])
        late = await asked(joined, watched, [2], seconds=0.01)
        gone = await asked(joined, watched, [3])
        last = await asked(joined, watched, [4])
        gone.cancel()
        await asyncio.sleep(0.05)
        watched.open.set()
        await asyncio.gather(first, last)
        with pytest.raises(Problem, match="not ready in time"):
            await late
        return engine.expired

    assert run(main) == 1
    assert watched.rows == [1, 1]


def test_whose_deadline_passes_while_it_is_searched_has_no_answer(watched):
    async def main(engine, joined):
        first = await asked(joined, watched, [1])
        late = await asked(joined, watched, [2], seconds=0.1)
        more = await asked(joined, watched, [3])
        with pytest.raises(Problem, match="not ready in time"):
            await late
        assert watched.rows == [], "it is told at once, whoever else is still searched"
        watched.open.set()
        await asyncio.gather(first, more)

    run(main, threads=2)


def test_the_fault_of_one_is_its_own(watched):
    async def main(engine, joined):
        first = await asked(joined, watched, [1])
        good, bad = await asked(joined, watched, [2]), await asked(joined, watched, [NO_ITEM], options=SearchOptions())
        worse = await asked(joined, watched, [NO_ITEM])
        watched.open.set()
        await asyncio.gather(first, good)
        for task in (bad, worse):
            with pytest.raises(ZeroDivisionError, match="no such item"):
                await task
        return good.result().value

    assert same(run(main), watched.searcher.search(query_of([2]), 5, SearchOptions(query_of([2]).histories)))


def test_what_a_search_takes_is_told_of_each(watched):
    async def main(engine, joined):
        tasks = [await asked(joined, watched, history) for history in histories(9)]
        engine.seconds = 1.0
        watched.open.set()
        await asyncio.gather(*tasks)
        return engine.seconds, [task.result() for task in tasks]

    seconds, ran = run(main)
    assert 0.81 <= seconds < 0.82, "two calls of some milliseconds, by a tenth each"
    assert all(each.queued >= 0 and each.seconds > 0 for each in ran)


def test_many_callers_at_once_have_the_answers_of_each_alone(tmp_path):
    folder, retriever = saved(tmp_path / "model", num_items=NUM_ITEMS)
    bodies = [{"history": retriever.items.decode(history), "k": 1 + at % 3} for at, history in enumerate(histories(60))]
    with serving(folder) as client:
        service, rows = client.service, []
        alone = [post(client, "/v1/recommend", body)["items"] for body in bodies]
        # Another is being answered, as long as these ask.
        service.admission.enter()
        joined, run_of = service.joined[Priority.CALLER], service.engine.run

        def noted(work, **more):
            rows.append(more.get("searches", 1))
            return run_of(work, **more)

        service.engine.run, service.engine.seconds = noted, 0.0005
        together = [None] * len(bodies)

        def ask(start):
            for at in range(start, len(bodies), 12):
                together[at] = post(client, "/v1/recommend", bodies[at])

        threads = [threading.Thread(target=ask, args=(start,)) for start in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [answer["items"] for answer in together] == alone
        assert all(answer["took_ms"]["queue"] >= 0 for answer in together)
        assert len(rows) < sum(rows) == len(bodies), "some went together"
        service.admission.leave()
        assert len(joined) == service.admission.before == 0


def test_the_rows_of_a_batch_go_together_behind_callers(tmp_path):
    folder, retriever = saved(tmp_path / "model", num_items=NUM_ITEMS)
    bodies = [{"history": retriever.items.decode(history), "k": 3} for history in histories(40)]
    with serving(folder) as client:
        alone = [post(client, "/v1/recommend", body)["items"] for body in bodies]
        engine, calls = client.service.engine, []
        run_of, engine.seconds = engine.run, 0.0005

        def noted(work, *, priority, searches, **more):
            calls.append((priority, searches))
            return run_of(work, priority=priority, searches=searches, **more)

        engine.run = noted
        rows = post(client, "/v1/recommend/batch", {"requests": bodies})["rows"]
    assert [row["ok"]["items"] for row in rows] == alone
    assert {priority for priority, _ in calls} == {Priority.BATCH}
    assert len(calls) < sum(searches for _, searches in calls) == len(bodies)
