"""Requests are the same from Python, the command line and the service."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamwood.data import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.new_items.added import NewItem
from beamwood.retrieval.request import Request
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.types import ItemLists


@pytest.fixture
def retriever():
    users, histories = Vocabulary(pl.Series(["u", "v"])), ItemLists.from_lists([[0, 3], [1]])
    return Retriever(PopularitySearcher(np.arange(5)), Vocabulary(pl.Series(list("abcde"))), users, histories)


@pytest.mark.parametrize("seen", ["remove", "keep"])
def test_recommend_uses_a_request(retriever, seen):
    rest = {"seen": seen, "allowed": ["d", "e", "a"], "on_unknown": "ignore"}
    answer = retriever.answer(Request(users=["u", "nobody"], k=2, **rest))
    assert answer == retriever.recommend(users=["u", "nobody"], k=2, **rest)
    assert answer.item_ids == [["e"] if seen == "remove" else ["e", "d"], ["e", "d"]]
    asked = Request([["a", "d"], []], 2, **rest)
    assert retriever.answer(asked) == answer


def test_given_histories_replace_stored_ones(retriever):
    answer = retriever.answer(Request([[]], 2, users=["u"]))
    assert answer == retriever.answer(Request([[]], 2)) != retriever.answer(Request(users=["u"], k=2))


def test_requests_that_no_retriever_accepts():
    with pytest.raises(InputError, match="give histories or users"):
        Request()
    with pytest.raises(InputError, match="seen='keeps' is unknown; did you mean 'keep'"):
        Request([[]], seen="keeps")


def test_requests_that_this_retriever_refuses(retriever):
    for request, message in (
        (Request([[]], 6), r"k=6 is outside 1\.\.5"),
        (Request([["z"]]), "1 of 1 ids are unknown, such as 'z'"),
        (Request([[]], 2, context={"device": ["tv"]}), "uses no context"),
        (Request([[]], 2, allowed={"category": "x"}), "has no categories"),
        (Request([{"a", "b"}], 2), "histories holds a set, which has no order"),
        (Request([{"a": 1}], 2), "histories holds a dict, which has no order"),
        (Request(users={"u"}, k=2), "users is a set, which has no order"),
    ):
        with pytest.raises(InputError, match=message):
            retriever.answer(request)


@pytest.mark.parametrize("users", [["u"], ["u", "v", "w"]])
def test_a_frame_has_one_user_a_row(retriever, users):
    with pytest.raises(InputError, match="2 rows; give one user a row"):
        retriever.recommend([["a"], ["b"]], 2).as_frame(users)


@pytest.mark.parametrize("wrong", [{"item": None}, {"item": "f", "mixture": ["a"]}, {"item": "f", "cells": [1]}])
def test_a_new_item_needs_an_id_a_mixture_and_cells(wrong):
    with pytest.raises(InputError, match=r"give an id, a mixture as \{id: weight\}"):
        NewItem(**wrong)


def test_scores_of_rows_that_are_read_once(retriever):
    rows, items = [["a"], ["b"]], [["c", "d"], ["d", "e"]]
    assert retriever.score(iter(rows), items).tolist() == retriever.score(rows, items).tolist()


@pytest.mark.parametrize(
    ("listed", "rest"),
    [
        ({"users": ["u", "v"]}, {"as_": "polars"}),
        ({"histories": [list("abcde"), ["a"]]}, {}),
        ({"histories": [["a"]], "allowed": ["a"]}, {}),
        ({"histories": [["a"]], "exclude": list("bcde")}, {}),
    ],
    ids=["users", "histories", "allowed", "exclude"],
)
def test_an_iterator_answers_as_its_list(retriever, listed, rest):
    """Also the reason for a row without items, for which the request is read again."""
    answer = retriever.recommend(k=2, **{name: iter(values) for name, values in listed.items()}, **rest)
    expected = retriever.recommend(k=2, **listed, **rest)
    assert answer.equals(expected) if rest else answer == expected
    assert rest or expected.empty
    if "histories" in listed:
        for rows in (map(iter, listed["histories"]), tuple(map(iter, listed["histories"]))):
            assert retriever.recommend(k=2, **listed | {"histories": rows}) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda some: {"allowed": {"category": some("x")}},
        lambda some: {"where": {"category": {"in": some("x")}}},
        lambda some: {"where": {"any": ({"category": some("x")}, {"not": {"category": some("xy")}})}},
        lambda some: {"where": {"category": "x"}, "promote": some([{"where": {"category": some("x")}, "share": 0.5}])},
    ],
)
def test_iterators_within_a_request_answer_as_lists(retriever, make):
    columns = ItemColumns.of(pl.DataFrame({"category": list("xyyyy")}))
    retriever = replace(retriever, columns=columns)
    expected = retriever.recommend([["b"], ["a"]], 2, **make(list))
    assert expected.item_ids == [["a"], []]
    assert "the only item passing the filter" in expected.empty[1]
    assert retriever.recommend([["b"], ["a"]], 2, **make(iter)) == expected
