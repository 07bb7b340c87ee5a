"""Replay of an answer with its reasons: from the model and the history as they were."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from beamwood.errors import InputError
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.kept import kept_of
from beamwood.serve.answer.rungs import rung_at
from beamwood.serve.answer.snapshot import Snapshot, open_snapshot
from beamwood.serve.items.learned import Learned, earlier_learned, read_learned
from beamwood.serve.items.widened import widened
from beamwood.serve.messages import Answer
from beamwood.serve.monitoring.outcomes import AnswerRecord
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits
from beamwood.serve.store.protocol import Answered, HistoryStore

__all__ = ["Replayed", "replayed"]


class Replayed(Struct):
    """The answer with its explanation; `reproduced`: items and scores equal the original ones."""

    answered: Answered
    answer: Answer
    reproduced: bool


def replayed(
    store: HistoryStore,
    request_id: str,
    *,
    folder: Path | None = None,
    items: Path | None = None,
    searchers: Callable[[Path], Mapping[str, type[Any]]] | None = None,
) -> Replayed:
    """The stored answer to a request, repeated with `explain="full"`.

    `folder`: the model's current folder; `items`: the item table of the service; `searchers`: of a folder the classes
    that only the method's own file defines. Errors: `InputError` on an unknown request, or another model.
    """
    row = f"{request_id}.0"
    answers = store.noted([request_id, row])
    noted = answers.get(request_id)
    if noted is None:
        fix = "answers are kept for --keep-answers, by their request_id"
        if row in answers:
            fix = f"it is a batch, whose rows are {row!r} and so on"
        raise InputError(f"the store keeps no answer {request_id!r}; {fix}")
    asked = msgspec.json.decode(noted.text, type=AnswerRecord)
    # A store lets go of it a while later, or only once a service runs again.
    if time.time() > noted.time + asked.keep_answers:
        raise InputError(f"the answer {request_id!r} is older than the --keep-answers of its server")
    if asked.is_page:
        raise InputError(f"{request_id!r} is a further page of an answer; explain the first one, which was searched")
    path = Path(asked.folder) if folder is None else folder
    classes = None if searchers is None else searchers(path)
    snapshot = open_snapshot(
        path, items=items, min_beam=asked.min_beam, by_category=asked.by_category, searchers=classes
    )
    if snapshot.key != asked.key:
        raise InputError(f"{snapshot.folder} holds another model than the one that answered; give its --folder")
    limits = replace(Limits(), **asked.limits)  # type: ignore[arg-type]
    if asked.learned:
        snapshot = widened(snapshot, _learned(store, asked.learned), snapshot.number)
    kept = StoredHistory(stale=True)
    if noted.owner is not None and not asked.stale:
        kept = kept_of(store, noted.owner, snapshot, asked.body, limits, until=asked.seq)
    # Without the table its columns are not shown; a filter may still need them.
    fields = asked.body.fields if items is not None else []
    body = structs.replace(asked.body, explain="full", cursor=None, fields=fields)
    try:
        for pressure in _pressures(snapshot, asked.beam_width):
            answer, _ = recommended(snapshot, body, kept, limits, request_id=request_id, pressure=pressure)
            found = tuple(each.item for each in answer.items)
            same = found == noted.items and [each.score for each in answer.items] == asked.scores
            if same:
                break
    except Problem as problem:
        raise InputError(f"{problem.message}; give the --items that the server had") from None
    return Replayed(noted, answer, same)


def _learned(store: HistoryStore, name: str) -> Learned:
    """What was learned by then, or by now where the store has overwritten it: most changes leave most answers alone."""
    found = earlier_learned(store, name)
    return (read_learned(store, None)[1] or Learned()) if found is None else found


def _pressures(snapshot: Snapshot, beam_width: int | None) -> list[float]:
    """Those under which searches may have been so narrow, as a light head has several ways of one width."""
    steps = max(len(snapshot.rungs) - 1, 1)
    some = [place / steps for place in range(steps + 1)]
    return [each for each in some if rung_at(snapshot.rungs, each).beam_width == beam_width] or [0.0]
