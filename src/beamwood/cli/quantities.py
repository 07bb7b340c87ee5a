"""Durations and sizes as options give them, such as 1h30m and 256MB."""

from __future__ import annotations

import math
import re

from beamwood.errors import InputError

__all__ = ["parse_duration", "parse_size", "parse_time_limit"]

_BYTES = {"": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def parse_duration(option: str, text: str) -> float:
    """Seconds of "500ms", "90s", "30m", "1h30m" or a plain number of seconds. Errors: another form."""
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?=\d)(?:{number}h)?(?:{number}m)?(?:{number}s)?(?:{number}ms)?|{number}", text.strip())
    parts = [float(part or 0) for part in match.groups()] if match else [math.inf]
    seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1, 0.001, 1), strict=False))
    if seconds == math.inf:
        raise InputError(f"{option} {text!r} is not a duration; write 30m, 90s or 500ms")
    return seconds


def parse_time_limit(text: str | None) -> float | None:
    """The seconds of a time limit; None stays None. Errors: another form, and 0."""
    seconds = None if text is None else parse_duration("--time-limit", text)
    if seconds == 0:
        raise InputError(f"--time-limit {text!r} is not above 0; write 30m, 90s or 1h30m")
    return seconds


def parse_size(option: str, text: str) -> int:
    """The bytes of "256MB". Errors: another form."""
    found = re.fullmatch(r"(\d+)(KB|MB|GB|)", text.strip().upper())
    if found is None:
        raise InputError(f"{option}={text!r} is not a size; write 256MB or 1GB")
    return int(found[1]) * _BYTES[found[2]]
