"""Two replicas on one store behind haproxy give the same answers at once; killing one fails no request."""

from __future__ import annotations

import http.client
import json
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bounded import joined
from prose import fenced
from served import Server, saved, wait_until
from store_servers import free_port, postgres_server, redis_server, stop, wait_for_port

NOW = int(time.time())
HAPROXY = shutil.which("haproxy")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate.md"


@contextmanager
def balanced(folder, servers):
    """The address of haproxy in front of the servers, as the page configures it."""
    if HAPROXY is None:
        pytest.skip("haproxy is not installed: apt-get install haproxy")
    port, config = free_port(), Path(folder) / "haproxy.cfg"
    (text,) = [block.text for block in fenced(PAGE.read_text()) if "\nbackend " in block.text]
    text = text.replace("bind :8000", f"bind 127.0.0.1:{port}")
    for number, each in enumerate(servers, start=1):
        text = text.replace(f"10.0.0.{number}:8000", each.address.removeprefix("http://"))
    config.write_text(text)
    process = subprocess.Popen(
        [HAPROXY, "-db", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def ask(address, path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def bare(answer):
    """The files that both servers share."""
    return {name: value for name, value in answer.items() if name not in ("request_id", "took_ms", "snapshot")}


@contextmanager
def fleet(kind):
    """Two servers on one store of this kind, and the load balancer's address."""
    folder = Path(tempfile.mkdtemp(prefix="beamwood-"))
    try:
        with ExitStack() as stack:
            (folder / "store").mkdir()
            # PostgreSQL runs as another user, who must be able to enter the folder.
            folder.chmod(0o711)
            made = {"redis": redis_server, "postgres": postgres_server}[kind]
            store, _ = stack.enter_context(made(folder / "store"))
            model, _ = saved(folder / "model")
            options = ["--store", store, "--timeout", "60s", "--max-wait", "60s", "--log", "none"]
            servers = [stack.enter_context(Server(model, *options)) for _ in range(2)]
            yield servers, stack.enter_context(balanced(folder, servers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_your_writes(servers, address, number):
    draw = random.Random(0)
    for item in range(number):
        user = draw.randrange(20)
        event = {"user": user, "item": draw.randrange(300), "time": NOW - 10_000 + item, "key": str(item)}
        told = ask(address, "/v1/events", {"events": [event]})
        assert told["accepted"] == 1
        answers = [ask(each.address, "/v1/recommend", {"user": user, "k": 5}) for each in servers]
        assert answers[0]["history_seq"] == told["seq"]
        assert bare(answers[0]) == bare(answers[1])


def _one_is_killed(servers, address, number):
    failed, numbers = [], iter(range(10**6, 10**6 + number))

    def tried(path, body):
        try:
            ask(address, path, body)
        except (OSError, http.client.HTTPException) as error:
            failed.append(repr(error))

    def send():
        for each in numbers_of():
            body = {"user": each % 20, "item": each % 300, "time": NOW - 5_000, "key": str(each)}
            tried("/v1/events", {"events": [body]})
            tried("/v1/recommend", {"user": each % 20, "k": 5})

    lock = threading.Lock()

    def numbers_of():
        while True:
            with lock:
                each = next(numbers, None)
            if each is None:
                return
            yield each

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    servers[0].signal(signal.SIGSTOP)
    # In progress when it is killed, and larger than what haproxy retries by default.
    many = [{"user": 1, "item": 1, "time": NOW - each, "key": f"{each} {'x' * 90}"} for each in range(300)]
    large = [threading.Thread(target=tried, args=("/v1/events", {"events": many})) for _ in range(2)]
    for thread in large:
        thread.start()
    time.sleep(0.5)
    servers[0].signal(signal.SIGKILL)
    joined([*threads, *large])
    assert failed == []


def _one_experiment(servers):
    arms = [{"model": "current", "share": 0.5, "name": "a"}, {"model": "current", "share": 0.5, "name": "b"}]
    body = json.dumps({"name": "e", "arms": arms}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(servers[0].address + "/v1/experiments", body, headers, method="PUT")
    urllib.request.urlopen(request, timeout=60).close()
    wait_until(lambda: "arm" in ask(servers[1].address, "/v1/recommend", {"user": 1}))
    for user in range(20):
        told = [ask(each.address, "/v1/recommend", {"user": user})["arm"] for each in servers]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    ("kind", "number"),
    [("redis", 60), *(pytest.param(kind, 10_000, marks=pytest.mark.slow) for kind in ("redis", "postgres"))],
)
def test_a_fleet(kind, number):
    with fleet(kind) as (servers, address):
        _read_your_writes(servers, address, number)
        _one_experiment(servers)
        _one_is_killed(servers, address, max(number // 5, 60))
