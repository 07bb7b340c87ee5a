"""`beamwood settings`: the settings of a method, for `--set` and `--config`."""

from __future__ import annotations

import json as documents
from typing import Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.output import print_json
from beamwood.methods import METHODS

__all__ = ["settings"]


def settings(
    method: Annotated[
        o.Text,
        typer.Argument(
            metavar="METHOD",
            help="A method, such as dtr, or a .py file; default: list all methods.",
            autocompletion=o.beginning(*METHODS),
        ),
    ] = None,
    json: o.Json = False,
) -> None:
    """List all methods, or the settings of a method with defaults, choices, descriptions and presets."""
    from beamwood.methods import load_method
    from beamwood.methods.sums import parts

    if method is None:
        summaries = {name: load_method(name).summary for name in METHODS}
        if json:
            print_json(summaries)
            return
        for name, summary in summaries.items():
            print(f"{name}\n    {summary}")
        return
    first = parts(method)[0]
    rows = first.described()
    if json:
        print_json(rows)
        return
    if not rows:
        print(f"{method} has no settings")
    for name, row in rows.items():
        choices = f" ({' | '.join(row['choices'])})" if row["choices"] else ""
        print(f"{name} = {documents.dumps(row['default'])}{choices}")
        print(f"    {row['description']}")
        for value, presets in by_value(row).items():
            print(f"    --preset {' | '.join(presets)}: {value}")
    if first.presets:
        print(f"presets: {', '.join(first.presets)}")


def by_value(row: dict[str, Any]) -> dict[str, list[str]]:
    """The presets of a setting by their value, other than the default."""
    found: dict[str, list[str]] = {}
    for preset, value in row["presets"].items():
        if documents.dumps(value) != documents.dumps(row["default"]):
            found.setdefault(documents.dumps(value), []).append(preset)
    return found
