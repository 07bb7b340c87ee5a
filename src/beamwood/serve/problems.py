"""The errors of requests: a code, its HTTP status, and one sentence with the fix."""

from __future__ import annotations

import re
import time
from typing import Any

from msgspec import Struct, ValidationError, inspect

from beamwood.errors import InputError, nearest

__all__ = [
    "NOT_BLANK",
    "STATUS",
    "Failure",
    "Failures",
    "Problem",
    "check_time",
    "late",
    "of_fields",
    "of_input",
    "whole_number",
]

STATUS = {
    "invalid_http": 400,
    "invalid_json": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_item": 404,
    "unknown_user": 404,
    "method_not_allowed": 405,
    "slow_body": 408,
    "key_reused": 409,
    "conflict": 409,
    "gone": 410,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_request": 422,
    "overloaded": 429,
    "rate_limited": 429,
    "headers_too_large": 431,
    "client_gone": 499,
    "internal": 500,
    "not_ready": 503,
    "store_unavailable": 503,
    "deadline": 504,
}
"""The HTTP status of each code."""

NOT_BLANK = r"\S"
"""The pattern of a name."""
# The first word of core messages about a field, and what others say.
_SAID = {"context": "context", "item vectors": "diversity", "no categories": "max_per_category"}
_OWN = ("k", "context", "max_per_category", "diversity", "promote", "exclude", "effort", "beam_width", "by")
_FIRST_WORD = re.compile(r"(?:the )?([a-z_]+)\b")
# Characters of a message.
_LONGEST = 2000
_AT = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")


class Failure(Struct, omit_defaults=True):
    """The content of `error` in a response."""

    code: str
    message: str
    field: str | None = None
    request_id: str | None = None
    retry_after_ms: int | None = None


class Failures(Struct):
    """An error response."""

    error: Failure


class Problem(Exception):
    """Ends a request with a code of `STATUS`; `field`: the path of what is wrong in the body."""

    def __init__(self, code: str, message: str, *, field: str | None = None, retry_after_ms: int | None = None) -> None:
        # Words of a client may be as long as its body.
        message, field = _short(message), None if field is None else _short(field)
        super().__init__(message)
        self.code, self.message, self.field, self.retry_after_ms = code, message, field, retry_after_ms

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.code]

    def failure(self, request_id: str | None = None) -> Failure:
        """The form in a response."""
        return Failure(self.code, self.message, self.field, request_id, self.retry_after_ms)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"


def late() -> Problem:
    """The refusal of a request whose deadline has passed."""
    return Problem("deadline", "the answer was not ready in time; raise deadline_ms (or --timeout), or ask later")


def check_time(deadline: float) -> None:
    """Errors: `Problem` where the deadline, by `time.monotonic`, has passed."""
    if deadline <= time.monotonic():
        raise late()


def whole_number(name: str, text: str, least: int, most: int) -> int:
    """The integer of a parameter. Errors: `Problem` where it is none, or outside least..most."""
    if not (text.isdecimal() and text.isascii() and len(text) < 20 and least <= int(text) <= most):
        raise Problem("invalid_request", f"{name}={text!a} is not a whole number of {least} to {most}", field=name)
    return int(text)


def of_input(error: InputError) -> Problem:
    """The problem of a refusal by the core, with its message and the field that it names."""
    message = str(error).replace("on_unknown='ignore'", '"on_unknown": "ignore"')
    found = _FIRST_WORD.match(message)
    word = found[1] if found else ""
    named = word if word in _OWN else next((field for text, field in _SAID.items() if text in message), None)
    return Problem("invalid_request", message, field=named)


def of_fields(error: ValidationError, body: type[Struct]) -> Problem:
    """The problem of a request that does not match the fields of its body."""
    text = str(error)
    place = _AT.search(text)
    # Where a key or a value of a mapping is wrong, the mapping is named.
    path, text = (place[1].removesuffix("[...]"), text[: place.start()]) if place else ("", text)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text, re.DOTALL)
    if unknown is not None:
        field = f"{path}.{unknown[1]}" if path else unknown[1]
        known = nearest(unknown[1], [each.name for each in _type_at(body, path).fields])
        return Problem("invalid_request", f"the field '{field}' does not exist{known}", field=field)
    missing = re.fullmatch(r"Object missing required field `(.*)`", text)
    if missing is not None:
        field = f"{path}.{missing[1]}" if path else missing[1]
        return Problem("invalid_request", f"the field '{field}' is missing; add it", field=field)
    word = re.fullmatch(r"Invalid enum value '(.*)'", text, re.DOTALL)
    if word is not None:
        known = nearest(word[1], map(str, _type_at(body, path).values))
        return Problem("invalid_request", f"{path}={word[1]!a} is unknown{known}", field=path)
    if text.endswith(f"matching regex {NOT_BLANK!r}"):
        return Problem("invalid_request", f"{path} is blank; give it a letter at least", field=path)
    wanted = re.fullmatch(r"Expected (.*), got (.*)", text)
    said = f"must be {wanted[1]}, not {wanted[2]}" if wanted else f"is wrong: {text[:1].lower()}{text[1:]}"
    return Problem("invalid_request", f"{path or 'the body'} {said}".replace("`", ""), field=path or None)


def _type_at(body: type[Struct], path: str) -> Any:
    """The type of a field, by its path in a body; that of one entry, where the field is a list."""
    found = _of_one(inspect.type_info(body))
    for name in re.findall(r"[a-z_]+", path):
        found = _of_one(next(each.type for each in found.fields if each.name == name))
    return found


def _of_one(kind: Any) -> Any:
    """The object or word that a field holds, alone, in lists, or beside null and numbers."""
    if isinstance(kind, inspect.ListType):
        return _of_one(kind.item_type)
    if isinstance(kind, inspect.UnionType):
        return next(
            one for each in kind.types if isinstance(one := _of_one(each), inspect.StructType | inspect.LiteralType)
        )
    return kind
