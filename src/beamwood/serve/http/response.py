"""Responses: status, headers and content, of answers and failures."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from beamwood.serve.http.route import Call, Plain
from beamwood.serve.problems import STATUS, Failures

__all__ = ["PAGE_POLICY", "Response", "response_of"]

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""A page may load its own files only."""

_ENCODER = msgspec.json.Encoder()
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_OF_DATA = [*_ALWAYS, (b"content-type", b"application/json"), (b"content-security-policy", b"default-src 'none'")]
_STATUS_LINES = {each.value: b"HTTP/1.1 %d %s" % (each, each.phrase.encode()) for each in HTTPStatus}


class Response(NamedTuple):
    """`code`: of a failure, None for an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes
    code: str | None = None

    def whole(self, more: Iterable[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
        """The serialised HTTP response, with further headers."""
        lines = [_STATUS_LINES[self.status], *(b"%s: %s" % each for each in (*more, *self.headers))]
        if not keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", self.content])


def response_of(call: Call, answer: Any) -> Response:
    """The response of an answer: a struct, a `Plain`, or `Failures`."""
    failure = answer.error if isinstance(answer, Failures) else None
    if isinstance(answer, Plain):
        content, headers = answer.content, [*_ALWAYS, (b"content-type", answer.media_type.encode())]
        if answer.media_type.startswith("text/html"):
            headers.append((b"content-security-policy", PAGE_POLICY.encode()))
        if answer.problem is not None:
            failure = answer.problem.failure()
    else:
        content, headers = _ENCODER.encode(answer), [*_OF_DATA]
    status = 200 if failure is None else STATUS[failure.code]
    if failure is not None:
        if failure.retry_after_ms is not None:
            headers.append((b"retry-after", str(-(-failure.retry_after_ms // 1000)).encode()))
        if failure.code == "slow_body":
            # What still comes of it would be read as part of it.
            headers.append((b"connection", b"close"))
        if status == 401:
            # Browsers ask for the token where a page needs one.
            kind = b'Basic realm="beamwood"' if call.route.hidden else b"Bearer"
            headers.append((b"www-authenticate", kind))
    headers += [(b"x-request-id", call.request_id.encode()), (b"content-length", b"%d" % len(content))]
    return Response(status, headers, content, None if failure is None else failure.code)
