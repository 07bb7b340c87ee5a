"""One recommendation: from a body to an answer."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

from beamwood.retrieval.searchers.tree import LaterHits, TreeSearcher
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.explaining import explained
from beamwood.serve.answer.filter_form import refusing
from beamwood.serve.answer.found import Found, FoundItems, answer_items, found_by_model, found_by_search, limits_new
from beamwood.serve.answer.request_form import Asked, asked_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Answer, Recommend, Took
from beamwood.serve.problems import check_time
from beamwood.serve.settings import Limits

__all__ = ["Recommending", "recommended"]


def recommended(
    snapshot: Snapshot,
    body: Recommend,
    kept: StoredHistory,
    limits: Limits,
    pressure: float = 0.0,
    *,
    request_id: str,
    deadline: float = math.inf,
) -> tuple[Answer, FoundItems]:
    """The answer to a body, and all items found. Errors: `Problem` on what does not fit this snapshot, and where the
    `deadline` (by `time.monotonic`) passes between two steps.
    """
    return Recommending(snapshot, body, kept, limits, request_id=request_id, deadline=deadline)(pressure)


class Recommending:
    """One recommendation: as a whole on the calling thread, or in two steps around a search that the native core makes
    on its own threads. Errors: as `recommended`.
    """

    __slots__ = ("_asked", "_later", "_seconds", "body", "deadline", "kept", "limits", "request_id", "snapshot")

    def __init__(
        self,
        snapshot: Snapshot,
        body: Recommend,
        kept: StoredHistory,
        limits: Limits,
        *,
        request_id: str,
        deadline: float,
    ) -> None:
        self.snapshot, self.body, self.kept, self.limits = snapshot, body, kept, limits
        self.request_id, self.deadline = request_id, deadline
        self._asked: Asked | None = None
        self._later: LaterHits | None = None
        self._seconds = 0.0

    def __call__(self, pressure: float) -> tuple[Answer, FoundItems]:
        """The answer to the body, and all items found."""
        began = time.perf_counter()
        with refusing(self.snapshot, self.body.filter, self.body.promote):
            asked = asked_of(self.snapshot, self.body, self.kept, self.limits, pressure)
            found = found_by_search(self.snapshot, self.body, asked, self.limits, partial(check_time, self.deadline))
            return self._answered(asked, found, time.perf_counter() - began), found.items

    def begin(self, pressure: float) -> Any:
        """The native task of the search; None where the answer needs more, and is made as a whole."""
        began = time.perf_counter()
        snapshot, body = self.snapshot, self.body
        if body.dry_run or body.explain != "none" or not isinstance(snapshot.searcher, TreeSearcher):
            return None
        with refusing(snapshot, body.filter, body.promote):
            asked = asked_of(snapshot, body, self.kept, self.limits, pressure)
            if asked.rules is not None or limits_new(snapshot, self.limits):
                return None
            later = snapshot.searcher.later(asked.query, asked.k, asked.options)
        if later is None:
            return None
        self._asked, self._later, self._seconds = asked, later, time.perf_counter() - began
        return later.search.task

    def end(self, searched: float) -> tuple[Answer, FoundItems]:
        """The answer, once the task of `begin` ran for `searched` seconds."""
        began = time.perf_counter()
        assert self._asked is not None
        assert self._later is not None
        with refusing(self.snapshot, self.body.filter, self.body.promote):
            found = found_by_model(self.snapshot, self._asked, self._later.hits())
            seconds = self._seconds + searched + time.perf_counter() - began
            return self._answered(self._asked, found, seconds), found.items

    def _answered(self, asked: Asked, found: Found, searched: float) -> Answer:
        snapshot, body, known, hits = self.snapshot, self.body, asked.known, found.hits
        ranked = 0.0 if hits is None else hits.rank_seconds
        items = answer_items(snapshot, found.items, body.k, body.fields)
        whole = None
        if body.explain != "none" and hits is not None:
            full, shown = body.explain == "full", found.items.items[: body.k]
            in_time = partial(check_time, self.deadline)
            whole = explained(snapshot, asked.query, hits, asked.options, items, shown, full=full, in_time=in_time)
        length, options = snapshot.history_length, asked.options
        return Answer(
            request_id=self.request_id,
            model=snapshot.model,
            snapshot=snapshot.number,
            source=found.source,  # type: ignore[arg-type]
            history_used=len(known.history) if length is None else min(length, len(known.history)),
            history_seq=known.seq,
            stale_history=known.stale,
            unknown_user=known.unknown_user,
            beam_width=asked.rung.beam_width,
            degraded=asked.rung is not snapshot.rungs[0] and body.beam_width is None and body.effort is None,
            allowed=None if options.allowed is None else options.num_allowed,
            took_ms=Took(search=round(1000 * searched, 3), rank=round(1000 * ranked, 3)),
            items=items,
            unknown_items=known.unknown_items,
            explain=whole,
        )
