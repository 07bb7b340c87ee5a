"""Reading the latest events of an owner takes as long with many stored ones as with few."""

from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store

FEW, MANY = 200, 4000


def stored(store, owner, number):
    events = [Event(owner, item, 1e9 + item) for item in range(number)]
    store.append(events).result()


def test_sqlite_takes_as_many_steps(tmp_path):
    """Steps of its virtual machine, in tens; nothing is timed."""
    steps = {}
    store = open_store(f"sqlite:{tmp_path / 'events.db'}")
    for owner, number in ((1, FEW), (2, MANY)):
        stored(store, owner, number)
        for name, read in {
            "history": lambda owner=owner: store.history(owner, last=10),
            "page": lambda owner=owner: store.page(owner, limit=10),
        }.items():
            counted = []
            store._readers.use(lambda own, counted=counted: own.set_progress_handler(lambda: counted.append(1), 10))
            assert read()
            steps[name, owner] = len(counted)
    store.close()
    for name in ("history", "page"):
        assert steps[name, 2] < 2 * steps[name, 1], steps
