"""A start of `beamwood serve` that a supervisor stops: at once, with one line, and the code of any other stop."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from beamwood.errors import InputError
from beamwood.serve.server import serve
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.system import allow_files
from served import Server, saved, wait_until

LINE = "beamwood: stopped before it was ready\n"
AT_IMPORT = """
import os, signal, sys
class Signals:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{name})
sys.meta_path.insert(0, Signals())
from beamwood.__main__ import run
run()
"""
AT_OPEN = """
import os, signal, time
from beamwood.serve import active
opened, times = active.open_snapshot, []
def open_snapshot(*arguments, **options):
    times.append(1)
    if len(times) == {time}:
        print("opening", flush=True)
        time.sleep(600)
    return opened(*arguments, **options)
active.open_snapshot = open_snapshot
from beamwood.__main__ import run
run()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("starting") / "model")[0]


def started(program, folder, *arguments):
    whole = [sys.executable, "-c", program, "serve", str(folder), "--port", "0", "--store", "memory", *arguments]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    "module", ["beamwood.cli.main", "typer", "beamwood.serve.check", "msgspec", "uvicorn", "beamwood.serve.upkeep"]
)
def test_a_signal_while_modules_load_ends_the_start(folder, module, name):
    with started(AT_IMPORT.format(module=module, name=name), folder) as process:
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "", LINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_is_read_ends_the_start(folder, number):
    with started(AT_OPEN.format(time=1), folder, "--drain", "1h") as process:
        assert process.stdout.readline() == "opening\n"
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)
    (line,) = out.splitlines()
    assert (process.returncode, json.loads(line)["event"], errors) == (0, "draining", "")


def test_a_stop_does_not_wait_for_the_next_model(folder, tmp_path):
    log = tmp_path / "log"
    server = Server(folder, "--models-dir", str(folder.parent), "--drain", "0s", "--grace", "1s", log=log)
    server.program[1:3] = ["-c", AT_OPEN.format(time=2)]
    with server, server.socket() as asking:
        body = json.dumps({"path": folder.name}).encode()
        head = "POST /v1/models/load HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
        asking.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: "opening" in log.read_text())
        server.signal(signal.SIGTERM)
        assert server.ended() == 0


HANGING = """
import threading
from beamwood.serve.store.memory import MemoryStore
class STORE(MemoryStore):
    def __init__(self, place, *, read_only):
        super().__init__()
    def history(self, owner, **options):
        threading.Event().wait()
"""


def test_a_second_signal_does_not_wait_for_the_store(folder, tmp_path):
    log, store = tmp_path / "log", tmp_path / "store.py"
    store.write_text(HANGING)
    with Server(folder, "--store", str(store), "--drain", "1h", log=log) as server:
        assert server.ask("/v1/recommend", {"user": 11})[1]["stale_history"]
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.ask("/readyz")[0] == 503)
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
    assert '"event":"draining"' in log.read_text()


NEVER_CLOSED = """
import threading
from pathlib import Path
from beamwood.serve.store.memory import MemoryStore
class STORE(MemoryStore):
    def __init__(self, place, *, read_only):
        super().__init__()
        self.told = Path(place)
    def close(self):
        self.told.touch()
        threading.Event().wait()
"""
CLOSE_SECONDS = """
import beamwood.serve.upkeep
beamwood.serve.upkeep._CLOSE_SECONDS = {seconds}
from beamwood.__main__ import run
run()
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_a_store_that_does_not_close_keeps_no_process(folder, tmp_path, signals):
    log, told, store = tmp_path / "log", tmp_path / "told", tmp_path / "store.py"
    store.write_text(NEVER_CLOSED)
    server = Server(folder, "--store", f"{store}:{told}", "--drain", "0s", log=log)
    server.program[1:3] = ["-c", CLOSE_SECONDS.format(seconds=0.01 if signals == 1 else 3600.0)]
    with server:
        server.signal(signal.SIGTERM)
        wait_until(told.exists)
        if signals == 2:
            server.signal(signal.SIGTERM)
        assert server.ended() == 0
    assert '"event":"draining"' in log.read_text()


def test_a_reload_is_kept_until_the_server_can_make_it(folder):
    program = AT_IMPORT.format(module="uvicorn", name="SIGHUP")
    with started(program, folder, "--drain", "0s") as process:
        assert " answers at http://" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_open_files_suffice_for_all_connections(folder, monkeypatch):
    """Otherwise neither the store nor a model could be opened beside them."""
    resource = pytest.importorskip("resource")
    limits = {"now": (300, 4000)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.update(now=new))
    assert allow_files(1280) == 1280
    assert limits["now"] == (1280, 4000)
    settings = ServeSettings(limits=replace(Limits(), connections=3900))
    with pytest.raises(InputError, match="3,900 connections need 4,156 open files, and the system allows 4,000"):
        serve(str(folder), settings)
