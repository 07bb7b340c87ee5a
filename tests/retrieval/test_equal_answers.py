"""A query has bitwise equal answers for every way to ask, in every process, and from every kind of memory."""

import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import beamwood
from beamwood.retrieval.columns.where import where_mask
from beamwood.types import Query, SearchOptions
from retrieval_cases import retriever_of, tree_searcher

USERS = 30
WHERES = {"all": None, "some": {"price": {"lte": 20}}, "rare": {"price": 7.0, "stock": True}}


def fitted(steered):
    return retriever_of(tree_searcher(600, steered=steered), num_users=USERS)


def answers(retriever):
    """The items and scores of each user and filter, for each way to ask."""
    found, users = {}, list(range(USERS))
    histories = [retriever.items.decode(row) for row in retriever.histories]
    for name, where in WHERES.items():
        mask = None if where is None else where_mask(where, retriever.columns)
        ids = None if mask is None else retriever.items.decode(np.flatnonzero(mask))
        # The first filter is computed, the second is found in the cache; the others are passed with each call.
        filters = {"made": {"where": where}, "prepared": {"where": where}, "mask": {"allowed": mask}}
        filters |= {"ids": {"allowed": ids}}
        for how, asked in filters.items():
            batch = retriever.recommend(users=users, k=7, **asked)
            found[name, how, "batch of users"] = list(zip(batch.item_ids, batch.scores, strict=True))
            batch = retriever.recommend(histories, 7, **asked)
            found[name, how, "batch of histories"] = list(zip(batch.item_ids, batch.scores, strict=True))
            each = [retriever.recommend(users=[user], k=7, **asked) for user in users]
            found[name, how, "users"] = [(one.item_ids[0], one.scores[0]) for one in each]
            each = [retriever.recommend([history], 7, **asked) for history in histories]
            found[name, how, "histories"] = [(one.item_ids[0], one.scores[0]) for one in each]
        options = SearchOptions(retriever.histories.distinct(), mask)
        hits = retriever.searcher.search(Query.of(retriever.histories), 7, options)
        kept = [row >= 0 for row in hits.items]
        found[name, "options", "searcher"] = [
            (retriever.items.decode(row[own]), scores[own].astype(float).tolist())
            for row, scores, own in zip(hits.items, hits.scores, kept, strict=True)
        ]
    return found


def send(retriever, queue):
    queue.put(answers(retriever))


def in_process(way, retriever):
    if way not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {way}")
    context = multiprocessing.get_context(way)
    queue = context.Queue()
    process = context.Process(target=send, args=(retriever, queue))
    process.start()
    try:
        return [queue.get(timeout=120)]
    finally:
        process.join(60)
        process.kill()


def at_once(retriever):
    with ThreadPoolExecutor(3) as pool:
        return [*pool.map(answers, [retriever] * 3)]


PLACES = {
    "mapped": lambda path: [answers(beamwood.load(path))],
    "mapped and verified": lambda path: [answers(beamwood.load(path, verify=True))],
    "with threads": lambda path: [answers(beamwood.load(path, threads=3))],
    "from threads": lambda path: at_once(beamwood.load(path)),
    "from threads with threads": lambda path: at_once(beamwood.load(path, threads=2)),
    "sent": lambda path: [answers(pickle.loads(pickle.dumps(beamwood.load(path))))],
    "forked": lambda path: in_process("fork", beamwood.load(path, threads=2)),
    "spawned": lambda path: in_process("spawn", beamwood.load(path)),
}


@pytest.fixture(scope="module", params=[False, True], ids=["beam", "steered"])
def case(request, tmp_path_factory):
    """A saved folder, and the answers of the retriever in memory."""
    retriever, path = fitted(request.param), tmp_path_factory.mktemp("model") / "model"
    retriever.save(path)
    return path, answers(retriever)


def test_every_way_to_ask_gives_equal_answers(case):
    _, found = case
    for name in WHERES:
        (first, *others) = [rows for (filtered, *_), rows in found.items() if filtered == name]
        assert len(others) == 16
        assert all(rows == first for rows in others)
    assert found["all", "made", "users"] != found["some", "made", "users"] != found["rare", "made", "users"]
    assert 0 < len(found["rare", "made", "users"][3][0]) <= 7


@pytest.mark.parametrize("place", PLACES)
def test_every_process_gives_equal_answers(case, place):
    if place == "forked" and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    path, expected = case
    assert all(found == expected for found in PLACES[place](path))
