"""Arguments of all commands: no repeated values, no empty paths, and paths as a next command can name them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from beamwood.errors import InputError
from beamwood.words import followed

__all__ = ["check_once", "with_fix", "with_paths"]

_PATHS = ("FILE", "FOLDER", "LOG", "PATH", "A B C")
# What other texts name, by metavar.
_PLACES = {"ADDRESS": "address", "STORE": "address", "URL": "address", "ORIGIN": "origin", "IPS": "addresses"}
# The most commands named that have an option.
_FEW = 3
# By the parser's words about a value, what is wrong with it, and what to give instead.
_VALUES = {
    r"a valid integer\b.*": "is not a whole number; give one",
    r"a valid number\b.*": "is not a number; give one",
    r"greater than or equal to (.+)": r"is below \1; give at least \1",
    r"less than or equal to (.+)": r"is above \1; give at most \1",
}


def check_once(given: Iterable[Any]) -> None:
    """Errors: a repeated option that takes one value."""
    before = set[str]()
    for parameter in given:
        if parameter.param_type_name != "option" or parameter.multiple or parameter.is_flag:
            continue
        if parameter.name in before:
            raise InputError(f"{parameter.opts[-1]} is given twice and takes one value; give it once")
        before.add(parameter.name)


def with_paths(parameters: Iterable[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name, with paths that any command can name: see `_named`. Errors: an empty path or address."""
    made = dict(values)
    for parameter in parameters:
        value = made.get(parameter.name)
        if parameter.metavar not in (*_PATHS, *_PLACES) or value is None:
            continue
        for path in [value] if isinstance(value, str) else value:
            if not path.strip():
                shown = parameter.opts[-1] if parameter.param_type_name == "option" else parameter.metavar
                or_none = "" if parameter.required else ", or leave it out"
                what = _PLACES.get(parameter.metavar, "path")
                raise InputError(f"{shown} is empty, as of a variable without a value; write the {what}{or_none}")
        if parameter.metavar in _PLACES:
            continue
        made[parameter.name] = _named(value) if isinstance(value, str) else [_named(path) for path in value]
    return made


def _named(path: str) -> str:
    """The path with ~ expanded, as a shell does not in --out=~/runs, and not in the form of an option."""
    return os.path.join(os.curdir, path) if re.match("-.", path) else os.path.expanduser(path)


def with_fix(message: str, arguments: Sequence[str], options: Mapping[str, Collection[str]]) -> str:
    """The parser's message about a command line, with the fix: commands that have the option, and the help to read.

    `arguments`: as typed, from the command of any name on; `options`: by command, the long names of its options.
    """
    command = arguments[0] if arguments else None
    said = _about_value(message.rstrip("."), arguments)
    if said.startswith("No such option: "):
        option = said.removeprefix("No such option: ").split(" ")[0]
        others = [name for name, own in options.items() if option in own]
        if 0 < len(others) <= _FEW:
            said = f"No such option: {option} (of {', '.join(f'`beamwood {name}`' for name in others)})"
    more = re.fullmatch(r"Got unexpected extra argument\S* \((.*)\)", said)
    paths = [] if more is None else more[1].split(" ")
    if paths and os.path.exists(paths[0]):
        return (
            f"one path is read, and {len(paths)} more were given, the first {paths[0]}; write a pattern of files in "
            "quotes, such as 'logs/*.csv', or name their folder"
        )
    own = f"{command} " if command in options else ""
    return followed(said, f"`beamwood {own}{'--help-all' if own else '--help'}` says what there is")


def _about_value(said: str, arguments: Sequence[str]) -> str:
    """The message, where it is about the value of an option in our words and with this value."""
    found = re.fullmatch(r"Invalid value for (.+?): Input should be (.+)", said)
    words = (
        [re.sub(form, own, found[2]) for form, own in _VALUES.items() if re.fullmatch(form, found[2])] if found else []
    )
    if not found or not words:
        return said
    names = re.findall(r"'(-[^']+)'", found[1])
    given = "".join(f" {value}" for value in _values_of(names, arguments)[-1:])
    return f"{names[-1] if names else found[1]}{given} {words[0]}"


def _values_of(names: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The values given to an option of these names."""
    values = [after for name, after in pairwise(arguments) if name in names]
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals and name in names:
            values.append(value)
        elif each[:2] in names and each[2:] and not each.startswith("--"):
            values.append(each[2:])
    return values
