"""The first compaction of a grown store: writes have their turn, and what it leaves is done later."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from beamwood.serve.store.event import Event
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore, Retention, StoreUnavailable
from beamwood.serve.store.sql import SqlStore
from store_servers import address_of

NOW, DAY = 1.7e9, 86400
FEW = Retention(keep_events=3)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def writing(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store that writes on a thread of its own."""
    with closing(open_store(address_of(request.param, request, tmp_path))) as opened:
        yield opened


def test_appends_have_their_turn_between_a_few_thousand_deletions(
    writing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing.append([Event(0, item, NOW + item) for item in range(5000)]).result(60)
    writing.append([Event(user, item, NOW + item) for user in range(1, 41) for item in range(100)]).result(60)
    real, left = writing._writer.call, [9000]

    def call(work: Callable[[], Any]) -> Any:
        result = real(work)
        left.append(sum(1 for _ in writing.records()))
        return result

    monkeypatch.setattr(writing._writer, "call", call)
    assert writing.compact(FEW, NOW) == 9000 - 41 * 3
    steps = [before - after for before, after in pairwise(left)]
    assert max(steps) <= 2000
    assert sum(steps) == 9000 - 41 * 3


def test_owners_without_too_many_events_are_a_few_at_a_time(writing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at, which takes time too."""
    writing.append([Event(user, 0, NOW) for user in range(90)]).result(60)
    real, turns = writing._writer.call, list[None]()

    def call(work: Callable[[], Any]) -> Any:
        turns.append(None)
        return real(work)

    monkeypatch.setattr(writing._writer, "call", call)
    assert writing.compact(FEW, NOW) == 0
    assert len(turns) >= 4


@pytest.mark.parametrize("retention", [FEW, Retention(keep_days=1.0), Retention(keep_events=5, keep_days=1.0)])
def test_what_a_compaction_leaves_is_deleted_by_later_ones(
    retention: Retention, writing: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sql", "redis"):
        monkeypatch.setattr(f"beamwood.serve.store.{module}._AT_ONCE", 7)
        # One turn a call.
        monkeypatch.setattr(f"beamwood.serve.store.{module}._LONGEST", -1.0)
    monkeypatch.setattr("beamwood.serve.store.redis._OWNERS_AT_ONCE", 2)
    twin = MemoryStore()
    # Every second owner's events come in the reverse order of their times.
    events = [
        Event(user, item, NOW + 5 + (-item if user % 2 else item)) for user in range(9) for item in range(4 * user)
    ]
    for store in (writing, twin):
        store.append(events).result(60)
    now = NOW + DAY
    expected = twin.compact(retention, now)
    counts = [writing.compact(retention, now, owners=4) for _ in range(120)]
    assert sum(counts) == expected
    assert max(counts) <= 7
    for user in range(9):
        assert writing.history(user) == twin.history(user)
    # All keys are known for a day.
    assert writing.append(events).result(60).accepted == 0


def test_keys_are_forgotten_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamwood.serve.store.sql._AT_ONCE", 10)
    events = [Event(1, item, NOW + item) for item in range(33)]
    with closing(open_store(f"sqlite:{tmp_path / 'events.db'}")) as store:
        store.append(events).result(60)
        assert store.compact(FEW, NOW) == 30
        monkeypatch.setattr("beamwood.serve.store.sql._LONGEST", -1.0)
        known = [len(store._read("select 1 from beamwood_spent"))]
        for _ in range(3):
            store.compact(FEW, NOW + 2 * DAY)
            known.append(len(store._read("select 1 from beamwood_spent")))
        assert known == [30, 20, 10, 0]
        assert store.append(events).result(60).accepted == 30


def test_a_file_that_is_busy_after_a_compaction_is_a_store_that_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside a backup: the space is given back another time."""
    path, real = tmp_path / "events.db", SqlStore.compact
    with (
        closing(open_store(f"sqlite:{path}")) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        store.append([Event(1, item, NOW + item) for item in range(2000)]).result(60)
        store._connection.execute("pragma busy_timeout = 0")

        def compact(self: SqlStore, *arguments: Any) -> int:
            gone = real(self, *arguments)
            other.execute("begin immediate")
            return gone

        monkeypatch.setattr(SqlStore, "compact", compact)
        with pytest.raises(StoreUnavailable, match=r"events\.db cannot be written"):
            store.compact(FEW, NOW)
        other.execute("rollback")
        assert store.history(1).items == (1997, 1998, 1999)
