"""What every history store owes of the answers that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from beamwood.serve.store.event import Owner, Session
from beamwood.serve.store.protocol import KEY_SECONDS, Answered, HistoryStore

__all__ = ["StoredAnswersContract"]

NOW = 1.7e9


class StoredAnswersContract:
    """Give `opened`; `has_clock`: answers are too old by the clock of the store, not of the caller."""

    has_clock = False

    def opened(self, folder: Path) -> HistoryStore:
        """The store in an empty folder, or in the one of an earlier call."""
        raise NotImplementedError

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """The empty folder of a test."""
        return tmp_path

    @pytest.fixture
    def store(self, folder: Path) -> Iterator[HistoryStore]:
        """An empty store, open."""
        with closing(self.opened(folder)) as opened:
            yield opened

    def test_answers_are_kept_for_a_while_and_counted(self, store: HistoryStore) -> None:
        first = Answered("r-1", 42, NOW, "e/a", (1, "x"), '{"k": 2}')
        store.note(
            [first, Answered("r-2", Session("s"), NOW + 1, "e/b", ()), Answered("r-3", None, NOW, "e/a", (3,))], 60, NOW
        )
        found = store.noted(["r-1", "r-4", "r-2", "r-1"])
        assert found.keys() == {"r-1", "r-2"}
        assert found["r-1"] == first
        assert found["r-2"].owner == Session("s")
        assert not store.noted([])
        assert store.hit(["r-1", "r-1", "r-4"]) == {"r-1"}
        assert store.hit(["r-1", "r-2"]) == {"r-2"}
        assert store.hit([]) == set()
        store.tally("e/a", "missed_search")
        store.tally("e/a", "missed_search")
        counts = {("e/a", "answers"): 2, ("e/b", "answers"): 1, ("e/a", "hits"): 1, ("e/b", "hits"): 1}
        assert store.tallies() == counts | {("e/a", "missed_search"): 2}
        # Erasing a user erases the answers too.
        store.erase(42, NOW)
        assert store.noted(["r-1", "r-3"]).keys() == {"r-3"}
        assert not store.hit(["r-1"])
        if not self.has_clock:
            store.note([Answered("r-5", 1, NOW + 100, "e/a", ())], 60, NOW + 100)
            assert not store.noted(["r-3"])

    def test_an_answer_is_stored_once(self, store: HistoryStore) -> None:
        """A load balancer may repeat a request with the same id."""
        first = Answered("r-1", 42, NOW, "e/a", (1,))
        store.note([first, Answered("r-1", 42, NOW, "e/a", (2,))], 60, NOW)
        store.note([Answered("r-1", 42, NOW + 1, "e/a", (3,))], 60, NOW)
        assert store.noted(["r-1"]) == {"r-1": first}
        assert store.tallies() == {("e/a", "answers"): 1}
        # Those of one call are of several groups.
        other, later = Answered("r-2", None, NOW, "e/b", ()), Answered("r-3", None, NOW, "e/a", (1,))
        store.note([other, later, Answered("r-3", None, NOW, "e/b", (2,))], 60, NOW)
        assert store.noted(["r-3"]) == {"r-3": later}
        assert store.tallies() == {("e/a", "answers"): 2, ("e/b", "answers"): 1}
        # After an erasure it is another answer.
        assert store.hit(["r-1"])
        _, at = store.erase(42, NOW)
        store.note([Answered("r-1", 42, NOW, "e/a", (1,), erased=at)], 60, NOW)
        assert store.hit(["r-1"])

    def test_many_hits_are_counted_at_once(self, store: HistoryStore) -> None:
        """Each group has its own, however many there are."""
        names = [f"r-{n}" for n in range(600)]
        store.note([Answered(name, n, NOW, f"e/{n % 3}", ()) for n, name in enumerate(names)], 60, NOW)
        assert {name: each.owner for name, each in store.noted(names).items()} == {
            name: n for n, name in enumerate(names)
        }
        assert store.hit(names[:2]) == set(names[:2])
        assert store.hit(names) == set(names[2:])
        assert {group: count for (group, name), count in store.tallies().items() if name == "hits"} == {
            f"e/{n}": 200 for n in range(3)
        }

    def test_no_answer_of_an_erased_owner_is_stored_after_the_erasure(self, store: HistoryStore) -> None:
        """Answers are stored some time after they were given, which no clock says: those of processes differ."""
        erased: tuple[Owner, ...] = (42, Session("ü 1"))
        for owner in erased:
            store.erase(owner, NOW)
        at = store.history(42).erased
        store.note([Answered(f"r-{n}", owner, NOW + 5, "e/a", (1,)) for n, owner in enumerate(erased)], 60, NOW)
        store.note([Answered("r-2", "42", NOW - 5, "e/a", (1,))], 60, NOW)
        store.note([Answered("r-3", 42, NOW - 5, "e/a", (1,), erased=at)], 60, NOW)
        names = [f"r-{n}" for n in range(5)]
        assert store.noted(names).keys() == {"r-2", "r-3"}
        # Another erasure of the same owner.
        store.erase(42, NOW - 60)
        store.note([Answered("r-4", 42, NOW + 5, "e/a", (1,), erased=at)], 60, NOW)
        assert store.noted(names).keys() == {"r-2"}
        assert store.tallies() == {("e/a", "answers"): 2}

    @pytest.mark.parametrize("ahead", [0, 3600, -3600])
    def test_no_answer_of_a_session_is_stored_after_its_merge(self, store: HistoryStore, ahead: int) -> None:
        """It would outlive the user's erasure; later answers of the session are its own."""
        session, marks = Session("s"), list[float | None]()
        for step in (lambda: store.merge(session, 10, NOW + ahead), lambda: store.erase(session, NOW)) * 2:
            marks.append(store.history(session).erased)
            step()
        marks.append(store.history(session).erased)
        assert [float(each) for each in marks[1:] if each] == sorted({each for each in marks if each is not None})
        given = [Answered(f"r-{n}", session, NOW, "e/a", (1,), erased=each) for n, each in enumerate(marks)]
        store.note(given, 60, NOW)
        assert store.noted([each.request_id for each in given]).keys() == {"r-4"}
        # The user has none of these marks, and other processes need not follow merges.
        assert store.history(10).erased is None
        assert set(store.erased()) == {session}

    def test_a_merge_is_forgotten_after_a_day(self, store: HistoryStore) -> None:
        if self.has_clock:
            pytest.skip("a day by the clock of the store")
        store.merge(Session("s"), 10, NOW)
        store.note([], 60, NOW + KEY_SECONDS)
        assert store.history(Session("s")).erased == NOW
        store.note([], 60, NOW + KEY_SECONDS + 1)
        assert store.history(Session("s")).erased is None

    def test_answers_of_a_merged_session_belong_to_the_user(self, store: HistoryStore) -> None:
        session, other = Session("ü 1"), Session("other")
        owners: tuple[Owner | None, ...] = (session, "sü 1", other, None, session)
        store.note([Answered(f"r-{n}", owner, NOW, "e/a", (n,), "ß") for n, owner in enumerate(owners)], 60, NOW)
        assert store.hit(["r-0"])
        store.merge(session, "ü", NOW)
        names = [f"r-{n}" for n in range(5)]
        found = [store.noted(names)[name] for name in names]
        assert [each.owner for each in found] == ["ü", "sü 1", other, None, "ü"]
        assert [(each.items, each.text) for each in found] == [((n,), "ß") for n in range(5)]
        assert store.hit(["r-0", "r-4"]) == {"r-4"}
        store.erase("ü", NOW)
        assert store.noted(names).keys() == {"r-1", "r-2", "r-3"}
