"""`beamwood settings`: what `--set` and `--config` may say of a method."""

from __future__ import annotations

import json as documents
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import print_json

if TYPE_CHECKING:
    from beamwood.methods import Method

__all__ = ["settings"]


def settings(
    method: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="A method, such as dtr; of a sum, as dtr+ease, its first. Without one: all methods."),
    ] = None,
    json: o.Json = False,
) -> None:
    """List the methods; or a method's settings: name, default, what else it may be, and what it means."""
    from beamwood.methods import METHODS, load_method
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
    rows = described(first)
    if json:
        print_json(rows)
        return
    if not rows:
        print(f"{method} has no settings")
    for name, row in rows.items():
        choices = f" ({' | '.join(row['choices'])})" if row["choices"] else ""
        print(f"{name} = {documents.dumps(row['default'])}{choices}")
        print(f"    {row['description']}")
        for preset, value in row["presets"].items():
            print(f"    --preset {preset}: {documents.dumps(value)}")


def described(method: Method) -> dict[str, dict[str, Any]]:
    """Each setting by its dotted name: default, the words it may be, its description, and its value by preset."""
    defaults, rows = method.Config().flat(), {}
    for name in method.Config.names():
        group, _, key = name.partition(".")
        field = method.Config.group(group).model_json_schema()["properties"][key]
        forms = [field, field.get("items", {}), *field.get("anyOf", ())]
        rows[name] = {
            "default": defaults[name],
            "choices": [str(word) for form in forms for word in form.get("enum", ())],
            "description": field.get("description", ""),
            "presets": {preset: values[name] for preset, values in method.presets.items() if name in values},
        }
    return rows
