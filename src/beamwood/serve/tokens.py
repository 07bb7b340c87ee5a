"""Access control: a file of names, scopes and hashes of tokens; tokens themselves are not stored.

A line is `name scope[,scope..] sha256`, the hash of the token in hexadecimal digits; `#` starts a comment.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from beamwood.errors import InputError, nearest
from beamwood.serve.problems import Problem

__all__ = ["Scope", "Token", "Tokens"]

Scope = Literal["recommend", "events", "items", "admin", "metrics"]
SCOPES = get_args(Scope)
# The hash of an empty token, which a caller without one would have.
_OF_NOTHING = hashlib.sha256(b"").digest()


@dataclass(frozen=True, slots=True)
class Token:
    """A name, its scopes, and the hash."""

    name: str
    scopes: frozenset[str]
    digest: bytes


@dataclass(slots=True)
class _Bucket:
    """The token bucket of a token: remaining requests, and the time of the last update."""

    left: float
    at: float


@dataclass(slots=True)
class Tokens:
    """The tokens of a file, None without one: then everything is allowed. `rate`: requests a second for each."""

    path: Path | None = None
    rate: float = 0.0
    known: tuple[Token, ...] = ()
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None, rate: float = 0.0) -> Tokens:
        """Errors: an unreadable file, one without tokens, an invalid line."""
        made = cls(path, rate)
        made.reload()
        return made

    def reload(self) -> None:
        """Read the file again; on an error the tokens stay."""
        if self.path is not None:
            self.known = _parsed(self.path)

    def check(self, headers: Mapping[bytes, bytes], scope: str | None) -> str | None:
        """The name of the request's token. Errors: `Problem` on none, an unknown one, one without the scope."""
        if self.path is None or scope is None:
            return None
        digest = hashlib.sha256(_given(headers.get(b"authorization", b""))).digest()
        found: Token | None = None
        # All are compared, so that timing reveals nothing.
        for token in self.known:
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None:
            raise Problem("unauthorized", "send a known token as 'Authorization: Bearer TOKEN'")
        if scope not in found.scopes:
            raise Problem("forbidden", f"the token '{found.name}' may not do this; it needs the scope '{scope}'")
        if self.rate > 0:
            self._spend(found.name)
        return found.name

    def _spend(self, name: str) -> None:
        now, most = time.monotonic(), max(1.0, self.rate)
        bucket = self._buckets.setdefault(name, _Bucket(most, now))
        bucket.left, bucket.at = min(most, bucket.left + (now - bucket.at) * self.rate), now
        if bucket.left < 1:
            wait = round(1000 * (1 - bucket.left) / self.rate) + 1
            message = f"the token '{name}' may send {self.rate:g} requests a second; wait"
            raise Problem("rate_limited", message, retry_after_ms=wait)
        bucket.left -= 1


def _given(header: bytes) -> bytes:
    """The token of `Bearer`, or the password of `Basic`, which browsers send."""
    kind, _, value = header.partition(b" ")
    if kind.lower() == b"bearer":
        return value.strip()
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return b""


def _parsed(path: Path) -> tuple[Token, ...]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--tokens {path} cannot be read: {error}") from None
    tokens = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"--tokens {path}, line {number}"
        if len(words) != 3 or not re.fullmatch(r"[0-9a-fA-F]{64}", words[2]):
            raise InputError(f"{where}: write 'name scope,scope sha256', the hash as 64 hexadecimal digits")
        for scope in words[1].split(","):
            if scope not in SCOPES:
                raise InputError(f"{where}: the scope '{scope}' is unknown{nearest(scope, SCOPES)}")
        if bytes.fromhex(words[2]) == _OF_NOTHING:
            raise InputError(f"{where}: the hash is that of an empty token, which all have; make the token first")
        tokens.append(Token(words[0], frozenset(words[1].split(",")), bytes.fromhex(words[2])))
    for what, given in (("name", [token.name for token in tokens]), ("token", [token.digest for token in tokens])):
        if len(set(given)) < len(given):
            raise InputError(f"--tokens {path} holds a {what} twice; write one line a token")
    if not tokens:
        raise InputError(f"--tokens {path} holds no token; write one line a token")
    return tuple(tokens)
