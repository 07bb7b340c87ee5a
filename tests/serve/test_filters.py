"""Filters never let forbidden items through, and answers have k items if k are allowed."""

import re

import numpy as np
import pytest

from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.messages import Filter, Recommend
from beamwood.serve.settings import Limits
from beamwood.types import ItemLists, Query, SearchOptions
from retrieval_cases import item_frame
from served import NUM_ITEMS, post, saved, serving


def labels(frame):
    return [set(cell.split("|")) for cell in frame["category"]]


def conditions(rng, frame, ids):
    """A random filter, and the items it allows by direct evaluation of the table."""
    allowed, given = np.ones(len(ids), bool), {}
    own = labels(frame)
    if rng.random() < 0.4:
        wanted = [f"c{n}" for n in rng.choice(5, rng.integers(1, 3), replace=False)]
        allowed &= [bool(own_ & set(wanted)) for own_ in own]
        given["category"] = wanted
    if rng.random() < 0.2:
        wanted = [f"c{n}" for n in rng.choice(5, rng.integers(1, 3), replace=False)]
        allowed &= [set(wanted) <= own_ for own_ in own]
        given["all_of"] = wanted
    if rng.random() < 0.3:
        wanted = [f"c{rng.integers(5)}"]
        allowed &= [not own_ & set(wanted) for own_ in own]
        given["none_of"] = wanted
    if rng.random() < 0.3:
        chosen = rng.choice(len(ids), rng.integers(0, len(ids)), replace=False)
        allowed &= np.isin(np.arange(len(ids)), chosen)
        given["items"] = [ids[at] for at in chosen]
    if rng.random() < 0.4:
        most = float(rng.integers(0, 45))
        allowed &= np.array([price is not None and price <= most for price in frame["price"]])
        given["where"] = {"price": {"lte": most}}
    return Filter(**given), allowed


def test_the_uses_of_the_filter_cache_are_counted_across_changes_of_items_and_models(tmp_path):
    folder, _ = saved(tmp_path / "model")
    body = {"user": 11, "filter": {"where": {"price": {"lte": 20}}}}
    with serving(folder, models_dir=tmp_path) as client:
        counts = []
        for change in (lambda: None, lambda: add(client), lambda: post(client, "/v1/models/load", {"path": "model"})):
            change()
            post(client, "/v1/recommend", body)
            post(client, "/v1/recommend", body)
            found = re.findall(
                r"^beamwood_filter_cache_(?:hits|misses)_total (\S+)$", client.get("/metrics").text, re.MULTILINE
            )
            counts.append([float(each) for each in found])
        assert counts[0] == [1, 1]
        assert counts[0] < counts[1] < counts[2]


def add(client):
    assert client.put("/v1/items", json={"items": [{"item": 5000}]}).status_code == 200


def check(folder, count, seed):
    folder, retriever = saved(folder)
    snapshot, rng = open_snapshot(folder), np.random.default_rng(seed)
    frame, ids, tree = item_frame(NUM_ITEMS), retriever.items.ids.to_list(), retriever.searcher
    exact = 0
    for _ in range(count):
        given, allowed = conditions(rng, frame, ids)
        history = rng.choice(NUM_ITEMS, rng.integers(0, 6), replace=False)
        exclude = rng.choice(NUM_ITEMS, rng.integers(0, 20), replace=False)
        k = int(rng.integers(1, NUM_ITEMS + 1))
        body = Recommend(
            history=[ids[at] for at in history], exclude=[ids[at] for at in exclude], filter=given, k=k, beam_width=8
        )
        answer, _ = recommended(snapshot, body, StoredHistory(), Limits(), request_id="")
        shown = [ids.index(item.item) for item in answer.items]
        left = allowed.copy()
        left[history] = left[exclude] = False
        assert len(set(shown)) == len(shown) == min(k, left.sum())
        assert left[shown].all()
        if (given.category, given.all_of, given.none_of, given.items, given.where) != (None,) * 5:
            assert answer.allowed == allowed.sum()
            if allowed.sum() <= 2 * max(8, k):
                banned = ItemLists.from_lists([np.unique(np.concatenate([history, exclude]))])
                query = Query.of(ItemLists.from_lists([history]))
                assert shown == tree.exact(query, k, SearchOptions(banned, allowed)).items[0][: len(shown)].tolist()
                exact += 1
    assert exact > count / 5


def test_hundreds_of_filters(tmp_path):
    check(tmp_path / "model", 400, 0)


@pytest.mark.slow
def test_ten_thousand_filters(tmp_path):
    check(tmp_path / "model", 10_000, 1)
