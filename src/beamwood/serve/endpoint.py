"""One route as an ASGI application: tokens, limits, errors, log and figures around what the route does."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from beamwood.serve.begun import Begun
from beamwood.serve.problems import Failures, Problem
from beamwood.serve.request_id import new_id
from beamwood.serve.route import Call, Plain, Route
from beamwood.serve.service import Service

__all__ = ["ARRIVED", "PAGE_POLICY", "Endpoint"]

ARRIVED = "beamwood.arrived"
"""The key of a scope whose caller has been let in already: when it came, by `time.monotonic`."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load: its own files alone."""

_JSON = b"application/json"
_ENCODER = msgspec.json.Encoder()
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
_MOST_ID = 128
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_OF_DATA = [*_ALWAYS, (b"content-type", _JSON), (b"content-security-policy", b"default-src 'none'")]


class Endpoint:
    """Answers the requests of one route."""

    def __init__(self, service: Service, route: Route) -> None:
        self.service, self.route = service, route
        if route.body is not None:
            # Made once, before the first request.
            _ = route.decoder
        self.body_bytes = route.body_bytes or service.settings.limits.body_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        service, headers = self.service, dict(scope["headers"])
        call = Call(service, self.route, _request_id(headers.get(b"x-request-id")), receive=receive)
        status, admitted = 200, ARRIVED in scope
        if admitted:
            call.began, call.waited = scope[ARRIVED], call.began - scope[ARRIVED]
        service.in_flight += 1
        try:
            await self._read(call, scope, headers, receive)
            if self.route.waits and not admitted:
                service.admission.enter()
                admitted = True
            answer = await self.route.handle(call)
        except Problem as problem:
            answer, status = Failures(problem.failure(call.request_id)), problem.status
        except asyncio.CancelledError:
            if not call.has_left:
                raise
            self._finished(call, 499, "client_gone")
            return
        except Exception as error:
            print(f"{call.request_id}: {''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)
            fault = Problem("internal", "a fault of the service, not yours; tell its operator the request_id")
            answer, status = Failures(fault.failure(call.request_id)), fault.status
        finally:
            service.in_flight -= 1
            if admitted:
                service.admission.leave()
            if call.watcher is not None:
                call.watcher.cancel()
        encoding = time.monotonic()
        message, content = _response(call, answer, status)
        call.stages["encode"] = time.monotonic() - encoding
        await send(message)
        await send({"type": "http.response.body", "body": content})
        self._finished(call, message["status"], answer.error.code if isinstance(answer, Failures) else None)

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """All of a response of HTTP to who would wait too long, made without a step of the loop; None: let in."""
        problem = self.service.admission.refusal if self.route.waits else None
        if problem is None:
            return None
        call = Call(self.service, self.route, _request_id(dict(headers).get(b"x-request-id")))
        answer = Failures(problem.failure(call.request_id))
        message, content = _response(call, answer, problem.status)
        lines = [b"HTTP/1.1 %d Too Many Requests" % problem.status, *(b"%s: %s" % each for each in message["headers"])]
        self._finished(call, problem.status, answer.error.code)
        return b"\r\n".join([*lines, b"", content])

    def left(self, scope: Any) -> None:
        """Count and log a request whose client went before its turn came."""
        call = Call(self.service, self.route, _request_id(dict(scope["headers"]).get(b"x-request-id")))
        call.began = scope[ARRIVED]
        self._finished(call, 499, "client_gone")

    async def _read(self, call: Call, scope: Any, headers: Mapping[bytes, bytes], receive: Any) -> None:
        """What came, once who asks may. Errors: `Problem`."""
        route = self.route
        call.token = self.service.tokens.check(headers, route.scope)
        call.path = scope["path_params"]
        if scope["query_string"]:
            call.query = _parameters(scope["query_string"], route.query)
        if route.body is not None:
            if not headers.get(b"content-type", b"").startswith(_JSON):
                message = "the body must be JSON; send it with 'Content-Type: application/json'"
                raise Problem("unsupported_media_type", message)
            call.body = route.decoded(await self._body(receive, headers))

    async def _body(self, receive: Any, headers: Mapping[bytes, bytes]) -> bytes:
        """The whole body. Errors: `Problem` on too long or too slow a one."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.body_bytes:
            raise self._too_large()
        coming = Begun(receive())
        if coming.done and not coming.value.get("more_body", False):
            # Nearly always all of it is there.
            content: bytes = coming.value.get("body", b"")
        else:
            try:
                async with asyncio.timeout(self.service.settings.limits.body_seconds):
                    content = await self._rest(receive, await coming)
            except TimeoutError:
                raise Problem("slow_body", "the body came too slowly; send it at once") from None
        if len(content) > self.body_bytes:
            raise self._too_large()
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
        metrics, path = self.service.metrics, self.route.path
        metrics.requests.inc(path, str(status), call.noted.get("arm", ""))
        if code is not None:
            metrics.rejected.inc(code)
        total = time.monotonic() - call.began
        for stage, seconds in call.stages.items():
            metrics.seconds.observe(seconds, path, stage)
        metrics.seconds.observe(total, path, "total")
        if self.route.quiet and code is None:
            return
        if self.service.spans is not None:
            self.service.spans.finished(self.route.method, path, status, code, total, call.stages)
        if self.service.log.kind == "none":
            return
        self.service.log.write(
            {
                "time": round(time.time(), 3),
                "id": call.request_id,
                "route": path,
                "code": status,
                "ms": round(1000 * total, 3),
                **{f"{stage}_ms": round(1000 * seconds, 3) for stage, seconds in call.stages.items()},
                **call.noted,
                **({} if call.token is None else {"token": call.token}),
                **({} if code is None else {"error": code}),
            }
        )


def _response(call: Call, answer: Any, status: int) -> tuple[dict[str, Any], bytes]:
    """The message that starts a response, and the body."""
    if isinstance(answer, Plain):
        content, status = answer.content, answer.status
        headers = [*_ALWAYS, (b"content-type", answer.media_type.encode())]
        if answer.media_type.startswith("text/html"):
            headers.append((b"content-security-policy", PAGE_POLICY.encode()))
        headers += [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    else:
        content, headers = _ENCODER.encode(answer), [*_OF_DATA]
    if isinstance(answer, Failures):
        if answer.error.retry_after_ms is not None:
            headers.append((b"retry-after", str(-(-answer.error.retry_after_ms // 1000)).encode()))
        if status == 401:
            # Browsers ask for the token where a page needs one.
            kind = b'Basic realm="beamwood"' if call.route.hidden else b"Bearer"
            headers.append((b"www-authenticate", kind))
    headers += [(b"x-request-id", call.request_id.encode()), (b"content-length", str(len(content)).encode())]
    return {"type": "http.response.start", "status": status, "headers": headers}, content


def _request_id(given: bytes | None) -> str:
    """That of the client where it is plain, else a new one."""
    if given is not None:
        text = given.decode("latin-1")
        if 0 < len(text) <= _MOST_ID and _ID_CHARACTERS.issuperset(text):
            return text
    return new_id()


def _parameters(text: bytes, known: Iterable[str]) -> dict[str, str]:
    given = dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))
    for name in given:
        if name not in known:
            raise Problem("invalid_request", f"there is no parameter '{name}' here", field=name)
    return given
