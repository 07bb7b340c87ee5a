"""The single writer thread: writes cancelled in time are skipped, and nothing stops the thread."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from beamwood.serve.store.event import Event
from beamwood.serve.store.group import Batch, GroupWriter
from beamwood.serve.store.protocol import Appended, KeyReused

BOUND = 30


class Slow:
    """A commit that blocks until it is released."""

    def __init__(self) -> None:
        self.begun, self.may_go, self.kept = threading.Event(), threading.Event(), list[Any]()

    def commit(self, batches: list[Batch]) -> list[Appended | KeyReused]:
        self.begun.set()
        assert self.may_go.wait(BOUND)
        self.kept += [event.item for batch in batches for event in batch]
        return [Appended(range(len(batch)), 0, 1) for batch in batches]


def test_a_caller_that_gives_up_does_not_stop_others() -> None:
    slow = Slow()
    writer = GroupWriter("slow", slow.commit)
    try:
        first = writer.append([Event(1, "first", 1.0)])
        assert slow.begun.wait(BOUND)
        assert not first.cancel(), "it is being written"
        others = {name: writer.append([Event(1, name, 1.0)]) for name in ("second", "third", "fourth", "gone", "fifth")}
        assert others["second"].cancel()
        assert others["third"].cancel()
        # Behind one that is written.
        assert others["gone"].cancel()
        slow.may_go.set()
        assert first.result(BOUND).accepted == others["fifth"].result(BOUND).accepted == 1
        with pytest.raises(CancelledError):
            others["second"].result(BOUND)
        assert writer.call(lambda: "still there") == "still there"
        assert writer.append([Event(1, "sixth", 1.0)]).result(BOUND).accepted == 1
    finally:
        slow.may_go.set()
        writer.close()
    assert slow.kept == ["first", "fourth", "fifth", "sixth"]
