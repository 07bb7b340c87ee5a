"""A server killed at random while it receives events: acknowledged events are stored once and in order."""

from __future__ import annotations

import http.client
import random
import signal
import threading
import time

import pytest

from bounded import joined
from served import Server, saved

NOW = int(time.time())
USERS = 4


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_server_keeps_what_it_acknowledged(kills, tmp_path):
    folder, _ = saved(tmp_path / "model")
    options = ["--store", f"sqlite:{tmp_path / 'events.db'}", "--timeout", "60s", "--log", "none"]
    draw, acknowledged, number = random.Random(kills), [], 0
    for _ in range(kills):
        with Server(folder, *options) as server:
            killer = threading.Timer(draw.uniform(0.05, 0.4), server.signal, [signal.SIGKILL])
            killer.start()
            for each in range(number, number + 100_000):
                number = each
                user = each % USERS
                body = {"user": user, "item": f"i{each}", "time": NOW - 10_000 + each, "key": str(each)}
                try:
                    status, _ = server.ask("/v1/events", {"events": [body]})
                    assert status == 200
                    acknowledged.append(each)
                    asked = server.ask("/v1/recommend", {"user": 100 + user, "k": 3})
                    assert asked[0] == 200
                except (OSError, http.client.HTTPException):  # a truncated answer acknowledges nothing
                    break
            joined([killer])
            # The next run starts with the events that got no answer; they may be stored already.
    assert acknowledged
    with Server(folder, *options) as server:
        for user in range(USERS):
            items = _history(server, user)
            assert len(items) == len(set(items))
            assert {f"i{each}" for each in acknowledged if each % USERS == user} <= set(items)
            assert items == sorted(items, key=lambda item: int(item[1:]))


def _history(server, user):
    items, after = [], 0
    while after is not None:
        _, page = server.ask(f"/v1/users/{user}/history?limit=1000&after={after}")
        items += [each["item"] for each in page["events"]]
        after = page.get("next")
    return items
