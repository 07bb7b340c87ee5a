"""Content of pages that is generated from the program: methods, settings, commands, HTTP endpoints, docstrings.

The directives are `{methods}`, `{extras}`, `{http}`, `{settings} NAME` and `{command} NAME`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from beamwood.cli.commands.settings import by_value
from beamwood.cli.help import OptionLine
from beamwood.cli.registry import commands_by_name
from beamwood.extras import EXTRAS
from beamwood.methods import METHODS, load_method


class Generated(SphinxDirective):
    """A directive whose content is generated Markdown."""

    def lines(self) -> list[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        place = nodes.Element()
        self.state.nested_parse(StringList(self.lines(), source=self.get_source_info()[0]), self.content_offset, place)
        return place.children


class Methods(Generated):
    """Every method with a link to its page."""

    def lines(self) -> list[str]:
        rows = [f"[`{name}`]({name}.md) | {load_method(name).summary}" for name in METHODS]
        return table("method | description", rows)


class Settings(Generated):
    """The settings of a method: description, default, and value in each preset."""

    required_arguments = 1

    def lines(self) -> list[str]:
        method = load_method(self.arguments[0])
        rows = [f"`{name}` | {described(row, method.presets)}" for name, row in method.described().items()]
        if not rows:
            return ["This method has no settings."]
        head = "setting | default | description"
        return table(head + (" | presets" if method.presets else ""), rows)


class Extras(Generated):
    """The extras of the package."""

    def lines(self) -> list[str]:
        return table("extra | enables", [f"`{name}` | {extra.gives}" for name, extra in EXTRAS.items()])


class Http(Generated):
    """Every endpoint of a service, and the fields of requests and responses."""

    def lines(self) -> list[str]:
        document, shown = served(), []
        for path, methods in document["paths"].items():
            for method, told in methods.items():
                shown += ["", f"**`{method.upper()} {path}`**", "", endpoint(told), ""]
                shown += fields_of(told.get("parameters", []))
        shown += ["", "Fields of requests and responses:"]
        for name, schema in document["components"]["schemas"].items():
            shown += ["", f"**{name}**", "", *table("field | description", properties(schema))]
        return shown


def served() -> dict[str, Any]:
    """The OpenAPI document."""
    from beamwood.serve.app import routes_of
    from beamwood.serve.http.openapi import openapi
    from beamwood.serve.service import Service
    from beamwood.serve.settings import ServeSettings

    service = Service(ServeSettings(store="memory", log="none", threads=1))
    try:
        return openapi(routes_of(service))
    finally:
        service.close()


def endpoint(told: dict[str, Any]) -> str:
    """The summary of an endpoint, its request and response, and the required scope."""
    said = [f"{told['summary']}."]
    body = told.get("requestBody")
    if body is not None:
        said.append(f"Request: {kind(body['content']['application/json']['schema'])}.")
    content = told["responses"]["200"].get("content")
    if content is not None:
        said.append(f"Response: {kind(content['application/json']['schema'])}.")
    scopes = [f"`{scope}`" for each in told.get("security", []) for scopes in each.values() for scope in scopes]
    said.append(f"Required scope: {', '.join(scopes)}." if scopes else "No token required.")
    return " ".join(said)


def fields_of(parameters: list[dict[str, Any]]) -> list[str]:
    """The query parameters."""
    rows = [f"`{each['name']}` | {cell(each['description'])}" for each in parameters if each["in"] == "query"]
    return table("query parameter | description", rows) if rows else []


def properties(schema: dict[str, Any]) -> list[str]:
    """A row for each field of an object."""
    rows = []
    for name, part in schema.get("properties", {}).items():
        needed = " Required." if name in schema.get("required", ()) and "default" not in part else ""
        default = part.get("default")
        given = f" Default: `{json.dumps(default)}`." if default not in (None, [], {}) else ""
        meaning = f" {cell(part['description'])}" if "description" in part else ""
        rows.append(f"`{name}` | {kind(part)}.{meaning}{needed}{given}")
    return rows


def kind(schema: dict[str, Any]) -> str:
    """The type of a schema, in a few words."""
    if "$ref" in schema:
        return f"**{schema['$ref'].rpartition('/')[2]}**"
    if "anyOf" in schema:
        parts = [kind(each) for each in schema["anyOf"] if each.get("type") != "null"]
        said = " or ".join(dict.fromkeys(parts))
        return "id" if said == "integer or string" else said
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"] if word is not None)
    if schema.get("type") == "array":
        inner = kind(schema.get("items", {}))
        return f"list of {PLURALS.get(inner, inner)}"
    bounds = [f"{word} {schema[key]:g}" for key, word in BOUNDS.items() if key in schema]
    return " ".join([KINDS.get(str(schema.get("type")), "any value"), *bounds])


KINDS = {name: name for name in ("integer", "number", "string", "boolean", "object", "null")}
PLURALS = {"id": "ids", "object": "objects", "string": "strings"}
BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}


class Command(Generated):
    """A command: examples, usage, and all of its options."""

    required_arguments = 1

    def lines(self) -> list[str]:
        page = commands_by_name()[self.arguments[0]]
        rows = [f"`{cell(one.typed)}` | {cell(words(one))}" for one in page.options]
        shown = ["```text", *page.examples, "```"]
        return [page.summary, "", *shown, "", f"Usage: `{page.usage}`", "", *table("option | description", rows)]


def table(head: str, rows: list[str]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {line} |" for line in (head, " | ".join(["---"] * (head.count("|") + 1)), *rows)]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def words(option: OptionLine) -> str:
    """The meaning of an option, whether it is required, and its default."""
    more = " Required." if option.required and option.typed.startswith("-") else ""
    return f"{option.meaning}{more}" + ("" if option.default is None else f" Default: `{option.default}`.")


def described(row: dict[str, Any], presets: Any) -> str:
    """Default, meaning and presets of one setting."""
    choices = ", ".join(f"`{word}`" for word in row["choices"])
    meaning = row["description"] + (f" ({choices})" if choices else "")
    cells = [f"`{json.dumps(row['default'])}`", cell(meaning)]
    if presets:
        differing = [f"{', '.join(names)}: `{value}`" for value, names in by_value(row).items()]
        cells.append(cell("; ".join(differing)))
    return " | ".join(cells)


def plain_docstring(lines: list[str]) -> list[str]:
    """A docstring of this project as reStructuredText: prose is escaped, indented blocks are literal."""
    ready: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        if line.startswith(">>> ") or (inside and line.strip() and ready[-1].strip()):
            inside = True
            ready.append(line)
            continue
        inside = False
        begins = line.startswith("    ") and (number == 0 or not lines[number - 1].strip())
        if begins:
            ready += ["::", ""]
        ready.append(line if line.startswith("    ") else _escaped(line))
    return ready


def _escaped(line: str) -> str:
    """Code stays as it is; elsewhere no character is markup."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(f"`{part}`" if part.startswith("`") else re.sub(r"([*|_@\\])", r"\\\1", part) for part in parts)


def _on_docstring(*event: Any) -> None:
    lines = event[-1]
    lines[:] = plain_docstring(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("methods", Methods)
    app.add_directive("settings", Settings)
    app.add_directive("extras", Extras)
    app.add_directive("command", Command)
    app.add_directive("http", Http)
    # Requests on pages are a line and a body, without headers.
    app.add_lexer("http", TextLexer)
    app.connect("autodoc-process-docstring", _on_docstring)
    return {"parallel_read_safe": True}
