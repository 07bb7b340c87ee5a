"""Stored answers as text."""

from __future__ import annotations

import json

from beamwood.serve.store.event import id_text, read_id, read_owner
from beamwood.serve.store.protocol import Answered

__all__ = ["answer_text", "read_answer"]


def answer_text(answer: Answered) -> str:
    """The items and the text as JSON; other fields are stored separately."""
    return json.dumps([[id_text(item) for item in answer.items], answer.text], separators=(",", ":"))


def read_answer(request_id: str, owner: str | None, time: float, group: str, body: str) -> Answered:
    """The answer from its stored fields; the inverse of `answer_text`."""
    items, text = json.loads(body)
    who = None if owner is None else read_owner(owner)
    return Answered(request_id, who, float(time), group, tuple(read_id(item) for item in items), text)
