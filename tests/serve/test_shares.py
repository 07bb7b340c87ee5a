"""Positions of new items in an answer: not the first ones, at most a share, and k items if there are k."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.retrieval.new_items.extended_tree import ExtendedTree
from beamwood.serve.answer.answering import Recommending
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.shares import order_by_share
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.items.learned import CatalogueItem, Learned
from beamwood.serve.items.widened import widened
from beamwood.serve.messages import Recommend
from beamwood.serve.settings import Limits
from served import saved


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.1, [2, 3, 4, 5, 0]), (0.4, [2, 3, 0, 4, 1]), (0.5, [2, 0, 3, 1, 4]), (1.0, [0, 1, 2, 3, 4]), (0.0, None)],
)
def test_new_items_wait_for_positions_of_their_share(share, expected):
    """Items 0 and 1 are new and have the highest scores."""
    scores, new = np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]), np.arange(6) < 2
    assert order_by_share(scores, new, share, 5) == (expected or [2, 3, 4, 5, 0])


def test_only_a_plain_search_is_left_to_native_threads(tmp_path):
    """They know no rules."""
    folder, retriever = saved(tmp_path / "model")
    fitted = open_snapshot(folder)
    history = retriever.items.decode(np.array([4]))

    def is_left(**more):
        body = Recommend(history=history, k=5, **more)
        made = Recommending(fitted, body, StoredHistory(), Limits(), request_id="", deadline=math.inf)
        return made.begin(0.0) is not None

    assert is_left()
    for more in ({"max_per_category": 1}, {"diversity": 0.5}, {"explain": "scores"}, {"dry_run": True}):
        assert not is_left(**more)


def test_a_search_with_a_share_of_new_items_is_not_left_to_native_threads(tmp_path, monkeypatch):
    """Though they can make it where all new items have leaves."""
    folder, retriever = saved(tmp_path / "model")
    history, asked = retriever.items.decode(np.array([4])), []
    extended = widened(open_snapshot(folder), Learned([CatalogueItem(1000, similar=history)]), 2)
    monkeypatch.setattr(ExtendedTree, "later", lambda *given: asked.append(given))
    for share, count in ((0.1, 0), (1.0, 1)):
        limits, body = Limits(new_item_share=share), Recommend(history=history, k=5)
        Recommending(extended, body, StoredHistory(), limits, request_id="", deadline=math.inf).begin(0.0)
        assert len(asked) == count


def test_a_new_item_is_not_ranked_above_its_score():
    assert order_by_share(np.array([1.0, 9.0, 8.0, 7.0]), np.array([True, False, False, False]), 0.5, 3) == [1, 2, 3]


@given(
    scores=st.lists(st.floats(-9, 9), max_size=30),
    chance=st.integers(0, 2**30 - 1),
    share=st.floats(0, 1),
    k=st.integers(1, 40),
)
def test_properties_of_every_list(scores, chance, share, k):
    new = np.array([bool(chance >> at & 1) for at in range(len(scores))], bool)
    order = order_by_share(np.array(scores), new, share, k)
    assert len(order) == min(k, len(scores))
    assert len(set(order)) == len(order)
    known = [at for at in order if not new[at]]
    assert [scores[at] for at in known] == sorted((scores[at] for at in known), reverse=True)
    all_known = int((~new).sum())
    for number, place in enumerate((place for place, at in enumerate(order, start=1) if new[at]), start=1):
        spent = place - number >= all_known
        assert spent or place >= (min(math.ceil(number / share), k) if number < share * k else k)
