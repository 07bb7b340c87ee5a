"""The process: socket, uvicorn, signals, and the order of shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from beamwood.errors import InputError
from beamwood.serve.active import LOADING
from beamwood.serve.app import Direct, build_app, largest_body
from beamwood.serve.http.protocol import protocol_of
from beamwood.serve.service import Service, secret_of
from beamwood.serve.settings import ServeSettings
from beamwood.serve.upkeep import cancel_all, follow_folder, load_changed
from beamwood.system import allow_files

__all__ = ["check_binding", "serve"]

# The switch interval of the interpreter: neither a busy loop nor a search blocks the other for longer.
_SWITCH_SECONDS = 0.0001
# Windows' loop accepts all waiting connections.
_ACCEPTED_A_ROUND = 1 if sys.platform == "win32" else 16
# Requests create no reference cycles, and long-lived objects only grow: full collections are rarely worth the pause.
_COLLECT_AFTER = (20_000, 20, 100)
# Open files besides connections: of the store, the models and the log.
_FILES = 256
_MAY_LOSE = {
    "redis": "Redis does not say that it syncs each write and evicts none, so acknowledged events may be lost; set "
    "appendonly yes, appendfsync always and maxmemory-policy noeviction",
    "postgres": "PostgreSQL does not wait for its disk, so a crash may lose acknowledged events; set fsync and "
    "synchronous_commit to on",
}
"""By kind of store, said where it is not durable."""


def check_binding(settings: ServeSettings) -> None:
    """Errors: others can reach the service without tokens, or a rate is given without tokens."""
    if settings.rate > 0 and settings.tokens is None:
        raise InputError(f"--rate {settings.rate:g} limits each token; give --tokens, or leave it out")
    if not settings.is_local and settings.tokens is None and not settings.insecure:
        raise InputError(
            f"--host {settings.host} lets others ask, and no --tokens say who may; write a file of tokens, or say "
            "--insecure where the network is trusted"
        )


def serve(folder: str, settings: ServeSettings) -> None:
    """Serve a folder until a signal.

    SIGTERM and SIGINT: readiness ends, requests are accepted for `drain` seconds more and finished within `grace`; a
    second signal ends at once, and so does the first one before the model is loaded. SIGHUP reloads tokens, and the
    folder if it changed. Errors: `InputError` on an invalid folder or setting.
    """
    check_binding(settings)
    _allow_connections(settings.limits.connections)
    service = Service(settings)
    try:
        bound = _bound(settings)
    except BaseException:
        service.close()
        raise
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECT_AFTER)
    running = _Running(service, Path(folder), bound)
    try:
        with asyncio.Runner(loop_factory=running.server.config.get_loop_factory()) as runner:
            runner.run(running.run())
            if service.models.opening:
                # A thread that reads a model cannot be stopped, and would be waited for.
                os._exit(0)
        if not service.closed:
            # So would one that waits for a store.
            service.log.close()
            os._exit(0)
    finally:
        gc.unfreeze()


def _allow_connections(count: int) -> None:
    """Errors: `InputError` where connections could use up the open files, so that store and models had none."""
    needed = count + _FILES
    allowed = allow_files(needed)
    if allowed < needed:
        raise InputError(
            f"{count:,} connections need {needed:,} open files, and the system allows {allowed:,}; raise its limit "
            "(ulimit -n), or lower --limit connections"
        )


def _bound(settings: ServeSettings) -> socket.socket:
    """A listening socket. Errors: `InputError` where the address is not available."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        raise InputError(
            f"--host {settings.host} --port {settings.port} cannot be had ({error.strerror}); choose another, 0 for any"
        ) from None
    return bound


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Running:
    """A running service."""

    def __init__(self, service: Service, folder: Path, bound: socket.socket) -> None:
        self.service, self.folder, self.bound = service, folder, bound
        self.error: Exception | None = None
        self.signals = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        settings, app = service.settings, build_app(service)
        self.server = _Server(
            uvicorn.Config(
                app,
                http=protocol_of(service, app.waited if isinstance(app, Direct) else {}, largest_body(service)),
                ws="none",
                lifespan="on",
                access_log=False,
                # Its warnings are of requests, which the request log has.
                log_level="error",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, int(settings.grace)),
            )
        )

    async def run(self) -> None:
        """Run until the end. Errors: the one that kept the first model from being loaded."""
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":  # whose loops take no signals, and which has no third one
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._stop))
        else:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        self._start(self._load())
        # libuv accepts one connection a socket in a loop iteration; duplicates accept as many more.
        copies = [self.bound.dup() for _ in range(_ACCEPTED_A_ROUND - 1)]
        await self.server.serve(sockets=[self.bound, *copies])
        await cancel_all(self.tasks)
        if self.error is not None:
            raise self.error

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _load(self) -> None:
        """Load the first model; an error ends the process."""
        service = self.service
        try:
            opened = await asyncio.to_thread(service.models.opened, self.folder)
            why = service.histories.trouble
            if why is not None:
                line = f"beamwood: the store is down, so requests are refused until it answers: {' '.join(why.split())}"
                print(line, file=sys.stderr, flush=True)
                service.models.awaited = "the store has not answered yet, so what was erased is unknown; ask again soon"
            await service.catalogue.begin()
            service.models.awaited = LOADING
            await service.experiments.begin()
            opened = await service.catalogue.caught_up(await asyncio.to_thread(service.catalogue.carried, opened))
        except Exception as error:
            self.error, self.server.should_exit = error, True
            return
        service.loader.begin(opened)
        # Loaded objects are permanent, so the collector skips them.
        gc.collect()
        gc.freeze()
        host, port = self.bound.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        durable, store = service.histories.durable, service.histories.store
        service.log.said("ready", address=address, model=opened.model, pid=os.getpid(), durable=durable)
        if not durable and store is not None and store.kind in _MAY_LOSE:
            print(f"beamwood: {_MAY_LOSE[store.kind]}", file=sys.stderr, flush=True)
        print(f"beamwood: {opened.model} answers at {address}", file=sys.stderr, flush=True)
        if service.settings.watch:
            self._start(follow_folder(service, self.folder))

    def _stop(self) -> None:
        self.signals += 1
        if self.signals > 1 and self.service.closing:
            # No request is left to be told.
            self.service.log.close()
            os._exit(0)
        if self.signals > 1:
            # What is broken off is no error.
            logging.getLogger("uvicorn.error").disabled = True
            self.server.force_exit = self.server.should_exit = True
            return
        service = self.service
        service.draining = True
        drain = 0.0 if service.models.current is None else service.settings.drain
        service.log.said("draining", seconds=drain)
        asyncio.get_running_loop().call_later(drain, self._leave)

    def _leave(self) -> None:
        self.server.should_exit = True

    def _reload(self) -> None:
        if not self.service.draining:
            self._start(self._reloaded())

    async def _reloaded(self) -> None:
        service = self.service
        if service.settings.tokens is not None:
            try:
                service.tokens.reload()
                service.secret = secret_of(service.settings)
                service.log.said("tokens_read", tokens=len(service.tokens.known))
            except (InputError, OSError) as error:
                service.log.said("tokens_refused", reason=str(error))
        try:
            await load_changed(service, self.folder, anew=True)
        except OSError as error:
            service.log.said("watch_failed", reason=str(error))
