"""An endpoint as data: path, method, scope, body and answer, from which the app, OpenAPI, limits and tests
are built.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec

from beamwood.serve.answer.answering import Recommending
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.engine import Priority, Ran
from beamwood.serve.problems import Problem, of_fields
from beamwood.serve.service import Service
from beamwood.serve.tokens import Scope

__all__ = ["Call", "Plain", "Route"]


@dataclass(frozen=True, slots=True)
class Plain:
    """An answer that is no struct: a page, metrics, a document; `problem`: the one that a page tells of, if any."""

    content: bytes
    media_type: str = "text/plain; charset=utf-8"
    problem: Problem | None = None


@dataclass(frozen=True)
class Route:
    """An endpoint.

    `handle(call)` returns a struct, which is sent as JSON, or a `Plain`. `scope`: required of a token, None: no token;
    `body`: the posted struct, None without one; `query`: the allowed parameters of the address, with their
    descriptions.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handle: Callable[[Call], Awaitable[Any]]
    scope: Scope | None
    summary: str
    answer: Any = None
    body: type[msgspec.Struct] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body_bytes: int | None = None
    """None: the limit of the settings."""
    hidden: bool = False
    """Not in OpenAPI: pages."""
    waits: bool = False
    """Interactive: refused at once where the search would have to wait too long."""
    is_long: bool = False
    """Answers may be so long that they are written out beside the loop."""
    quiet: bool = False
    """Probes, whose successes are not logged."""

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """The decoder of the body."""
        return msgspec.json.Decoder(self.body)

    def decoded(self, content: bytes) -> Any:
        """The body as a struct. Errors: `Problem` on invalid JSON or fields."""
        assert self.body is not None
        try:
            return self.decoder.decode(content)
        except msgspec.ValidationError as error:
            raise of_fields(error, self.body) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise Problem("invalid_json", f"the body is not JSON ({said}); send one JSON object in UTF-8") from None


@dataclass(slots=True, eq=False)
class Call:
    """A request in progress: its input, its owner, and what is recorded for log and metrics."""

    service: Service
    route: Route
    request_id: str
    body: Any = None
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    began: float = field(default_factory=time.monotonic)
    """When it came."""
    waited: float = 0.0
    """Seconds of waiting for its turn."""
    noted: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    receive: Any = None
    task: asyncio.Task[Any] | None = None
    """The task that answers it, where it has to wait for anything."""
    watcher: asyncio.Task[None] | None = None
    has_left: bool = False
    """Set when the client leaves."""
    repeated: str | None = None
    """A header that is sent more than once and must not be."""

    def deadline(self, milliseconds: int | None, rows: int = 1) -> float:
        """By `time.monotonic`: the body's, else the settings'."""
        seconds = self.service.settings.timeout * rows if milliseconds is None else milliseconds / 1000
        return self.began + seconds

    async def run(
        self, work: Callable[[float], Any], *, deadline: float, priority: Priority, plain: bool = False
    ) -> Ran[Any]:
        """See `Engine.run`; waiting work is dropped when the client leaves.

        `plain`: it takes no longer than others, so it is brief where searches are. A brief one runs here where nobody
        else waits, and where it would wait for long ones.
        """
        engine, admission, calls = self.service.engine, self.service.admission, priority is Priority.CALLER
        pressure, brief = admission.pressure if calls else 0.0, plain and engine.is_brief
        if brief and calls and (admission.before <= 1 or engine.threads == 1 or engine.long >= engine.threads):
            ran = engine.run_here(work, deadline=deadline, pressure=pressure)
        elif brief and calls and isinstance(work, Recommending):
            ran = await engine.run_in_steps(work, deadline=deadline, pressure=pressure)
        else:
            if not brief and engine.is_busy and self.watcher is None and self.receive is not None:
                self.watcher = asyncio.create_task(self._watch())
            ran = await engine.run(work, deadline=deadline, priority=priority, pressure=pressure, brief=brief)
        self.stages["queue"] = self.stages.get("queue", self.waited) + ran.queued
        self.stages["search"] = self.stages.get("search", 0.0) + ran.seconds
        return ran

    async def _watch(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        if self.task is not None and not self.task.done():
            self.has_left = True
            self.task.cancel()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of this call. Errors: `Problem` where nothing is loaded yet."""
        return self.service.models.answering()
