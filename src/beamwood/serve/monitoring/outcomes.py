"""The outcomes of answers: stored for a while, joined to later events by request_id, counted by arm, and replayed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from beamwood.blocks import slices
from beamwood.serve.active import ActiveModels
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.ids import indices_of
from beamwood.serve.answer.kept import kept_of, owner_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.clock import Steady
from beamwood.serve.engine import Engine, Priority
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.messages import Answer, Filter, Recommend
from beamwood.serve.monitoring.tallies import Tally
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.serve.store.event import Event, Id, Owner
from beamwood.serve.store.protocol import Answered, HistoryStore, StoreUnavailable

__all__ = ["AnswerRecord", "Outcomes", "group_of", "miss_of", "read_group"]

_ROUND_SECONDS, _SETTLE_SECONDS = 1.0, 2.5
_MOST_WAITING, _MOST_MISSES = 20_000, 10
# Events that are classified together, as a commit may wait for a disk.
_FOLLOWED_AT_ONCE = 500
_JUDGE_SECONDS = 10.0
# Answers that are too old are let go of as others are stored, else after so many seconds at most.
_LET_GO_SECONDS = 600.0
# What the last hits may take at the end of a process.
_CLOSE_SECONDS = 2.0
_ENCODER = msgspec.json.Encoder()
# Answers that are serialised together, and those that are stored together, as writes wait for them.
_TOGETHER, _AT_ONCE = 32, 2000


class AnswerRecord(Struct):
    """The data by which an answer can be replayed."""

    body: Recommend
    folder: str
    key: str
    seq: int | None
    stale: bool
    beam_width: int | None
    scores: list[float]
    learned: str = ""
    """The name of what was learned of items by then; see `serve.items.learned`."""
    limits: dict[str, int | float] = {}
    """Those of the service that were not as they are by default."""
    by_category: bool = False
    min_beam: int = 50
    is_page: bool = False
    """Whether it is a further page, which has no search of its own."""
    keep_answers: float = 86400.0
    """The seconds after which it must not be explained."""


@dataclass(frozen=True, slots=True)
class _Follow:
    due: float
    request_id: str
    item: Id


@lru_cache(maxsize=64)
def group_of(experiment: str, arm: str, model: str) -> str:
    """The key of a group in comparisons, as text."""
    return msgspec.json.encode([experiment, arm, model]).decode()


def read_group(text: str) -> tuple[str, str, str]:
    """Experiment, arm and model of a group; the inverse of `group_of`."""
    return msgspec.json.decode(text, type=tuple[str, str, str])


class Outcomes:
    """Records answers and joins events to them in the background; a store that is down delays figures, not answers.

    `tally` counts by arm and outcome; "lost", of no arm, are answers and events that nobody recorded in time.
    """

    def __init__(
        self,
        models: ActiveModels,
        histories: HistoryGateway,
        engine: Engine,
        tally: Tally,
        settings: ServeSettings,
    ) -> None:
        self._models, self._histories = models, histories
        self._engine, self._tally, self._settings = engine, tally, settings
        self._limits = settings.limits.changed()
        self._clock = Steady(settings.keep_answers, time.time(), time.monotonic())
        self._fresh: deque[Answered] = deque()
        self._unwritten: list[tuple[partial[Answered], AnswerRecord]] = []
        self._follows: deque[_Follow] = deque()
        self._misses: deque[tuple[Answered, Id]] = deque()
        self._stored_at = -math.inf
        # Without any kept, those of an earlier process are left.
        self._let_go_seconds = min(settings.keep_answers or math.inf, _LET_GO_SECONDS)

    def note(
        self,
        snapshot: Snapshot,
        body: Recommend,
        answer: Answer,
        erased: float | None,
        *,
        experiment: str,
        page_of: Owner | None = None,
    ) -> None:
        """Record an answer; `erased`: of the stored history; `experiment`: the one of its arm, which may have ended
        since; `page_of`: the owner of the cursor that it follows.
        """
        if body.dry_run or self._settings.keep_answers <= 0:
            return
        is_page = body.cursor is not None
        owner = page_of if is_page else owner_of(body)
        body = structs.replace(body, cursor=None) if is_page else body
        scores = [each.score for each in answer.items]
        asked = AnswerRecord(
            body,
            str(snapshot.folder),
            snapshot.key,
            answer.history_seq,
            answer.stale_history,
            answer.beam_width,
            scores,
            snapshot.learned,
            self._limits,
            snapshot.by_category,
            self._settings.min_beam,
            is_page,
            self._settings.keep_answers,
        )
        label = group_of("" if answer.arm is None else experiment, answer.arm or "", answer.model)
        items = [each.item for each in answer.items]
        answered = partial(Answered, answer.request_id, owner, time.time(), label, tuple(items), erased=erased)
        self._unwritten.append((answered, asked))
        self._tally.inc(answer.arm or "", "answer")
        if len(self._unwritten) >= _TOGETHER:
            self._write_out()

    def follow(self, events: Sequence[Event]) -> None:
        """Record events that may follow an answer."""
        due = time.monotonic() + _SETTLE_SECONDS
        self._follows.extend(_Follow(due, each.request_id, each.item) for each in events if each.request_id is not None)
        self._bound(self._follows)

    def _bound(self, waiting: deque[Any]) -> None:
        """Let go of the oldest where too many wait, and count them."""
        while len(waiting) > _MOST_WAITING:
            waiting.popleft()
            self._tally.inc("", "lost")

    async def keep_up(self) -> None:
        """Write recorded answers, and join the events that followed, as long as the service runs."""
        await self._in_rounds(lambda: self._joined(time.monotonic()))

    async def keep_judging(self) -> None:
        """Classify misses as long as the service runs: apart, as they wait for all other searches.

        Meanwhile answers are written, which an event at another process may follow.
        """
        await self._in_rounds(self._judged)

    async def _in_rounds(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            with suppress(Problem):
                await work()

    async def flush(self, now: float) -> None:
        """Write all answers so far, and classify the events that are due by `now`. Errors: `Problem`."""
        await self._joined(now)
        await self._judged()

    async def _joined(self, now: float) -> None:
        """Write all answers so far, and count the hits among the events that are due by `now`."""
        self._write_out()
        if self._fresh or now - self._stored_at > self._let_go_seconds:
            # Those that come meanwhile wait for the next round, so that this one ends.
            for _ in slices(max(1, len(self._fresh)), _AT_ONCE):
                await self._store_some()
            self._stored_at = now
        while due := self._due(now):
            try:
                missed = await self._missed(due)
            except BaseException:
                self._follows.extendleft(reversed(due))
                self._bound(self._follows)
                raise
            self._misses.extend(missed[: _MOST_MISSES - len(self._misses)])

    async def _judged(self) -> None:
        """Classify the misses that wait."""
        while self._misses:
            await self._miss(*self._misses.popleft())

    def _due(self, now: float) -> list[_Follow]:
        """Remove the next events that are due, and return them."""
        due: list[_Follow] = []
        while self._follows and self._follows[0].due <= now and len(due) < _FOLLOWED_AT_ONCE:
            due.append(self._follows.popleft())
        return due

    async def _store_some(self) -> None:
        """Write the oldest answers that wait, if any, and let go of what is too old."""
        some = [self._fresh.popleft() for _ in range(min(len(self._fresh), _AT_ONCE))]
        seconds, at = self._settings.keep_answers, self._clock.at(time.time(), time.monotonic())
        try:
            await self._histories.call("note", lambda store: store.note(some, seconds, at))
        except BaseException:
            # They are written in the next round, or at the end; of one that is written twice the first counts.
            self._fresh.extendleft(reversed(some))
            self._bound(self._fresh)
            raise

    def close(self) -> None:
        """Write the last records, and count the hits among the events that followed."""
        self._write_out()
        store, fresh = self._histories.store, list(self._fresh)
        if store is None:
            return
        with suppress(StoreUnavailable):
            at = self._clock.at(time.time(), time.monotonic())
            for part in slices(len(fresh), _AT_ONCE):
                store.note(fresh[part], self._settings.keep_answers, at)
        with suppress(StoreUnavailable):
            self._count_hits(store)

    def _count_hits(self, store: HistoryStore) -> None:
        until = time.monotonic() + _CLOSE_SECONDS
        while time.monotonic() < until and (due := self._due(math.inf)):
            hits, _ = _parted(due, store.noted([each.request_id for each in due]))
            self._count(hits, store.hit(list(hits)))

    def _write_out(self) -> None:
        """Serialise in batches, which is faster, and needs less memory than the objects."""
        for answered, asked in self._unwritten:
            self._fresh.append(answered(_ENCODER.encode(asked).decode()))
        self._unwritten.clear()
        self._bound(self._fresh)

    async def _missed(self, due: Sequence[_Follow]) -> list[tuple[Answered, Id]]:
        """Count the hits among events; return the items that were not in their answers, with those."""
        names = [each.request_id for each in due]
        answers = await self._histories.call("noted", lambda store: store.noted(names))
        hits, missed = _parted(due, answers)
        if hits:
            self._count(hits, await self._histories.call("hit", lambda store: store.hit(list(hits))))
        return missed

    async def _miss(self, answer: Answered, item: Id) -> None:
        asked = msgspec.json.decode(answer.text, type=AnswerRecord)
        snapshot = self._models.find(asked.key)
        if snapshot is None or asked.stale or asked.is_page:
            return
        # Without the share of new items: with it the list is not in the order of scores.
        limits, owner = replace(self._settings.limits, new_item_share=1.0), answer.owner
        scores = asked.scores
        lowest = [answer.items[at] for at in sorted(range(len(scores)), key=lambda at: (scores[at], -at))[:1]]
        kept = StoredHistory()
        if owner is not None:
            kept = await self._histories.call(
                "read", lambda store: kept_of(store, owner, snapshot, asked.body, limits, until=asked.seq)
            )
        ran = await self._engine.run(
            lambda pressure: miss_of(snapshot, asked.body, kept, lowest, item, limits),  # noqa: ARG005
            deadline=time.monotonic() + _JUDGE_SECONDS,
            priority=Priority.WARM_UP,
        )
        await self._histories.call("tally", lambda store: store.tally(answer.group, ran.value))
        self._tally.inc(_arm_of(answer), ran.value)

    def _count(self, hits: Mapping[str, Answered], counted: Collection[str]) -> None:
        for name in counted:
            self._tally.inc(_arm_of(hits[name]), "hit")


def _parted(
    due: Sequence[_Follow], answers: Mapping[str, Answered]
) -> tuple[dict[str, Answered], list[tuple[Answered, Id]]]:
    """The answers that contain an item of their events, by request; the other events' answers, with the items."""
    pairs = [(answers[each.request_id], each.item) for each in due if each.request_id in answers]
    hits = {answer.request_id: answer for answer, item in pairs if item in answer.items}
    return hits, [(answer, item) for answer, item in pairs if item not in answer.items]


