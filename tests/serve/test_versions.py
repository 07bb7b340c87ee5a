"""Versions of the learned catalogue in the store: written, read and kept by pieces."""

import numpy as np
import pytest
from msgspec import structs

from beamwood.serve.items.learned import CatalogueItem, Learned, earlier_learned, read_learned, write_learned
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import StoreUnavailable


def changed(learned, rng, number):
    """A next version: an item more, others of another category, an id hidden or shown."""
    made = learned.copy()
    made.items[f"item {number}"] = CatalogueItem(f"item {number}", fields={"price": number / 4})
    for name in rng.choice([*made.items], 2).tolist():
        made.items[name] = structs.replace(made.items[name], category=f"c{number}")
    if rng.random() < 0.5 and made.unavailable:
        made.unavailable.pop(int(rng.integers(len(made.unavailable))))
    else:
        made.unavailable.append(number)
    made.erased += [number] * (number % 5 == 0)
    return made


def content(learned):
    return [*learned.items.values()], learned.unavailable, learned.erased


@pytest.mark.parametrize("long", [2**18, 500])
def test_versions_are_read_as_they_were_written(monkeypatch, long):
    """By the process that wrote them, by one that had others, by one without any; and earlier ones by name."""
    monkeypatch.setattr("beamwood.serve.items.learned._PIECE", 4)
    monkeypatch.setattr("beamwood.serve.items.learned._LONG", long)
    store, rng, name, versions = MemoryStore(), np.random.default_rng(0), None, {}
    learned, other, seen = Learned(), Learned(), None
    for number in range(60):
        fresh = changed(learned, rng, number)
        name = write_learned(store, name, fresh, learned)
        assert write_learned(store, "of another", fresh, learned) is None
        learned = versions[name] = fresh
        assert name == learned.name
        if rng.random() < 0.3:
            seen, other = read_learned(store, seen, other)
            assert content(other) == content(learned)
            shared = [piece for piece in learned.pieces["items"] if piece in other.pieces["items"]]
            assert not shared, "this process has read them itself"
    assert content(read_learned(store, None)[1]) == content(learned)
    found = {name: earlier_learned(store, name) for name in versions}
    left = [name for name, version in found.items() if version is not None]
    assert all(content(found[name]) == content(versions[name]) for name in left)
    assert len(left) > (30 if long > 500 else 3)
    assert len(left) < 60 or long > 500


def test_pieces_that_stay_are_shared():
    store, items = MemoryStore(), [CatalogueItem(number) for number in range(1000)]
    first = Learned(items)
    name = write_learned(store, None, first, Learned())
    _, read = read_learned(store, None)
    second = first.copy()
    second.items[300] = CatalogueItem(300, "c1")
    write_learned(store, name, second, first)
    _, again = read_learned(store, name, read)
    for old, new in ((first, second), (read, again)):
        same = [one is two for one, two in zip(old.pieces["items"], new.pieces["items"], strict=True)]
        assert same == [True, True, False, *[True] * 5]


def test_a_version_is_none_where_a_piece_of_it_was_overwritten():
    store, learned = MemoryStore(), Learned([CatalogueItem("a")], [1, 2])
    name = write_learned(store, None, learned, Learned())
    (piece,) = learned.pieces["unavailable"]
    store.put(f"catalogue.unavailable.0@{piece.name[:2]}", "[3]")
    assert earlier_learned(store, name) is None
    with pytest.raises(StoreUnavailable, match="restore the store"):
        read_learned(store, None)
    # A process that has the piece does not need it.
    assert content(earlier_learned(store, name, learned)) == content(learned)
