"""The settings of `beamwood serve`, as one frozen record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from beamwood.errors import InputError
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore, Retention
from beamwood.system import processors

__all__ = ["Limits", "ServeSettings"]

# As browsers send it: in lower case.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^\s/?#@:*\[\]A-Z]+|\[[0-9a-f:.]+\])(?::\d{1,5})?|\*")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request; beyond, it is refused."""

    body_bytes: int = 256 * 2**10
    k: int = 1000
    history: int = 2000
    filter_ids: int = 10_000
    conditions: int = 100
    promotions: int = 10
    beam_width: int = 2000
    batch_rows: int = 256
    events: int = 1000
    connections: int = 1024
    header_bytes: int = 64 * 2**10
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 75.0
    new_item_share: float = 0.1
    """The share of an answer's places for new items."""
    queued_rows: int = 4096
    """Waiting rows of batches, of all callers together."""
    pages_k: int = 200
    """Items that are searched where pages are requested."""

    def with_new_item_share(self, share: float | None) -> Limits:
        """These with another share, unless that is None."""
        return self if share is None else replace(self, new_item_share=share)

    def changed(self) -> dict[str, int | float]:
        """Those that are not as they are by default."""
        own = asdict(self)
        return {each.name: own[each.name] for each in fields(self) if own[each.name] != each.default}


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """See `beamwood serve --help`; durations in seconds. `threads` 0: one for each core."""

    host: str = "127.0.0.1"
    port: int = 8000
    threads: int = 0
    store: str = "memory"
    retention: Retention = field(default_factory=Retention)
    keep_answers: float = 86400.0
    """Seconds that answers are stored, for events and explanations; 0: none are."""
    tokens: Path | None = None
    insecure: bool = False
    items: Path | None = None
    timeout: float = 0.5
    max_wait: float = 0.1
    min_beam: int = 50
    filter_cache: int = 256 * 2**20
    watch: bool = False
    models_dir: Path | None = None
    log: str = "json"
    log_users: bool = False
    otlp: str | None = None
    """The collector of request spans; None: none."""
    by_category: bool = False
    """A new item without other information is placed by its category."""
    page: bool = True
    drain: float = 5.0
    grace: float = 30.0
    cors: tuple[str, ...] = ()
    rate: float = 0.0
    """Requests a second for each token; 0: unlimited."""
    limits: Limits = field(default_factory=Limits)
    searchers: Callable[[Path], Mapping[str, type[Any]]] | None = None
    """Of a folder the classes that only the method's own file defines, by kind; see `Retriever.load`."""

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise InputError("--timeout is above 0: within it answers are given")
        for origin in self.cors:
            if _ORIGIN.fullmatch(origin) is None:
                raise InputError(
                    f"--cors {origin!r} is not an origin; write https://shop.example, with a port if the page has one, "
                    "or * for all pages"
                )

    def opened_store(self) -> HistoryStore:
        """The store of histories. Errors: see `open_store`."""
        return open_store(self.store)

    @property
    def search_threads(self) -> int:
        """T, the number of search threads."""
        return self.threads or processors()

    @property
    def is_local(self) -> bool:
        """Whether it listens on this machine only."""
        return self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def is_for_this_machine(self) -> bool:
        """Whether all programs of this machine may ask without a token, and nobody else."""
        return self.is_local and self.tokens is None and not self.insecure
