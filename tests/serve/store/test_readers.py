"""One read connection per thread, as long as the thread lives."""

import threading
from concurrent.futures import ThreadPoolExecutor

from beamwood.serve.store.readers import Readers


class Connection:
    def __init__(self):
        self.open = True

    def close(self):
        self.open = False


def test_connections_of_ended_threads_are_closed():
    """A job of many groups starts threads for each."""
    made, guard = [], threading.Lock()

    def connect():
        with guard:
            made.append(Connection())
            return made[-1]

    readers = Readers(connect)
    mine = readers.own()
    for _ in range(5):
        with ThreadPoolExecutor(3) as pool:
            [*pool.map(lambda _: readers.own(), range(9))]
    assert sum(each.open for each in made) <= 1 + 3
    assert readers.own() is mine
    assert mine.open
    readers.close()
    assert not any(each.open for each in made)


def test_a_dropped_connection_is_replaced():
    readers = Readers(Connection)
    first = readers.own()
    readers.drop()
    assert not first.open
    assert readers.own() is not first
    readers.drop()
    readers.drop()
    readers.close()
