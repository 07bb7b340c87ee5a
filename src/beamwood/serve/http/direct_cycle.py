"""A request that the protocol answers itself, without ASGI."""

from __future__ import annotations

import asyncio

from beamwood.serve.http.endpoint import Endpoint

__all__ = ["DirectCycle"]


class DirectCycle:
    """What is known of the request; it implements what uvicorn reads of its own request cycles."""

    __slots__ = (
        "came",
        "disconnected",
        "endpoint",
        "headers",
        "keep_alive",
        "message_event",
        "parts",
        "response_complete",
    )

    def __init__(self, endpoint: Endpoint, headers: list[tuple[bytes, bytes]], *, keep_alive: bool) -> None:
        self.endpoint, self.headers, self.keep_alive = endpoint, headers, keep_alive
        self.parts: list[bytes] = []
        self.came = 0.0
        self.response_complete = self.disconnected = False
        self.message_event = _Gone()

    async def receive(self) -> dict[str, str]:
        """The only message that can still come, once the client has left."""
        if not self.disconnected:
            await self.message_event.wait()
        return {"type": "http.disconnect"}


class _Gone:
    """An `asyncio.Event` that is created when somebody waits for it."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None

    def set(self) -> None:
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        self._event = asyncio.Event()
        await self._event.wait()
