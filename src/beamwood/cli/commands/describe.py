"""`beamwood describe`: the contents of a log, the rows that a fit uses, and the next command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from beamwood.cli import options as o
from beamwood.cli.data_source import DataSource, reading_options
from beamwood.cli.expand import expanded
from beamwood.cli.native_words import held_back
from beamwood.cli.output import check_page, finish
from beamwood.cli.words import in_words_of
from beamwood.cli.written import default_output
from beamwood.errors import InputError
from beamwood.steps import step

__all__ = ["advised", "describe"]

# An option with its value in a message, and the columns that a message offers for one option.
_ADVICE = re.compile(r"(--[a-z][a-z-]*) ('[^']*'|\"[^\"]*\"|[\w.%/:-]+(?:,[\w.%/:-]+)*)")
_CHOICE = re.compile(r"has several columns for the \w+: (.+?); choose one with (--[a-z-]+)")
_MOST_STEPS, _MOST_WAYS = 4, 4


@expanded
def describe(log: o.LogPath, *, reading: o.ReadOptions, html: o.Page = None, json: o.Json = False) -> None:
    """Describe LOG: its contents, what a fit uses and leaves out, the size of each split, and the next command.

    A log that a fit refuses is refused here too, with every option that would make it readable, each of them tried.
    """
    if html is not None:
        check_page(html)
    refusal: str | None = None
    try:
        ways = [(_described(log, reading), reading)]
    except InputError as error:
        refusal = str(error)
        ways = _mended(log, reading, refusal)
    document = ways[0][0] if ways else _outlined(log, reading)
    document = document | {"commands": [_command(log, way, told) for told, way in ways if told["split"]]}
    if refusal is not None:
        refusal = " ".join(in_words_of(describe, refusal).split())
        document |= {"error": refusal, "exit": 2}
    page = None
    if html is not None and "splits" in document:
        from beamwood.report.describe import description_page

        page = html, description_page(document)
    finish(document, lambda: _print_description(document), as_json=json, page=page, error=refusal)


def advised(message: str, known: set[str]) -> list[tuple[str, str]]:
    """The options with values in a message, in order, without repeats."""
    found = [(option, value.strip("'\"")) for option, value in _ADVICE.findall(message)]
    for names, option in _CHOICE.findall(message):
        found += [(option, name) for name in names.split(", ")]
    return [(option, value) for option, value in dict.fromkeys(found) if _field(option) in known]


def _field(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _described(log: str, reading: o.ReadOptions) -> dict[str, Any]:
    from beamwood.data import describe_log

    source = DataSource.of(log, reading)
    options = reading_options(source)
    unlisted: Any = source.unlisted
    with step(f"looking at {log}"), held_back():
        return describe_log(
            log,
            source.items,
            item_column=source.items_column,
            unlisted=unlisted,
            drop_duplicates=source.drop_duplicates,
            **options,
        )


def _mended(log: str, reading: o.ReadOptions, refusal: str) -> list[tuple[dict[str, Any], o.ReadOptions]]:
    """The log under each of the advised options that make it readable."""
    # A result of several steps may be reachable in one.
    found = {way: document for document, way in _ways(log, reading, refusal, _MOST_STEPS)}
    # Ways that read the times come first, as the first one is what is typed.
    ways = sorted(found, key=lambda way: way.time_column == "none")
    return [(found[way], way) for way in ways][:_MOST_WAYS]


def _outlined(log: str, reading: o.ReadOptions) -> dict[str, Any]:
    """The outline of a table that is not a log; empty where it is not a table."""
    from beamwood.data.description import outline_of

    try:
        with held_back():
            options = reading_options(DataSource.of(log, reading))
            return outline_of(log, **{name: options[name] for name in ("columns", "separator", "header")})
    except InputError:
        return {}


def _ways(log: str, reading: o.ReadOptions, refusal: str, steps: int) -> Iterator[tuple[dict[str, Any], o.ReadOptions]]:
    """The descriptions reached by following the advice of a refusal, one option at a time."""
    known = {*asdict(reading)}
    for option, value in advised(refusal, known):
        if asdict(reading)[_field(option)] == value:
            continue
        changed: dict[str, Any] = {_field(option): value}
        way = replace(reading, **changed)
        try:
            yield _described(log, way), way
        except InputError as error:
            if steps > 1 and str(error) != refusal:
                yield from _ways(log, way, str(error), steps - 1)


def _command(log: str, reading: o.ReadOptions, document: dict[str, Any]) -> str:
    """The fit of the log as it was described."""
    words = ["beamwood", "fit", log]
    usual = asdict(o.ReadOptions())
    for name, value in asdict(reading).items():
        if value != usual[name]:
            option = f"--{name.replace('_', '-')}"
            text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
            words += [option] if value is True else [option, text]
    split = document["split"]
    words += [] if split == "users" else ["--split", split]
    return shlex.join([*words, "--out", str(_free(Path(default_output(log))))])


def _free(folder: Path) -> Path:
    """The folder, or one with a number that does not exist yet."""
    number, found = 2, folder
    while os.path.exists(found):
        number, found = number + 1, folder.with_name(f"{folder.name}-{number}")
    return found


def _print_description(document: dict[str, Any]) -> None:
    from beamwood.data.description import description_lines, outline_lines

    if "error" in document and "splits" in document:
        print("as it is, this log is refused; with the options of the first command below it is this:")
    if "splits" in document:
        print("\n".join(description_lines(document)))
    elif "columns" in document:
        print("\n".join(outline_lines(document)))
    commands = document["commands"]
    if commands:
        print("next: " + "\n  or: ".join(commands))
    elif "splits" in document:
        print("no split leaves users to validate and test with; give more users or longer histories")
