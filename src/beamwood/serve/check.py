"""`beamwood serve --check`: whether all files are present and sound, and the service answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from beamwood.errors import InputError
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.messages import Recommend
from beamwood.serve.problems import Problem
from beamwood.serve.server import check_binding
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings

__all__ = ["check"]


def check(folder: str, settings: ServeSettings) -> dict[str, Any]:
    """The findings about a folder whose files were all read and verified. Errors: `InputError` naming the problem."""
    check_binding(settings)
    service = Service.open(folder, settings)
    try:
        snapshot = service.models.answering()
        histories = snapshot.names.histories
        history = [] if not histories else snapshot.names.items.decode(histories[0][-100:])
        # Some methods answer known users only.
        user = (
            snapshot.names.users.decode(np.zeros(1, np.int64))[0]
            if snapshot.needs.users and snapshot.names.users
            else None
        )
        # The user may have seen every item.
        body = Recommend(history=history if user is None else None, user=user, exclude_seen=False)
        answer, _ = recommended(snapshot, body, StoredHistory(), settings.limits, request_id="check")
        if not answer.items:
            raise InputError(f"{folder} answers with no item; fit and save it again")
        return {
            "model": snapshot.model,
            "items": snapshot.num_items,
            "users": 0 if snapshot.names.users is None else len(snapshot.names.users),
            "answered": len(answer.items),
            "ms": answer.took_ms.search,
            "threads": settings.search_threads,
        }
    except Problem as problem:
        raise InputError(problem.message) from None
    finally:
        service.close()
