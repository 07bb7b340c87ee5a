"""Random bodies at every endpoint: no internal error, no traceback, and the service continues."""

import json
import random

import pytest

from beamwood.serve.app import routes_of
from beamwood.serve.messages import Recommend, Score
from beamwood.serve.routes.events import NewEvents
from served import saved, serving

STATUSES = {200, 400, 403, 404, 409, 410, 413, 415, 422, 429, 503, 504}
LEAVES = [None, True, False, 0, -1, 1, 3, 5, 20, 10**9, 10**18, 10**19, 10**40, -(10**30), 0.0, -0.5, 1e308, 1e-300]
LEAVES += ["", "x", "c1", "\x00", "é" * 50, "5", "a" * 3000, "title", "price", "model", "tree", "full", "error"]
WORDS = ["price", "category", "stock", "brand", "since", "lt", "lte", "gt", "eq", "ne", "in", "not_in", "all_of"]
WORDS += ["missing", "all", "any", "not", "default", "c1"]
RAW = ["NaN", "Infinity", '"\\ud800"', "[" * 400 + "]" * 400, '{"a":' * 300 + "1" + "}" * 300, "1e999", "-0", "9" * 400]


def value(rng, depth=0):
    kind = rng.random()
    if depth > 3 or kind < 0.55:
        return rng.choice(LEAVES)
    if kind < 0.75:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(WORDS): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def ids(rng):
    return [rng.choice(LEAVES) if rng.random() < 0.05 else rng.randrange(300) for _ in range(rng.randrange(6))]


def texts(rng):
    return [rng.choice(["c0", "c1", "c4", "c9", ""]) for _ in range(rng.randrange(3))]


def where(rng):
    return {rng.choice(WORDS): value(rng) for _ in range(rng.randrange(3))}


def filter_of(rng):
    made = {"category": texts, "all_of": texts, "none_of": texts, "items": ids, "where": where}
    return {name: make(rng) for name, make in made.items() if rng.random() < 0.3}


def promotion(rng):
    return {"filter": {"where": {"stock": True}}, "share": rng.choice([0.1, 1, 2, 0])}


# Mostly valid values of fields, with a few invalid ones.
SOUND = {
    "user": lambda rng: rng.randrange(40),
    "history": ids,
    "session": lambda rng: "s-1",
    "events": ids,
    "item": lambda rng: rng.randrange(300),
    "items": ids,
    "k": lambda rng: rng.choice([1, 5, 20, 1000, 10**9]),
    "exclude": ids,
    "filter": filter_of,
    "max_per_category": lambda rng: rng.choice([0, 1, 3, {"default": 2}, {"c1": 0}, {"c9": 1}]),
    "diversity": lambda rng: rng.choice([0, 0.5, 1, 2]),
    "promote": lambda rng: [promotion(rng) for _ in range(rng.randrange(3))],
    "beam_width": lambda rng: rng.choice([1, 10, 10**9]),
    "effort": lambda rng: rng.random(),
    "explain": lambda rng: rng.choice(["none", "scores", "full"]),
    "by": lambda rng: rng.choice(["model", "vectors", "tree"]),
}


def body_of(rng, struct):
    """A body with one kind of query and some other fields, most of them valid."""
    fields = struct.__struct_fields__
    if struct is NewEvents:
        return {"events": [event_of(rng) for _ in range(rng.randrange(3))]}
    if "requests" in fields:
        return {"requests": [body_of(rng, Recommend) for _ in range(rng.randrange(3))]}
    given = {name for name in fields if rng.random() < 0.12} - {"user", "history", "session", "item", "items"}
    given |= {rng.choice(["user", "history", "session"])} if "history" in fields else {rng.choice(["item", "items"])}
    given |= {"items"} if struct is Score else set()
    return {
        name: value(rng) if name not in SOUND or rng.random() < 0.1 else SOUND[name](rng)
        for name in given
        if name in fields or rng.random() < 0.1
    }


def event_of(rng):
    made = {"user": SOUND["user"], "item": SOUND["item"], "time": lambda rng: rng.choice([0, 1.7e9, "2026-01-31", "x"])}
    made |= {"key": lambda rng: rng.choice(["a", "b"]), "type": lambda rng: "view", "weight": lambda rng: rng.random()}
    event = {name: make(rng) for name, make in made.items() if rng.random() < 0.9}
    return event | ({rng.choice([*made, "session", "colour"]): value(rng)} if rng.random() < 0.3 else {})


def content(rng, struct):
    text = json.dumps(body_of(rng, struct))
    chance = rng.random()
    if chance < 0.1:
        return text[: rng.randrange(len(text) + 1)].encode()
    if chance < 0.2:
        at = rng.randrange(len(text) + 1)
        return (text[:at] + rng.choice(RAW) + text[at:]).encode()
    if chance < 0.3:
        return text.replace("1", rng.choice(RAW), 1).encode()
    return text.encode()


def fuzz(folder, number, seed):
    rng, seen = random.Random(seed), {}
    with serving(folder, models_dir=folder.parent, timeout=20.0) as client:
        routes = [route for route in routes_of(client.service) if route.body is not None]
        for count in range(number):
            route = routes[count % len(routes)]
            sent = content(rng, route.body)
            path = route.path.replace("{", "").replace("}", "")
            answer = client.request(route.method, path, content=sent, headers={"content-type": "application/json"})
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert answer.status_code in STATUSES, (route.path, sent[:500], answer.text[:500])
            assert "Traceback" not in answer.text
            assert "/beamwood/" not in answer.text
        assert client.post("/v1/recommend", json={"user": 11}).status_code == 200
        assert client.service.in_flight == 0
    assert seen.get(200, 0) > number * 0.08
    assert seen.get(422, 0) > number * 0.15
    assert seen.get(400, 0) > 0


def test_a_few_thousand_bodies(tmp_path):
    fuzz(saved(tmp_path / "model")[0], 1200, 0)


@pytest.mark.slow
def test_a_hundred_thousand_bodies(tmp_path):
    fuzz(saved(tmp_path / "model")[0], 100_000, 1)
