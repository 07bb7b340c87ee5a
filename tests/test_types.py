"""`ItemLists`: compressed rows agree with plain Python lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.errors import InputError, closest, nearest
from beamwood.kept import Prepared
from beamwood.types import ItemLists, Query, QueryNeeds, SearchOptions, among, pairs_in

rows_of_items = st.lists(st.lists(st.integers(0, 20), max_size=7), max_size=8)


@given(rows_of_items, st.integers(1, 6))
def test_agrees_with_lists(rows, length):
    lists = ItemLists.from_lists(rows)
    assert [list(row) for row in lists] == rows
    assert [list(row) for row in lists.last(length)] == [row[-length:] for row in rows]
    assert [list(row) for row in lists.distinct()] == [sorted(set(row)) for row in rows]
    expected = [[-1] * (length - len(row[-length:])) + row[-length:] for row in rows]
    assert lists.padded(length).tolist() == expected
    backwards = np.arange(len(rows))[::-1]
    assert [list(row) for row in lists.take(backwards)] == rows[::-1]
    assert [list(row) for row in ItemLists.concatenate([lists, lists])] == rows + rows


@given(rows_of_items, rows_of_items)
def test_two_lists_are_joined_row_by_row(rows, others):
    others = [*others, *rows][: len(rows)]
    first, second = ItemLists.from_lists(rows), ItemLists.from_lists(others)
    both = first.union(second)
    assert [list(row) for row in both] == [sorted({*a, *b}) for a, b in zip(rows, others, strict=True)]
    items = np.tile(np.arange(-1, 23), (len(rows), 1))
    inside = [[item in other for item in range(-1, 23)] for other in others]
    assert among(items, second).tolist() == inside
    places = np.repeat(np.arange(len(rows), dtype=np.int32), 24)
    assert pairs_in(places[::-1], items.ravel()[::-1], second).tolist() == np.ravel(inside)[::-1].tolist()
    with pytest.raises(InputError, match="give one row each"):
        first.union(ItemLists.empty(len(rows) + 1))


def test_wrong_arrays_are_refused():
    with pytest.raises(InputError, match="end at len"):
        ItemLists(np.array([0, 3]), np.array([1, 2]))
    with pytest.raises(InputError, match="must not decrease"):
        ItemLists(np.array([0, 2, 1, 2]), np.array([1, 2]))
    with pytest.raises(InputError, match="must not decrease"):
        ItemLists(np.array([0, 2**63 - 1, -2, 2]), np.array([1, 2]))
    with pytest.raises(InputError, match="0 or more"):
        ItemLists(np.array([0, 1]), np.array([-1]))
    with pytest.raises(InputError, match=r"items must hold whole numbers up to 2147483647; got 4294967301"):
        ItemLists(np.array([0, 1]), np.array([2**32 + 5]))
    with pytest.raises(InputError, match="indptr must hold whole numbers"):
        ItemLists(np.array([0, 2**63 + 1], np.uint64), np.array([1]))
    for wrong in [np.array([1.5]), np.array([np.nan]), np.array(["3"]), np.array([True])]:
        with pytest.raises(InputError, match="must hold whole numbers"):
            ItemLists(np.array([0, 1]), wrong)
        with pytest.raises(InputError, match="must hold whole numbers"):
            ItemLists.from_lists([wrong])
    with pytest.raises(InputError, match="must hold whole numbers"):
        ItemLists.from_lists([[1], [2**32 + 5]])
    with pytest.raises(InputError, match="must hold whole numbers"):
        ItemLists.from_lists([np.array([2**32 + 5])])
    for flat in ([1, 2], np.array([1, 2]), [None]):
        with pytest.raises(InputError, match="items must be a list of whole numbers"):
            ItemLists.from_lists(flat)
    with pytest.raises(InputError, match="a row is a table"):
        ItemLists.from_lists([[[1], [2]]])


@pytest.mark.parametrize("items", [np.array([[1, 2]]), np.array([[1], [2], [3]]), np.array([1, 2])])
def test_membership_needs_a_list_for_each_row(items):
    with pytest.raises(InputError, match="and 2 lists; give a row of items for each list"):
        among(items, ItemLists.from_lists([[1], [2]]))
    assert among([[1, 2], [2, -1]], ItemLists.from_lists([[2], [2]])).tolist() == [[False, True], [True, False]]


def test_lists_are_stored_in_the_form_of_the_native_core():
    bytes_ = bytearray(9)
    odd = np.frombuffer(bytes_, np.int32, 2, 1)
    for items in [odd, np.zeros(4, np.int32)[::2], np.zeros(2, np.uint64), np.zeros(2, ">i4"), [0, 0]]:
        lists = ItemLists(np.array([0, 2], ">i8"), items)
        assert lists.items.flags.aligned
        assert lists.items.flags.c_contiguous
        assert (lists.items.dtype, lists.indptr.dtype) == (np.int32, np.int64)
    assert len(ItemLists.from_lists([[], np.array([])]).items) == 0


def test_nearest_names_the_closest():
    assert nearest("drt", ["dtr", "tdm"]) == "; did you mean 'dtr'?"
    assert nearest("xyz", ["dtr", "tdm"]) == "; known: dtr, tdm"


def test_a_name_too_long_to_be_close_is_not_compared(monkeypatch):
    """As a name in a request may be a megabyte."""
    # Three times as long is as similar as is asked.
    assert closest(f"dtr{'x' * 6}", ["dtr"]) == "dtr"
    monkeypatch.setattr("difflib.get_close_matches", lambda *_, **__: pytest.fail("compared"))
    assert closest(f"dtr{'x' * 7}", ["dtr"]) is None
    assert closest("x" * 10**6, []) is None


def test_rows_of_a_query_keep_all_its_parts():
    query = Query(np.array([4, -1, 2]), ItemLists.from_lists([[1], [], [2, 3]]), {"device": np.array([[1], [0], [2]])})
    part = query.take([2, 0])
    assert part.users.tolist() == [2, 4]
    assert [list(row) for row in part.histories] == [[2, 3], [1]]
    assert part.context["device"].tolist() == [[2], [1]]
    assert Query.of(query.histories).users.tolist() == [-1, -1, -1]
    with pytest.raises(InputError, match="2 users and 3 histories"):
        Query(np.array([1, 2]), query.histories)
    with pytest.raises(InputError, match="the context 'device' has 1 rows for 3 users"):
        Query(query.users, query.histories, {"device": np.zeros((1, 2))})


def test_a_result_cached_on_a_query_is_computed_once_per_owner():
    query, made = Query.of(ItemLists.empty(2)), []

    def make():
        made.append(len(made))
        return made[-1]

    owners = [object(), object()]
    assert [query.once(owner, make) for owner in (*owners, *owners)] == [0, 1, 0, 1]
    assert query.take([0]).once(owners[0], make) == 2
    # A new owner at the same address must not get the result of a deleted one.
    assert len({query.once(object(), make) for _ in range(50)}) == 50


def test_options_of_some_rows():
    options = SearchOptions(ItemLists.from_lists([[1], [2, 3]]), np.ones(4, bool), 7, explain=True)
    part = options.take(np.array([1]))
    assert [list(row) for row in part.excluded] == [[2, 3]]
    assert (part.allowed is options.allowed, part.beam_width, part.explain) == (True, 7, True)
    assert SearchOptions(beam_width=3).take(np.array([0])) == SearchOptions(beam_width=3)


def test_needs_of_several_parts():
    class Column:
        def __init__(self, name, key):
            self.name, self.key = name, key

    one, other, again = Column("device", "device#1"), Column("device", "device#2"), Column("device", "device#1")
    both = QueryNeeds.joined([QueryNeeds(True, 5, (one,)), QueryNeeds(context=(other, again))])
    assert (both.users, both.num_users, both.names) == (True, 5, ("device",))
    assert [column.key for column in both.context] == ["device#1", "device#2"]
    assert QueryNeeds.joined([]) == QueryNeeds()


def test_a_filter_is_measured_while_another_search_adds_to_it():
    prepared = Prepared(np.ones(4, bool))

    class Found(tuple):
        another = None

        def __iter__(self):
            if self.another is not None:
                prepared.once(self.another, lambda: np.zeros(2))
            return super().__iter__()

    found = prepared.once(0, lambda: Found([np.zeros(3)]))
    found.another = object()
    assert prepared.nbytes == 4 + 24
    assert prepared.nbytes == 4 + 24 + 16
