"""What every history store owes: order, idempotency, erasure, retention, documents and answers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beamwood.serve.store.event import Event, Id, Owner, Session
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import KEY_SECONDS, HistoryStore, KeyReused, Retention, StoreUnavailable
from beamwood.testing.stored_answers import StoredAnswersContract

__all__ = ["HistoryStoreContract"]

NOW = 1.7e9


def _kept(store: HistoryStore, *events: Event) -> tuple[int, int]:
    done = store.append(events).result(10)
    return done.accepted, done.duplicates


def _items(store: HistoryStore, owner: Any, **options: Any) -> list[Any]:
    return list(store.history(owner, **options).items)


class HistoryStoreContract(StoredAnswersContract):
    """Give `opened`; `outlives`: the data outlive the process.

    For example:

        class TestMine(HistoryStoreContract):
            def opened(self, folder):
                return Mine(folder / "mine.db")
    """

    outlives = True

    def test_a_history_is_ordered_by_time_then_number(self, store: HistoryStore) -> None:
        assert _kept(store, Event(1, 10, NOW), Event(1, 11, NOW + 2)) == (2, 0)
        assert _kept(store, Event(1, 12, NOW + 1), Event(1, 9, NOW), Event("1", 99, NOW)) == (3, 0)
        assert _items(store, 1) == [10, 9, 12, 11]
        assert _items(store, "1") == [99]
        assert _items(store, 1, last=2) == [12, 11]
        assert _items(store, 1, after=NOW) == [12, 11]
        assert store.history(1).times == (NOW, NOW, NOW + 1, NOW + 2)
        assert _items(store, 1, last=0) == []
        assert _items(store, "nobody") == []
        assert store.history("nobody").seq == 0

    def test_an_event_without_a_time_is_the_last_whatever_the_clocks_say(self, store: HistoryStore) -> None:
        def untimed(owner: Owner, item: Id, time: float) -> Event:
            return Event(owner, item, time, timed=False)

        _kept(store, untimed(1, 10, NOW), untimed(2, 5, NOW - 9))
        # Of a clock that was set back, of another process, after the time of a client.
        _kept(store, untimed(1, 11, NOW - 3600), untimed(1, 12, NOW - 7), Event(1, 13, NOW + 60), untimed(1, 14, NOW))
        _kept(store, untimed(1, 15, NOW + 61), Event(1, 9, NOW - 1))
        assert _items(store, 1) == [9, 10, 11, 12, 13, 14, 15]
        assert store.history(1).times == (NOW - 1, NOW, NOW, NOW, NOW + 60, NOW + 60, NOW + 61)
        assert store.history(2).times == (NOW - 9,)
        # Sent again it is a duplicate.
        assert _kept(store, untimed(1, 11, NOW - 3600)) == (0, 1)

    def test_an_append_tells_which_events_are_new(self, store: HistoryStore) -> None:
        first, second, third = (Event(1, item, NOW) for item in range(3))
        assert list(store.append([first, second, first]).result(10).new) == [0, 1]
        done = store.append([first, third, second, third]).result(10)
        assert (list(done.new), done.accepted, done.duplicates) == ([1], 1, 3)

    def test_the_history_at_an_earlier_number_can_be_read(self, store: HistoryStore) -> None:
        _kept(store, Event(1, 10, NOW), Event(1, 11, NOW + 2))
        before = store.history(1, last=2)
        _kept(store, Event(1, 12, NOW + 1), Event(1, 13, NOW + 3))
        assert store.history(1).seq > before.seq
        assert store.history(1, until=before.seq, last=2) == before

    def test_a_history_of_some_types(self, store: HistoryStore) -> None:
        kinds = ["buy", "", "skip", "buy", "it's", "skip", "view"]
        _kept(store, *(Event(1, item, NOW + item, type=kind) for item, kind in enumerate(kinds)))
        assert store.history(1).types == tuple(kinds)
        assert _items(store, 1, types={"buy", ""}) == [0, 1, 3]
        # The latest events of these types, despite many later ones of other types.
        assert _items(store, 1, types=["buy", ""], last=2) == [1, 3]
        assert _items(store, 1, types=["it's"]) == [4]
        assert _items(store, 1, types=["none"]) == _items(store, 1, types=[]) == []
        found = store.history(1, types=["skip", "buy"], after=NOW + 1, last=2)
        assert (found.items, found.types, found.seq) == ((3, 5), ("buy", "skip"), store.history(1).seq)
        until = store.page(1)[3].seq
        assert store.history(1, types=["skip", "buy"], until=until, last=2).items == (2, 3)

    def test_a_long_history_of_some_types(self, store: HistoryStore) -> None:
        _kept(
            store, *(Event(1, item, NOW + item // 7, type="buy" if item % 5 == 0 else "seen") for item in range(2500))
        )
        bought = list(range(0, 2500, 5))
        assert _items(store, 1, types=["buy"]) == bought
        assert _items(store, 1, types=["buy"], last=450) == bought[-450:]
        assert _items(store, 1) == list(range(2500))
        assert _items(store, 1, last=1200) == list(range(1300, 2500))

    def test_a_repeated_send_counts_once(self, store: HistoryStore) -> None:
        events = [Event(1, 10, NOW, key="a"), Event(1, 11, NOW), Event("x", "y", NOW, "buy", 2.5, "b", "r-1")]
        assert _kept(store, *events, events[0]) == (3, 1)
        assert _kept(store, *events) == (0, 3)
        # An event without a time may be sent again at another time.
        assert _kept(store, Event(2, 3, NOW, key="c", timed=False)) == (1, 0)
        assert _kept(store, Event(2, 3, NOW + 9, key="c", timed=False)) == (0, 1)
        # Without a key, another weight does not make another event.
        assert _kept(store, Event(1, 11, NOW, weight=7)) == (0, 1)
        assert _items(store, 1) == [10, 11]
        assert _items(store, 2) == [3]

    @pytest.mark.parametrize(
        "changes", [{"item": 11}, {"user": 2}, {"time": NOW + 1}, {"type": "buy"}, {"weight": 2.0}, {"request_id": "r"}]
    )
    def test_a_key_with_another_body_is_refused_and_nothing_is_stored(
        self, store: HistoryStore, changes: dict[str, Any]
    ) -> None:
        first = Event(1, 10, NOW, key="a")
        _kept(store, first)
        for batch in (
            [Event(5, 5, NOW), replace(first, **changes)],
            [Event(5, 5, NOW, key="z"), Event(6, 5, NOW, key="z")],
        ):
            with pytest.raises(KeyReused, match=f"key='{batch[1].key}'"):
                _kept(store, *batch)
        assert _items(store, 5) == []
        assert _items(store, 1) == [10]
        assert _kept(store, Event(5, 5, NOW, key="z")) == (1, 0)

    def test_event_numbers_increase(self, store: HistoryStore) -> None:
        first = store.append([Event(1, 1, NOW)]).result(10).seq
        assert store.append([Event(1, 1, NOW)]).result(10).seq == first
        assert store.append([Event(2, 1, NOW), Event(3, 1, NOW)]).result(10).seq == first + 2
        assert store.history(1).seq == first
        assert store.history(3).seq == first + 2
        assert store.append([]).result(10).seq == first + 2

    def test_pages_follow_the_numbers(self, store: HistoryStore) -> None:
        _kept(store, *(Event(1, item, NOW - item) for item in range(5)))
        _kept(store, Event(2, 7, NOW, "buy", 0.5, "k", "r"))
        page = store.page(1, limit=3)
        assert [record.event.item for record in page] == [0, 1, 2]
        following = store.page(1, after=page[-1].seq, limit=3)
        assert [record.event.item for record in following] == [3, 4]
        assert store.page(1, after=following[-1].seq) == []
        assert store.page(2)[0].event == Event(2, 7, NOW, "buy", 0.5, None, "r")

    def test_erasure_leaves_a_tombstone_and_the_others(self, store: HistoryStore) -> None:
        _kept(store, Event(1, 10, NOW, key="a"), Event(1, 11, NOW), Event("1", 12, NOW))
        assert store.erase(1, NOW + 5) == (2, NOW + 5)
        assert store.history(1).items == ()
        assert (store.history(1).seq, store.history(1).erased) == (0, NOW + 5)
        assert store.history("1").erased is None
        assert store.erased() == {1: NOW + 5}
        assert _items(store, "1") == [12]
        assert store.erase(1, NOW + 6) == (0, NOW + 6)
        # A clock that was set back.
        none, later = store.erase("never seen", NOW)
        assert none == 0
        assert NOW + 6 < later < NOW + 6.001
        assert store.erased() == {1: NOW + 6, "never seen": later}
        assert store.erased(NOW + 6) == {"never seen": later}
        assert store.erased(later) == {}
        # Later events are new, whatever their key.
        assert _kept(store, Event(1, 13, NOW + 7, key="a")) == (1, 0)
        assert _items(store, 1) == [13]

    def test_a_session_becomes_a_user(self, store: HistoryStore) -> None:
        session = Session("s-1")
        first = Event(session, 11, NOW + 1, key="a")
        _kept(store, Event(42, 10, NOW), Event(42, 12, NOW + 2), Event("s-1", 5, NOW))
        _kept(store, first, Event(session, 9, NOW + 1), Event(session, 8, NOW - 1))
        before = store.history(42).seq
        assert _items(store, session) == [8, 11, 9]
        assert store.merge(session, 42, NOW) == 3
        assert _items(store, 42) == [8, 10, 11, 9, 12]
        assert _items(store, session) == []
        assert _items(store, "s-1") == [5]
        assert store.merge(session, 42, NOW) == 0
        assert _items(store, 42, until=before) == [10, 12]
        # A repeated merge is accepted.
        assert _kept(store, first) == (0, 1)
        assert store.erase(42, NOW) == (5, NOW)
        assert store.erased() == {42: NOW}

    def test_retention_keeps_the_latest(self, store: HistoryStore) -> None:
        for user in range(7):
            _kept(store, *(Event(user, item, NOW + item, key=f"{user}.{item}") for item in range(user)))
        turns = [store.compact(Retention(keep_events=4), NOW, owners=3) for _ in range(6)]
        assert sum(turns) == 1 + 2
        assert _items(store, 6) == [2, 3, 4, 5]
        assert _items(store, 3) == [0, 1, 2]
        turns = [store.compact(Retention(keep_days=1), NOW + 86400 + 3, owners=3) for _ in range(6)]
        assert sum(turns) == 1 + 2 + 3 + 3 + 2 + 1
        assert _items(store, 6) == [3, 4, 5]
        assert _items(store, 3) == []
        assert store.history(3).seq == 0
        assert len(list(store.records())) == 1 + 2 + 3
        # One that came late goes first, and its number with it.
        _kept(store, Event("late", 1, NOW + 1))
        seq = store.history("late").seq
        _kept(store, Event("late", 0, NOW))
        assert sum(store.compact(Retention(keep_events=1), NOW) for _ in range(2)) == 1 + 2 + 1
        assert (_items(store, "late"), store.history("late").seq) == ([1], seq)

    def test_an_event_that_retention_removed_counts_once_too(self, store: HistoryStore) -> None:
        """A client that had no answer sends it again, if need be without a time."""
        session, few = Session("s"), Retention(keep_events=1)
        first, unkeyed = Event(1, 10, NOW, key="a", timed=False), Event(1, 11, NOW)
        _kept(store, first, unkeyed, Event(1, 12, NOW + 1), Event(session, 5, NOW, key="s"), Event(session, 6, NOW + 1))
        assert store.compact(few, NOW + 2) == 3
        assert _kept(store, replace(first, time=NOW + 5), unkeyed, Event(session, 5, NOW, key="s")) == (0, 3)
        with pytest.raises(KeyReused, match="key='a'"):
            _kept(store, replace(first, item=3))
        store.merge(session, 2, NOW)
        assert _kept(store, Event(session, 5, NOW, key="s")) == (0, 1)
        assert (_items(store, 1), _items(store, 2)) == ([12], [6])
        # The owner's erasure forgets all of them.
        store.erase(2, NOW)
        store.erase(1, NOW)
        assert _kept(store, Event(session, 5, NOW, key="s"), first, unkeyed) == (3, 0)
        assert store.compact(few, NOW + 2) == 1

    def test_a_key_is_forgotten_a_day_after_its_event_was_removed(self, store: HistoryStore) -> None:
        if self.has_clock:
            pytest.skip("a day by the clock of the store")
        few, first = Retention(keep_events=1), Event(1, 10, NOW, key="a")
        _kept(store, first, Event(1, 12, NOW + 1))
        assert store.compact(few, NOW) == 1
        store.compact(few, NOW + KEY_SECONDS)
        assert _kept(store, first) == (0, 1)
        store.compact(few, NOW + KEY_SECONDS + 1)
        assert _kept(store, first) == (1, 0)

    def test_all_events_can_be_read_once(self, store: HistoryStore) -> None:
        events = [
            Event(user, f"i{item}", NOW + item, "t", 1.5) for user in (1, "a", Session("s")) for item in range(300)
        ]
        _kept(store, *events)
        found = sorted(store.records(), key=lambda record: record.seq)
        assert [record.event for record in found] == events
        assert len({record.seq for record in found}) == len(events)

    def test_every_owner_of_an_event_is_listed_once(self, store: HistoryStore) -> None:
        owners = [*range(600), "a", "7", Session("s")]
        _kept(store, *(Event(owner, item, NOW) for owner in owners for item in (1, 2)))
        store.erase("a", NOW)
        store.merge(Session("s"), 600, NOW)
        found = list(store.owners())
        assert len(found) == 602
        assert set(found) == {*range(601), "7"}

    def test_documents_are_stored(self, store: HistoryStore) -> None:
        assert store.get("experiments") is None
        store.put("experiments", '{"a": "ü"}')
        store.put("experiments", '{"b": "ü"}')
        assert store.get("experiments") == '{"b": "ü"}'

    def test_a_document_is_replaced_only_if_unchanged(self, store: HistoryStore) -> None:
        assert not store.replace("items", "ü", "a")
        assert store.replace("items", None, "ü")
        assert not store.replace("items", None, "b")
        assert store.replace("items", "ü", "b")
        assert not store.replace("items", "ü", "c")
        assert not store.replace("items", None, "c", {"other": "d"})
        assert store.get("other") is None
        assert store.replace("items", "b", "c", {"other": "d", "third": ""})
        assert store.replace("fourth", None, "", {"other": "ü"})
        assert [store.get(name) for name in ("items", "other", "third", "fourth")] == ["c", "ü", "", ""]

    def test_ids_of_any_text_and_number(self, store: HistoryStore) -> None:
        strange: list[Id] = ["a:b", "ä\n\U0001f600", " ", "n5", "%s ? $1", "x" * 512, 2**64 - 1, -(2**63), 0]
        _kept(store, *(Event(each, each, NOW) for each in strange))
        for each in strange:
            assert _items(store, each) == [each]
        assert {record.event.user for record in store.records()} == set(strange)

    def test_many_threads_neither_lose_nor_duplicate_events(self, store: HistoryStore) -> None:
        draw = random.Random(0)
        mine = [
            [Event(draw.randrange(3), item, NOW + draw.randrange(50), key=f"{t}.{item}") for item in range(60)]
            for t in range(4)
        ]

        def send(events: list[Event]) -> None:
            waiting = [store.append(events[start : start + 3]) for start in range(0, len(events), 2)]
            assert not wait(waiting, 20).not_done
            assert events[-1].item in _items(store, events[-1].user)

        with ThreadPoolExecutor(len(mine)) as pool:
            list(pool.map(send, mine))
        found = list(store.records())
        assert len(found) == 4 * 60
        numbers = sorted((record.event.time, record.seq) for record in found if record.event.user == 1)
        assert [time for time, _ in numbers] == list(store.history(1).times)

    def test_equals_an_in_memory_reference(self, store: HistoryStore) -> None:
        """Random calls give the same results as plain lists."""
        draw, twin = random.Random(1), MemoryStore()
        owners: list[Owner] = [1, "1", Session("1"), 2]
        for step in range(150):
            owner = draw.choice(owners)
            action = draw.random()
            if action < 0.6:
                batch = [
                    Event(
                        draw.choice(owners),
                        draw.randrange(5),
                        NOW + draw.randrange(9),
                        type=draw.choice(["", "buy", "skip"]),
                        key=draw.choice([None, None, f"k{draw.randrange(40)}"]),
                        timed=draw.random() < 0.7,
                    )
                    for _ in range(draw.randrange(1, 4))
                ]
                outcomes = [each.append(batch).exception(10) for each in (store, twin)]
                assert (outcomes[0] is None) == (outcomes[1] is None)
                assert outcomes[0] is not None or store.append(batch).result(10).duplicates == len(batch)
            elif action < 0.7:
                assert store.erase(owner, NOW + step) == twin.erase(owner, NOW + step)
            elif action < 0.8:
                assert store.merge(Session("1"), 1, NOW + step) == twin.merge(Session("1"), 1, NOW + step)
            elif action < 0.9:
                retention = Retention(keep_events=draw.randrange(3, 9), keep_days=draw.choice([None, 1.0]))
                now = NOW + 86400 + draw.randrange(4)
                assert store.compact(retention, now, 100) == twin.compact(retention, now, 100)
            options: dict[str, Any] = {"last": draw.choice([None, 3]), "after": NOW + draw.randrange(-1, 5)}
            options["types"] = draw.choice([None, ["buy"], {"", "skip"}])
            mine, theirs = (replace(each.history(owner, **options), seq=0) for each in (store, twin))
            assert mine == theirs, step
            assert store.erased() == twin.erased()
        assert len(list(store.records())) == len(list(twin.records()))

    def test_a_closed_store_raises_an_error(self, store: HistoryStore) -> None:
        _kept(store, Event(1, 1, NOW))
        store.close()
        store.close()
        with pytest.raises(StoreUnavailable):
            _kept(store, Event(1, 2, NOW))

    def test_data_persist_when_the_store_is_reopened(self, store: HistoryStore, folder: Path) -> None:
        if not self.outlives:
            pytest.skip("it is lost with its process")
        seq = store.append([Event(1, 10, NOW, key="a"), Event(1, 11, NOW)]).result(10).seq
        store.erase(2, NOW)
        store.erase(1, NOW + 1)
        store.close()
        with closing(self.opened(folder)) as again:
            # Numbers are never reused, not even those of erased events.
            assert again.append([Event(1, 10, NOW, key="a")]).result(10).seq > seq
            assert _items(again, 1) == [10]
            assert again.erased() == {1: NOW + 1, 2: NOW}
            assert again.durable
