"""The allowed values of a setting in words, and the error message about a wrong value."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from beamwood.errors import closest, first_problem
from beamwood.fitting.method_config import BooleanError, MethodConfig

__all__ = ["allowed", "problem_in_words"]

_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_NOTHING = ("null", "None")


def allowed(schema: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows, as "a whole number from 1, or null"."""
    if "anyOf" in schema:
        *others, last = sorted((allowed(each) for each in schema["anyOf"]), key=lambda words: words == "null")
        return f"{', '.join(others)}, or {last}" if last == "null" or len(others) > 1 else f"{others[0]} or {last}"
    if "enum" in schema or "const" in schema:
        *words, last = [repr(word) for word in schema.get("enum", [schema.get("const")])]
        return f"{', '.join(words)} or {last}" if words else last
    kind = schema.get("type")
    if kind == "array":
        inner: Mapping[str, Any] = schema.get("items") or next(iter(schema.get("prefixItems", ())), {})
        some = "one value or more" if schema.get("minItems") == 1 else "values"
        return f"a list of {some}, each {allowed(inner)}" if inner else "a list"
    if kind == "null":
        return "null"
    bounds = [f"{word} {schema[bound]:.12g}" for bound, word in _BOUNDS.items() if bound in schema]
    both = "minimum" in schema and "maximum" in schema
    between = " ".join(bounds).replace("at most", "to") if both else " and ".join(bounds)
    return f"{_KINDS.get(str(kind), 'another value')} {between}".strip()


def problem_in_words(kind: type[MethodConfig], error: ValidationError) -> str:
    """The message about the first wrong setting: its dotted name, its value, and the allowed values."""
    first = error.errors()[0]
    group, key = ([*map(str, first["loc"]), "", ""])[:2]
    is_boolean = isinstance(first.get("ctx", {}).get("error"), BooleanError)
    own = first["type"] in ("value_error", "missing", "extra_forbidden") and not is_boolean
    if own or group not in kind.model_fields or key not in kind.group(group).model_fields:
        return first_problem(error)
    schema = kind.group(group).model_json_schema()["properties"][key]
    words = allowed(schema)
    value, within = first["input"], any(isinstance(part, int) for part in first["loc"][2:])
    stated = f"{group}.{key} has {reprlib.repr(value)}" if within else f"{group}.{key}={reprlib.repr(value)}"
    if first["type"] == "finite_number":
        words = words.replace("a number", "a finite number")
    stated = f"{stated}: give {words}"
    if not within and _fits(kind, f"{group}.{key}", listed := _listed(value)):
        in_shell = "; a shell removes such quotes: put the whole setting in double quotes" * (listed != [value])
        return f"{stated}, as {listed!r}{in_shell}"
    if not isinstance(value, str):
        return stated
    if value in _NOTHING:
        return stated + "; null is None in Python" * words.endswith("null")
    near = closest(value, _choices(schema))
    return stated if near is None else f"{stated}; did you mean {near!r}?"


def _listed(value: Any) -> list[Any]:
    """The value as a list: the parts of text in brackets, which lacks the quotes of a list of texts, or the value."""
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        return [part.strip() for part in value[1:-1].split(",")]
    return [value]


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """The words that a setting allows as values."""
    forms = [schema, *schema.get("anyOf", ()), schema.get("items", {})]
    return [str(word) for form in forms for word in form.get("enum", [form.get("const")]) if word is not None]


def _fits(kind: type[MethodConfig], name: str, value: Any) -> bool:
    try:
        kind.model_validate({name: value})
    except ValidationError:
        return False
    return True
