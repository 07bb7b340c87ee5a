"""Error messages translated from Python arguments to the options of the typed command, and only those."""

from __future__ import annotations

import re
from collections.abc import Callable

from beamwood.cli.commands.fit import fit
from beamwood.cli.help import described

__all__ = ["in_words_of"]

_UNKNOWN = "pass on_unknown='ignore'"
_NEW_USERS = "give the histories of new users"
# A Python argument with its value, which is neither an example in brackets or backticks nor part of a name.
_NAMED = re.compile(r"(?<![\w.\-('`])(?:start\.)?([a-z_]+)=(?=['\d-]|nan|inf|None)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def in_words_of(command: Callable[..., None], message: str) -> str:
    """The message for the user of this command, with its options only."""
    known, of_fit = (described(each, ()).option_names for each in (command, fit))
    for words, option, typed in (
        (_UNKNOWN, "--on-unknown", "pass --on-unknown ignore"),
        ("pass seen='keep' to have them", "--include-seen", "--include-seen has them"),
        ("rejected='remove'", "--without-rejected", "--without-rejected"),
        ("pass rejected='keep' to have them", "--without-rejected", "leave --without-rejected out to have them"),
        (_NEW_USERS, "--history", "say what a new user took with --history"),
    ):
        message = (
            message.replace(words, typed) if option in known else re.sub(rf",? or {re.escape(words)}", "", message)
        )
    message = _NAMED.sub(lambda found: _as_option(found, known), message)
    return message + _elsewhere(message, of_fit - known)


def _as_option(found: re.Match[str], known: set[str]) -> str:
    option = f"--{found[1].replace('_', '-')}"
    return f"{option} " if option in known else found[0]


def _elsewhere(message: str, of_fit: set[str]) -> str:
    """The options in a message that only a fit has: a folder reads its log as it was fitted."""
    # Text after the name of a program belongs to that program.
    own = re.sub(r"beamwood [a-z]+[^;,()]*", "", message)
    others = [option for option in dict.fromkeys(_OPTION.findall(own)) if option in of_fit]
    return f" ({', '.join(others)}: of `beamwood fit`)" if others else ""
