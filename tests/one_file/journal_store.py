"""A custom history store: it is in memory, and each change is a line of a file, which the next start reads."""

import os
import threading
from pathlib import Path

from msgspec import json

from beamwood.serve.store.event import Event, Id, Owner, Session
from beamwood.serve.store.group import GroupWriter
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import Answered, KeyReused, Retention, StoreUnavailable

# The arguments of each change.
CHANGES = {
    "append": tuple[list[Event]],
    "erase": tuple[Owner, float],
    "merge": tuple[Session, Id, float],
    "compact": tuple[Retention, float, int],
    "put": tuple[str, str],
    "replace": tuple[str, str | None, str, dict[str, str] | None],
    "note": tuple[list[Answered], float, float],
    "hit": tuple[list[str]],
    "tally": tuple[str, str],
}


class Journal(MemoryStore):
    """`place`: the path of the file."""

    kind, durable = "journal", True

    def __init__(self, place, *, read_only=False):
        super().__init__()
        self._order, self._file, size = threading.Lock(), None, 0
        # The service appends on its event loop, which must not wait for the disk.
        self._writer = GroupWriter("journal", self._commit)
        path = Path(place)
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if not line.endswith(b"\n"):
                break  # a write that was broken off, and not acknowledged
            size += len(line)
            name, arguments = line.split(b" ", 1)
            change = name.decode()
            getattr(MemoryStore, change)(self, *json.decode(arguments, type=CHANGES[change]))
        if not read_only:
            self._file = path.open("ab", buffering=0)
            self._file.truncate(size)

    def _change(self, name, *arguments):
        with self._order:
            self._check()
            size = os.fstat(self._file.fileno()).st_size
            try:
                self._file.write(name.encode() + b" " + json.encode(arguments) + b"\n")
                os.fsync(self._file.fileno())
            except OSError as error:
                self._file.truncate(size)
                raise StoreUnavailable(f"the journal cannot be written: {error}") from error
            return getattr(MemoryStore, name)(self, *arguments)

    def append(self, events):
        return self._writer.append(events)

    def _commit(self, batches):
        outcomes = [self._change("append", batch) for batch in batches]
        return [error if isinstance(error := each.exception(), KeyReused) else each.result() for each in outcomes]

    def erase(self, owner, now):
        return self._change("erase", owner, now)

    def merge(self, session, user, now):
        return self._change("merge", session, user, now)

    def compact(self, retention, now, owners=500):
        return self._change("compact", retention, now, owners)

    def put(self, name, value):
        return self._change("put", name, value)

    def replace(self, name, before, value, beside=None):
        return self._change("replace", name, before, value, None if beside is None else dict(beside))

    def note(self, answers, seconds, now):
        return self._change("note", list(answers), seconds, now)

    def hit(self, request_ids):
        return self._change("hit", list(request_ids))

    def tally(self, group, name):
        return self._change("tally", group, name)

    def close(self):
        self._writer.close()
        super().close()
        if self._file is not None:
            self._file.close()


STORE = Journal