def _arm_of(answer: Answered) -> str:
    return read_group(answer.group)[1]


def miss_of(
    snapshot: Snapshot, body: Recommend, kept: StoredHistory, lowest: Sequence[Id], item: Id, limits: Limits
) -> str:
    """Why a taken item was not shown.

    "missed_unknown": the model lacks it; "missed_filter": it was filtered out, or seen; "missed_search": the model
    scores it above `lowest`, the shown item with the least score (none for an empty answer), but the search did not
    find it; "missed_model": the model scores it below; "missed_rules": diversity, a cap or a promotion displaced it.
    """
    if int(indices_of(snapshot.names.items, [item])[0]) < 0:
        return "missed_unknown"
    given = Filter() if body.filter is None else body.filter
    if given.items is not None and item not in given.items:
        return "missed_filter"
    pair = [item, *lowest]
    plain: dict[str, Any] = {"max_per_category": None, "diversity": 0.0, "promote": [], "explain": "none", "fields": []}
    plain |= {"pages": False, "cursor": None, "beam_width": None, "effort": None, "on_unknown": "ignore"}
    asked = structs.replace(body, k=2, filter=structs.replace(given, items=pair), **plain)
    answer, _ = recommended(snapshot, asked, kept, limits, request_id="")
    order = [each.item for each in answer.items]
    if item not in order:
        return "missed_filter"
    if order[0] != item:
        return "missed_model"
    return "missed_rules" if body.diversity or body.max_per_category is not None or body.promote else "missed_search"
