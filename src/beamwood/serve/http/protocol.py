"""HTTP with turns: timeouts for headers, counted connections, and a short path for the most frequent requests.

A complete request of an interactive endpoint is answered from here: without scope, messages or, where nothing is
awaited, a task, and with one write. All others go to uvicorn and ASGI.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from beamwood.serve.http.begun import Begun
from beamwood.serve.http.direct_cycle import DirectCycle
from beamwood.serve.http.endpoint import Endpoint, elsewhere
from beamwood.serve.http.host_name import check_host
from beamwood.serve.http.reading import Reading
from beamwood.serve.http.response import Response
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service

__all__ = ["protocol_of"]

# The bytes of a body in chunks of one byte, and more, for one byte of it.
_AS_CHUNKS = 8
# How long a connection that ended with an error is read before it is closed: with unread bytes, the client's system may
# drop the error.
_LAST_SECONDS = 2.0
# The bytes of a header besides its name and value.
_AROUND = len(b": \r\n")


class _Served(HttpToolsProtocol):
    """One connection."""

    service: Service
    direct: Mapping[tuple[bytes, bytes], Endpoint]
    elsewhere: Endpoint
    _timer: asyncio.TimerHandle | None = None
    _in_head = _ends_head = False
    _head_bytes = _rest_bytes = 0
    most_bytes: int
    checks_host: bool
    _asked: DirectCycle | None = None
    _is_whole = False
    _answering: RequestResponseCycle | DirectCycle | None = None
    _idle_from = 0.0
    # Whether the request at hand asks for another protocol; what is read now, and what is read again.
    _is_upgrade = False
    _read, _again = b"", b""
    # Looks whether the client reads what waits to be sent.
    _reading: asyncio.TimerHandle | None = None
    # What ends the connection after the answers to the requests before it, and whether it was sent.
    _last_words: Problem | None = None
    _has_ended = False

    @property
    def _idle_seconds(self) -> float:
        return self.service.settings.limits.idle_seconds

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = Reading(transport, self.pipeline)
        if len(self.connections) > self.service.settings.limits.connections:
            self.service.metrics.rejected.inc("connections")
            transport.abort()
        else:
            self._expect()

    def connection_lost(self, error: Exception | None) -> None:
        self._settle()
        for timer in (self.timeout_keep_alive_task, self._reading):
            if timer is not None:
                timer.cancel()
        if self._answering is not self.cycle:
            # Pipelined requests follow it, and uvicorn knows only the last one.
            self._break_off()
        self.pipeline.clear()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._rest_bytes += len(data)
        if self._rest_bytes > self.most_bytes:
            # Of chunks, trailers or a body that was refused: what is read of it no longer matters.
            self.transport.abort()
            return
        if self._has_ended:
            return
        was_in_head, self._ends_head = self._in_head, False
        self._read = data
        while self._read:
            self._again = b""
            super().data_received(self._read)
            self._read = self._again
        if self._in_head:
            self._expect()
            # Header bytes in the same packet as the end of another request are not counted: they are few.
            self._head_bytes = self._head_bytes + len(data) if was_in_head and not self._ends_head else 0
            if self._head_bytes > self.service.settings.limits.header_bytes:
                self._refuse(self._too_long())
                return
        asked = self._asked
        if asked is None:
            return
        self._asked = None
        if self._is_whole:
            asked.came = time.monotonic()
            self.service.admission.wait(partial(self._begin, asked))
        else:
            # A request with a slow body takes no turn.
            self._leave_to_uvicorn(asked)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._rest_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # Nobody reads trailers, of which there may be millions.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_head()
        self._is_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._is_upgrade:
            return
        self._in_head, self._ends_head = False, True
        self._settle()
        endpoint = self.direct.get((self.parser.get_method(), self.url))
        if endpoint is None or not self._is_plain():
            self._hand_over()
            return
        keep_alive = self.parser.should_keep_alive() and not self.service.draining
        asked = DirectCycle(endpoint, self.headers, keep_alive=keep_alive)
        self.cycle = self._answering = asked  # type: ignore[assignment]
        refused = endpoint.refusal(self.headers)
        if refused is None:
            self._asked, self._is_whole = asked, False
        else:
            # The rest of its body is dropped, as after any response.
            self._send(asked, refused)

    def on_body(self, body: bytes) -> None:
        if self._asked is None:
            super().on_body(body)
        elif not self._is_whole:
            self._asked.parts.append(body)
        else:
            # The body of a pipelined request.
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        if self._asked is None or self._is_whole:
            super().on_message_complete()
        else:
            self._is_whole = True

    def _unsupported_upgrade_warning(self) -> None:
        """Read a request again without what it asks of the protocol, as Java's client does of each: the parser takes
        what follows such a head for another protocol, and so leaves out the body.
        """
        error = sys.exc_info()[1]
        if not self._is_upgrade or error is None:
            return
        begun = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [b"%s: %s" % (name, value) for name, value in self.headers if name not in (b"connection", b"upgrade")]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        self._again = b"\r\n".join([begun, *lines, b"", self._read[error.args[0] :]])
        self.parser = type(self.parser)(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        self.flow.resume_reading()
        super()._start_asgi_task(cycle, app)

    def _check_head(self) -> None:
        """Errors: `Problem`, which ends the parsing, where a whole head is too long, has no host or a remote one.

        Also where it encodes the body in another way than by chunks (RFC 9112).
        """
        most = self.service.settings.limits.header_bytes
        # Nearly always no bytes are counted.
        if self._head_bytes + len(self._read) > most:
            size = len(self.url) + sum(len(name) + len(value) + _AROUND for name, value in self.headers)
            if size > most:
                raise self._too_long()
        has_host = self.parser.get_http_version() != "1.1"
        for name, value in self.headers:
            if name == b"host":
                has_host = True
                if self.checks_host:
                    check_host(value)
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                message = "the body is encoded for its transfer; send it with a content-length, or in chunks alone"
                raise Problem("invalid_http", message)
        if not has_host:
            raise Problem("invalid_http", "the header 'host' is missing; HTTP/1.1 needs one")

    def _too_long(self) -> Problem:
        most = self.service.settings.limits.header_bytes
        return Problem("headers_too_large", f"the headers are above {most:,} bytes; send fewer")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what the parser cannot read, which uvicorn would do as text."""
        error = sys.exc_info()[1]
        problem = Problem("invalid_http", "this is not valid HTTP/1.1; correct the request, and send it without TLS")
        if error is not None and isinstance(error.__context__, Problem):
            problem = error.__context__
        self._refuse(problem)

    def _refuse(self, problem: Problem) -> None:
        """Close the connection with an error, once the requests before it are answered."""
        last = self.cycle
        if isinstance(last, RequestResponseCycle) and last.more_body and not last.response_complete:
            # It is the body of this one that cannot be read.
            if self.pipeline and self.pipeline[0][0] is last:
                self.pipeline.popleft()
            elif last is self._answering:
                self._end(problem)
                return
        answering = self._answering
        is_awaited = answering is not None and not answering.response_complete
        answers_come = is_awaited if self._asked is None else self._is_whole
        if answers_come:
            # What follows is not read as a request.
            self._last_words, self._in_head = problem, False
        else:
            self._end(problem)

    def _end(self, problem: Problem) -> None:
        """Close the connection with an error; what still comes is dropped."""
        if self.transport.is_closing():
            return
        self._settle()
        self._break_off()
        self._has_ended, self._in_head = True, False
        # What was read of the request at fault is not answered too.
        self._asked = None
        self.transport.write(self.elsewhere.refused((), problem).whole((), keep_alive=False))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(_LAST_SECONDS, self._close)

    def _close(self) -> None:
        """Close the connection at once, or when what is written was read."""
        if self.transport.get_write_buffer_size():
            self._close_once_read()
        else:
            self.transport.abort()

    def _close_once_read(self) -> None:
        """Close the connection when what is written was read, for which a client has as long as one may be idle."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._expect_reading()

    def _break_off(self) -> None:
        """Tell the request that is being answered that its client has left."""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _is_plain(self) -> bool:
        """Whether nothing else is in flight here, and the request needs no special handling."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and self.parser.get_http_version() == "1.1"
        )

    def _leave_to_uvicorn(self, asked: DirectCycle) -> None:
        self.cycle = None  # type: ignore[assignment]
        self._hand_over()
        if asked.parts:
            super().on_body(b"".join(asked.parts))

    def _hand_over(self) -> None:
        """Let uvicorn answer; while the service is being shut down this is the last answer of the connection."""
        super().on_headers_complete()
        if self.service.draining:
            # One that is closed between two answers would break off a request that is on its way.
            self.cycle.keep_alive = False

    def _begin(self, asked: DirectCycle) -> bool:
        """Answer a request in its turn, as far as possible without waiting; returns whether it is still wanted."""
        if asked.disconnected:
            asked.endpoint.left(asked.headers, asked.came)
            return False
        call, headers = asked.endpoint.call(asked.headers, asked.receive, asked.came)
        begun = Begun(asked.endpoint.answered(call, headers, b"".join(asked.parts), partial(self._send, asked)))
        if not begun.done:
            call.task = self.loop.create_task(begun)
            call.task.add_done_callback(self.tasks.discard)
            self.tasks.add(call.task)
        return True

    def _send(self, asked: DirectCycle, response: Response) -> None:
        """Send a whole response."""
        if asked.disconnected or self.transport.is_closing():
            return
        asked.response_complete = True
        self.transport.write(response.whole(self.server_state.default_headers, keep_alive=asked.keep_alive))
        if not asked.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            # As the last answer of the connection said, here or in uvicorn.
            self._close_once_read()
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self.flow.resume_reading()
        if self._last_words is not None:
            self._end(self._last_words)
            return
        self._idle_from = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self._idle_seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """One timer serves the whole connection: setting another for each request costs more."""

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._in_head or not self.cycle.response_complete:
            # The timer starts again.
            return
        left = self._idle_from + self._idle_seconds - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif not self.transport.is_closing():
            # A closed transport would wait until the client has read the rest.
            (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None and not self.transport.is_closing():
            self._reading.cancel()

    def _expect_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self._idle_seconds, self._check_reading, unread)

    def _check_reading(self, before: int) -> None:
        """End a connection whose client has read nothing for as long as one may be idle."""
        if self.transport.get_write_buffer_size() < before:
            self._expect_reading()
        else:
            self.transport.abort()

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.service.settings.limits.header_seconds, self._too_slow)

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.flow.read_paused:
            # The rest of the head may have come.
            self._expect()
        elif not self.transport.is_closing():
            self._close_once_read()


def protocol_of(
    service: Service, waited: Mapping[tuple[bytes, bytes], Endpoint], body_bytes: int
) -> type[HttpToolsProtocol]:
    """The HTTP protocol of a service; `waited`: by method and path the endpoints answered from here, without other
    layers; `body_bytes`: of the largest body.
    """
    own = {"service": service, "direct": waited, "elsewhere": elsewhere(service), "most_bytes": _AS_CHUNKS * body_bytes}
    return type("Served", (_Served,), own | {"checks_host": service.settings.is_for_this_machine})
