"""A method's settings from the options of a command: a preset, a TOML file, and words such as `loop.max_steps=100`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamwood.errors import InputError, nearest_path

if TYPE_CHECKING:
    from beamwood.fitting.method_config import MethodConfig
    from beamwood.methods import Method

__all__ = ["make_config"]


def make_config(
    method: Method, file: str | None, settings: Sequence[str], *, preset: str | None = None
) -> MethodConfig:
    """A method's settings: of a preset, of a TOML file (its tables are the groups), of `group.key=value` words.

    Later ones override earlier ones.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(Path(file).read_text("utf-8-sig"))
        except FileNotFoundError:
            raise InputError(f"--config {file} does not exist{nearest_path(Path(file))}") from None
        except RecursionError:
            raise InputError(f"--config {file} is not readable TOML: it is nested too deeply") from None
        except IsADirectoryError:
            raise InputError(f"--config {file} is a folder; name a TOML file") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"--config {file} is not readable TOML: {error}") from None
    said = set[str]()
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting!r} has no '='; write --set group.key=value")
        if key.strip() in said:
            raise InputError(f"--set {key.strip()} is given twice; give it once")
        said.add(key.strip())
        values[key.strip()] = parse_value(text.strip())
    return method.configured(values, preset)


def parse_value(text: str) -> Any:
    """A value as TOML reads it, null (which TOML lacks) as None, else the text itself: 3, true, [1, 2], category."""
    if text == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
