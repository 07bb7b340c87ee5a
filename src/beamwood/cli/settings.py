"""`beamwood settings`: what `--set` and `--config` may say of a method."""

from __future__ import annotations

import json as documents
from typing import Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import print_json

__all__ = ["settings"]


def settings(
    method: Annotated[str, typer.Argument(help="A method, such as dtr; of a sum, as dtr+ease, its first.")],
    json: o.Json = False,
) -> None:
    """List a method's settings: name, default, what else it may be, and what it means."""
    from beamwood.methods import load_method
    from beamwood.methods.sums import parts

    schema = load_method(parts(method)[0]).Config.model_json_schema().get("properties", {})
    rows = {name: described(field) for name, field in schema.items()}
    if json:
        print_json(rows)
        return
    if not rows:
        print(f"{method} has no settings")
    for name, row in rows.items():
        choices = f" ({' | '.join(row['choices'])})" if row["choices"] else ""
        print(f"{name} = {documents.dumps(row['default'])}{choices}")
        if row["description"]:
            print(f"    {row['description']}")


def described(field: dict[str, Any]) -> dict[str, Any]:
    """A setting's default, the words it may be, and its description."""
    forms = [field, field.get("items", {}), *field.get("anyOf", ())]
    choices = [str(word) for form in forms for word in form.get("enum", ())]
    return {"default": field.get("default"), "choices": choices, "description": field.get("description", "")}
