"""One read connection per thread, as long as the thread lives."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamwood.serve.store.protocol import StoreUnavailable
from beamwood.serve.store.readers import Readers
from bounded import joined


class Connection:
    def __init__(self):
        self.open = True

    def close(self):
        self.open = False


def own_of(readers):
    return readers.use(lambda own: own)


def test_connections_of_ended_threads_are_closed():
    """A job of many groups starts threads for each."""
    made, guard = [], threading.Lock()

    def connect():
        with guard:
            made.append(Connection())
            return made[-1]

    readers = Readers(connect)
    mine = own_of(readers)
    for _ in range(5):
        with ThreadPoolExecutor(3) as pool:
            [*pool.map(lambda _: own_of(readers), range(9))]
    assert sum(each.open for each in made) <= 1 + 3
    assert own_of(readers) is mine
    assert mine.open
    readers.close()
    assert not any(each.open for each in made)


def test_a_dropped_connection_is_replaced():
    readers = Readers(Connection)
    first = own_of(readers)
    readers.drop()
    assert not first.open
    assert own_of(readers) is not first
    readers.drop()
    readers.drop()
    readers.close()


def test_a_connection_in_use_is_not_closed():
    """A driver may crash the process if its connection is closed during a statement."""
    readers, began, closing, seen = Readers(Connection), threading.Event(), threading.Event(), []

    def reads(own):
        began.set()
        assert closing.wait(30)
        time.sleep(0.1)
        seen.append(own.open)

    def closes():
        closing.set()
        readers.close()

    reader = threading.Thread(target=readers.use, args=[reads])
    reader.start()
    assert began.wait(30)
    closer = threading.Thread(target=closes)
    closer.start()
    joined([reader, closer])
    assert seen == [True]
    with pytest.raises(StoreUnavailable, match="closed"):
        own_of(readers)
