"""What pages take from the program: methods and settings as tables, commands with their options, docstrings.

`{methods}`, `{extras}`, `{settings} NAME` and `{command} NAME` are directives of the pages.
"""

from __future__ import annotations

import json
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from beamwood.cli.help import OptionLine, pages
from beamwood.cli.settings import by_value
from beamwood.extras import EXTRAS
from beamwood.methods import METHODS, load_method


class Generated(SphinxDirective):
    """A directive whose content is Markdown that the program gives."""

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
        return table("name | what it is", rows)


class Settings(Generated):
    """The settings of a method: what each is, its default, and its value in each preset."""

    required_arguments = 1

    def lines(self) -> list[str]:
        method = load_method(self.arguments[0])
        rows = [f"`{name}` | {described(row, method.presets)}" for name, row in method.described().items()]
        if not rows:
            return ["There is nothing to set."]
        head = "setting | default | what it is"
        return table(head + (" | in presets" if method.presets else ""), rows)


class Extras(Generated):
    """What each extra of the package gives."""

    def lines(self) -> list[str]:
        return table("extra | what it gives", [f"`{name}` | {extra.gives}" for name, extra in EXTRAS.items()])


class Command(Generated):
    """A command: examples, usage, and all of its options."""

    required_arguments = 1

    def lines(self) -> list[str]:
        page = pages()[self.arguments[0]]
        rows = [f"`{cell(one.typed)}` | {cell(words(one))}" for one in page.options]
        shown = ["```text", *page.examples, "```"]
        return [page.summary, "", *shown, "", f"Usage: `{page.usage}`", "", *table("option | what it means", rows)]


def table(head: str, rows: list[str]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {line} |" for line in (head, " | ".join(["---"] * (head.count("|") + 1)), *rows)]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def words(option: OptionLine) -> str:
    """What an option means; what it cannot do without, and its default."""
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
    app.connect("autodoc-process-docstring", _on_docstring)
    return {"parallel_read_safe": True}
