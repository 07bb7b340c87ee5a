"""Parts of messages: a count with its noun, and what follows a problem."""

from __future__ import annotations

__all__ = ["counted", "followed"]


def counted(number: int, one: str, many: str = "") -> str:
    """A count with its noun: "1 row", "1,200 rows"; `many`: the words of other counts, else `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def followed(said: str, more: str) -> str:
    """A problem and what follows it, after a semicolon, or after the problem's own question mark."""
    return f"{said} {more}" if said.endswith("?") else f"{said.rstrip('.')}; {more}"
