"""One route as an ASGI application: tokens, limits, errors, log and metrics around its handler."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from beamwood.errors import nearest
from beamwood.serve.http.begun import Begun
from beamwood.serve.http.request_id import new_id
from beamwood.serve.http.response import Response, response_of
from beamwood.serve.http.route import Call, Route
from beamwood.serve.problems import Failures, Problem
from beamwood.serve.service import Service
from beamwood.words import counted

__all__ = ["Endpoint", "elsewhere"]

_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
_MOST_ID = 128
# The route of a request that belongs to none, of whatever method.
_OTHER = "other"
# The methods of such requests, as OpenTelemetry names what it does not know.
_ANY = "_OTHER"
# Bytes of a body; longer ones would hold up the loop.
_LONG = 2**16
# Of two values of one of these, what is before the service may have checked the other one.
_ONCE = (b"authorization", b"content-type", b"content-encoding", b"host")


class Endpoint:
    """Answers the requests of one route."""

    def __init__(self, service: Service, route: Route) -> None:
        self.service, self.route = service, route
        if route.body is not None:
            # Built once, before the first request.
            _ = route.decoder
        self.body_bytes = route.body_bytes or service.settings.limits.body_bytes
        self._method = _ANY if route.path == _OTHER else route.method

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request of ASGI."""
        call, headers = self.call(scope["headers"], receive)
        call.path = scope["path_params"]
        call.task = asyncio.current_task()
        if scope["method"] == "HEAD":
            call.noted["method"] = "HEAD"
        response = await self._response(call, headers, scope["query_string"])
        if response is not None:
            await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
            await send({"type": "http.response.body", "body": response.content})
            self._finished(call, response.status, response.code)

    def call(
        self, headers: Sequence[tuple[bytes, bytes]], receive: Any = None, came: float | None = None
    ) -> tuple[Call, Mapping[bytes, bytes]]:
        """A request, and its headers by name; `came`: its arrival by `time.monotonic`, if it had to wait for
        its turn.
        """
        named = dict(headers)
        call = Call(self.service, self.route, _request_id(named.get(b"x-request-id")), receive=receive)
        if len(named) < len(headers):
            call.repeated = _repeated(headers)
        if came is not None:
            call.began, call.waited = came, call.began - came
        return call, named

    async def answered(
        self, call: Call, headers: Mapping[bytes, bytes], content: bytes, send: Callable[[Response], None]
    ) -> None:
        """Answer a complete request in its turn."""
        response = await self._response(call, headers, b"", content)
        if response is not None:
            send(response)
            self._finished(call, response.status, response.code)

    def refusal(self, headers: Sequence[tuple[bytes, bytes]]) -> Response | None:
        """The response to a caller who would wait too long, computed synchronously; None: admitted."""
        problem = self.service.admission.refusal if self.route.waits else None
        return None if problem is None else self.refused(headers, problem)

    def refused(self, headers: Sequence[tuple[bytes, bytes]], problem: Problem) -> Response:
        """The response to a request that is refused unread, which is counted and logged."""
        call, _ = self.call(headers)
        self._finished(call, problem.status, problem.code)
        return response_of(call, Failures(problem.failure(call.request_id)))

    def left(self, headers: Sequence[tuple[bytes, bytes]], came: float) -> None:
        """Count and log a request whose client left before its turn."""
        self._finished(self.call(headers, came=came)[0], 499, "client_gone")

    async def _response(
        self, call: Call, headers: Mapping[bytes, bytes], query: bytes, content: bytes | None = None
    ) -> Response | None:
        """The response, None if the client left; `content`: the body, if already read."""
        service = self.service
        service.in_flight += 1
        try:
            answer = await self._answer(call, headers, query, content)
        except Problem as problem:
            answer = Failures(problem.failure(call.request_id))
        except asyncio.CancelledError:
            if call.has_left:
                self._finished(call, 499, "client_gone")
                return None
            why = service.unready() if service.draining else None
            if why is None:
                raise
            # The process ends without waiting for it.
            answer = Failures(Problem("not_ready", why, retry_after_ms=1000).failure(call.request_id))
        except Exception as error:
            print(f"{call.request_id}: {''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)
            fault = Problem("internal", "an internal error of the service; report the request_id to its operator")
            answer = Failures(fault.failure(call.request_id))
        finally:
            service.in_flight -= 1
            if call.watcher is not None:
                call.watcher.cancel()
        encoding = time.monotonic()
        if self.route.is_long:
            response = await asyncio.to_thread(response_of, call, answer)
        else:
            response = response_of(call, answer)
        call.stages["encode"] = time.monotonic() - encoding
        return response

    async def _answer(self, call: Call, headers: Mapping[bytes, bytes], query: bytes, content: bytes | None) -> Any:
        """What the route answers to an allowed request, once it is admitted; with `content` it already is."""
        service, route, admitted = self.service, self.route, content is not None
        try:
            if call.repeated is not None:
                raise Problem("invalid_http", f"the header '{call.repeated}' is sent twice; send it once")
            call.token = service.tokens.check(headers, route.scope)
            if call.path:
                call.path = {name: _id_of(name, value) for name, value in call.path.items()}
            if query:
                call.query = _parameters(query, route.query)
            if route.body is not None:
                call.body = await self._decoded(call.receive, headers, content)
            elif route.method == "POST" and b"origin" in headers:
                # A browser names the page; without JSON it would ask none whether that page may send this.
                _check_json(headers)
            if route.waits and not admitted:
                service.admission.enter()
                admitted = True
            return await route.handle(call)
        finally:
            if admitted:
                service.admission.leave()

    async def _decoded(self, receive: Any, headers: Mapping[bytes, bytes], content: bytes | None) -> Any:
        """The body as its struct, read if it is not here yet. Errors: `Problem`."""
        _check_json(headers)
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Problem("unsupported_media_type", "the body must not be compressed; send it as it is")
        if content is None:
            content = await self._body(receive, headers)
        if len(content) > self.body_bytes:
            raise self._too_large()
        if len(content) > _LONG:
            return await asyncio.to_thread(self.route.decoded, content)
        return self.route.decoded(content)

    async def _body(self, receive: Any, headers: Mapping[bytes, bytes]) -> bytes:
        """The whole body. Errors: `Problem` on too long or too slow a one."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.body_bytes:
            raise self._too_large()
        coming = Begun(receive())
        if coming.done and not coming.value.get("more_body", False):
            # Nearly always the whole body is in the first message.
            content: bytes = coming.value.get("body", b"")
        else:
            try:
                async with asyncio.timeout(self.service.settings.limits.body_seconds):
                    content = await self._rest(receive, await coming)
            except TimeoutError:
                raise Problem("slow_body", "the body came too slowly; send it at once") from None
        return content

    async def _rest(self, receive: Any, first: Mapping[str, Any]) -> bytes:
        parts, more = [first.get("body", b"")], first.get("more_body", False)
        size = len(parts[0])
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem("client_gone", "the client left")
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self.body_bytes:
                raise self._too_large()
        return b"".join(parts)

    def _too_large(self) -> Problem:
        return Problem("too_large", f"the body is above {self.body_bytes:,} bytes; send less at once")

    def _finished(self, call: Call, status: int, code: str | None) -> None:
        """Count and log a request."""
        metrics, path, method = self.service.metrics, self.route.path, call.noted.get("method", self._method)
        metrics.requests.inc(method, path, str(status), call.noted.get("arm", ""))
        if code is None:
            self.service.answered += 1
        else:
            metrics.rejected.inc(code)
        total = time.monotonic() - call.began
        for stage, seconds in call.stages.items():
            metrics.seconds.observe(seconds, method, path, stage)
        metrics.seconds.observe(total, method, path, "total")
        if self.route.quiet and code is None:
            return
        if self.service.spans is not None:
            self.service.spans.finished(method, path, status, code, total, call.stages)
        if self.service.log.kind == "none":
            return
        self.service.log.write(
            {
                "time": round(time.time(), 3),
                "id": call.request_id,
                **({} if path == _OTHER else {"method": method}),
                "route": path,
                "code": status,
                "ms": round(1000 * total, 3),
                **{f"{stage}_ms": round(1000 * seconds, 3) for stage, seconds in call.stages.items()},
                **call.noted,
                **({} if call.token is None else {"token": call.token}),
                **({} if code is None else {"error": code}),
            }
        )


def elsewhere(service: Service) -> Endpoint:
    """The endpoint of requests that belong to no route, which only refuses."""
    return Endpoint(service, Route("GET", _OTHER, _nothing, None, "Any other path", hidden=True))


async def _nothing(call: Call) -> None:
    """The handler of no request."""


def _repeated(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The header that is sent more than once and must not be, None if there is none."""
    names = [name for name, _ in headers]
    return next((each.decode() for each in _ONCE if names.count(each) > 1), None)


def _check_json(headers: Mapping[bytes, bytes]) -> None:
    """Errors: `Problem` on a body that is not JSON by its type."""
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        message = "the body must be JSON; send it with 'Content-Type: application/json'"
        raise Problem("unsupported_media_type", message)


def _request_id(given: bytes | None) -> str:
    """The client's id where it is plain, else a new one."""
    if given is not None:
        text = given.decode("latin-1")
        if 0 < len(text) <= _MOST_ID and _ID_CHARACTERS.issuperset(text):
            return text
    return new_id()


def _id_of(name: str, text: str) -> str:
    """An id in a path, decoded. Errors: `Problem` where it is not UTF-8, whose replacement characters would be another
    id.
    """
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        message = f"the {name} in the address is not UTF-8; encode it so, and each byte as %XX"
        raise Problem("invalid_request", message, field=name) from None


def _parameters(text: bytes, known: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    try:
        # Thousands would hold up the loop.
        pairs = parse_qsl(
            text.decode("latin-1"), keep_blank_values=True, errors="strict", max_num_fields=len(known) + 1
        )
    except UnicodeDecodeError:
        message = "the parameters of the address are not UTF-8; encode them so, and each byte as %XX"
        raise Problem("invalid_request", message) from None
    except ValueError:
        message = f"the address has more than {counted(len(known), 'parameter')}; leave out what does not exist"
        raise Problem("invalid_request", message) from None
    for name, value in pairs:
        if name not in known:
            fix = nearest(name, known) if known else "; leave it out"
            raise Problem("invalid_request", f"the parameter '{name}' does not exist here{fix}", field=name)
        if name in given:
            raise Problem("invalid_request", f"the parameter '{name}' is given twice; give it once", field=name)
        given[name] = value
    return given
