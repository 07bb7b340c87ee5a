"""The name by which a service is asked, where only this machine may ask."""

from __future__ import annotations

import re

from beamwood.serve.problems import Problem

__all__ = ["check_host"]

# Addresses, and names that no page of the internet can have: those without a dot, and below localhost.
_OF_NO_PAGE = re.compile(rb"(?:[^.]*|[\d.]+|\[[\da-f:.]*\]|.*\.localhost)(?::\d*)?", re.IGNORECASE)


def check_host(host: bytes) -> None:
    """Errors: `Problem` on a name that a page may have directed to this machine (DNS rebinding).

    To the browser its requests are of that page's own origin, so that nothing else keeps it from the answers.
    """
    if _OF_NO_PAGE.fullmatch(host) is None:
        name = host.decode("latin-1")
        raise Problem(
            "invalid_http",
            f"without tokens this service answers as localhost alone, not as {name!a}; ask by its address, or serve "
            "with --tokens, or with --insecure behind a proxy",
        )
