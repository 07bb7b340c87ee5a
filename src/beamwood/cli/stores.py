"""A server's store of histories, opened for reading while the server runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from beamwood.errors import InputError
from beamwood.extras import asking_for
from beamwood.words import followed

if TYPE_CHECKING:
    from beamwood.serve.store.protocol import HistoryStore

__all__ = ["reading_store"]


@contextmanager
def reading_store(address: str, command: str) -> Iterator[HistoryStore]:
    """A context with the store at an address open. Errors: a missing extra; its server is down; "memory"."""
    if address == "memory":
        raise InputError("the store 'memory' is read by its server alone; start the server with sqlite:PATH or another")
    with asking_for(command):
        from beamwood.serve.store.open import open_store
        from beamwood.serve.store.protocol import StoreUnavailable
    try:
        with closing(open_store(address, read_only=True)) as store:
            yield store
    except StoreUnavailable as error:
        hint = "give the file of a server's store" if address.startswith("sqlite:") else "is its server running?"
        raise InputError(followed(str(error), hint)) from error
