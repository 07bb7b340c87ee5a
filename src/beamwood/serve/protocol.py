"""HTTP with turns: headers come in time, connections are counted, and who is refused costs little."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from beamwood.serve.app import Direct
from beamwood.serve.endpoint import ARRIVED, Endpoint
from beamwood.serve.service import Service

__all__ = ["protocol_of"]


class _Served(HttpToolsProtocol):
    """One connection."""

    service: Service
    direct: Direct | None
    _timer: asyncio.TimerHandle | None = None
    _reads = False
    _unread: tuple[Endpoint, RequestResponseCycle, Any] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.service.settings.limits.connections:
            transport.abort()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect()
        self._reads = True
        super().data_received(data)
        self._reads = False
        if self._unread is not None:
            # Whose body comes slowly takes nobody's turn.
            (_, cycle, given), self._unread = self._unread, None
            super()._start_asgi_task(cycle, given)

    def on_headers_complete(self) -> None:
        self._settle()
        super().on_headers_complete()

    def connection_lost(self, error: Exception | None) -> None:
        self._settle()
        super().connection_lost(error)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._unread is not None:
            unread, self._unread = self._unread, None
            self._wait(*unread)

    def _start_asgi_task(self, cycle: RequestResponseCycle, given: Any) -> None:
        endpoint = None if self.direct is None else self.direct.waited(cast("Scope", cycle.scope))
        if endpoint is None:
            super()._start_asgi_task(cycle, given)
            return
        refused = endpoint.refusal(cycle.scope["headers"])
        if refused is not None:
            # What comes of its body is dropped, as after any response.
            self.transport.write(refused)
            cycle.response_started = cycle.response_complete = True
            if cycle.keep_alive:
                self.on_response_complete()
            else:
                self.transport.close()
        elif not cycle.more_body:
            self._wait(endpoint, cycle, given)
        elif self._reads:
            self._unread = endpoint, cycle, given
        else:
            super()._start_asgi_task(cycle, given)

    def _wait(self, endpoint: Endpoint, cycle: RequestResponseCycle, given: Any) -> None:
        """All of a request is there: it is begun in its turn."""
        cycle.scope[ARRIVED] = time.monotonic()  # type: ignore[literal-required]
        self.service.admission.wait(partial(self._begun, endpoint, cycle, given))

    def _begun(self, endpoint: Endpoint, cycle: RequestResponseCycle, given: Any) -> bool:
        if cycle.disconnected:
            endpoint.left(cycle.scope)
            return False
        super()._start_asgi_task(cycle, given)
        return True

    def _expect(self) -> None:
        self._timer = self.loop.call_later(self.service.settings.limits.header_seconds, self._too_slow)

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def protocol_of(service: Service, app: Direct | None) -> type[HttpToolsProtocol]:
    """HTTP of a service; `app`: None where it stands behind other layers, which then decide who is let in."""
    return type("Served", (_Served,), {"service": service, "direct": app})
