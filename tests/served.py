"""A service over a small saved tree, in the test's process or in its own."""

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
from starlette.testclient import TestClient

from beamwood.retrieval.retriever import Retriever
from beamwood.serve.app import build_app
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from bounded import joined
from retrieval_cases import item_frame, retriever_of, tree_searcher

NUM_ITEMS = 90
PATIENT = {"timeout": 60.0, "max_wait": 60.0, "threads": 2, "log": "none"}


def small_retriever(seed=0, *, text=False, num_items=NUM_ITEMS):
    return retriever_of(tree_searcher(num_items, seed), text=text, seed=seed)


def saved(folder, seed=0, *, text=False, num_items=NUM_ITEMS):
    """The folder of a small tree whose items have the columns of `item_frame`."""
    retriever = small_retriever(seed, text=text, num_items=num_items)
    retriever.save(folder)
    return Path(folder), retriever


def item_table(path, retriever, seed=0):
    """An item table with titles, not in the catalogue's order."""
    frame = item_frame(len(retriever.items), seed).with_columns(item_id=retriever.items.ids)
    frame = frame.with_columns(title=pl.format("Title of {}", "item_id")).drop("category")
    frame.sample(fraction=1, shuffle=True, seed=1).write_parquet(path)
    return Path(path)


@contextmanager
def serving(folder, **settings):
    """A client of a new service of a folder; `client.service` is the service."""
    service = Service.open(folder, ServeSettings(**(PATIENT | settings)))
    with TestClient(build_app(service), raise_server_exceptions=True) as client:
        client.service = service
        yield client


def post(client, path, body, status=200, **more):
    """The JSON of the answer."""
    answer = client.post(path, json=body, **more)
    assert answer.status_code == status, answer.text
    return answer.json()


def dated(folder, end):
    """The folder of a small tree whose log ends at that time."""
    _, retriever = saved(folder / "plain")
    replace(retriever, metadata=retriever.metadata | {"data": {"end": end}}).save(folder / "dated")
    return folder / "dated"


def two_users(folder):
    """The two users with the longest histories, and their items, by id."""
    retriever = Retriever.load(folder)
    rows = retriever.histories.lengths.argsort()[::-1][:2]
    ids = retriever.users.decode(rows)
    return {user: retriever.items.decode(retriever.histories[row]) for row, user in zip(rows, ids, strict=True)}


def send(client, *events, status=200):
    return post(client, "/v1/events", {"events": list(events)}, status)


def recommend(client, body, status=200):
    return post(client, "/v1/recommend", body, status)


def items_of(answer):
    return [each["item"] for each in answer["items"]]


def wait_until(holds, seconds=30):
    """Poll until the condition holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "the condition was never met"
        time.sleep(0.01)


class Server:
    """`beamwood serve` in a separate process on a free port; a context manager.

    `ask(path, body)` returns the status and the JSON.
    """

    def __init__(self, folder, *arguments, log=None):
        self.program = [sys.executable, "-m", "beamwood", "serve", str(folder), "--port", "0", *arguments]
        self.log = log

    def __enter__(self):
        # An unread log would fill the pipe.
        out = subprocess.DEVNULL if self.log is None else open(self.log, "wb")
        self.process = subprocess.Popen(self.program, stdout=out, stderr=subprocess.PIPE, text=True)
        self.said, self.address = [], None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        until = time.monotonic() + 120
        while self.address is None and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if self.address is None:
            self.__exit__()
            raise AssertionError(f"the server has not started: {''.join(self.said)}")
        return self

    def _read(self):
        # Read all of it, because a process with a full pipe blocks.
        for line in self.process.stderr:
            self.said.append(line)
            if " answers at http://" in line:
                self.address = line.split()[-1]

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=30)
        joined([self.reader])
        self.process.stderr.close()

    def ask(self, path, body=None, headers=None, timeout=60):
        request = urllib.request.Request(self.address + path, headers=headers or {})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def socket(self):
        host, port = self.address.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=30)

    def signal(self, number):
        self.process.send_signal(number)

    def ended(self, seconds=30):
        return self.process.wait(timeout=seconds)
