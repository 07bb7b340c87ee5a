"""The page as HTML, and its files."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from beamwood.serve.page.asked import FormFields

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["file_of", "page_of"]


@cache
def _environment() -> Environment:
    # Imported on demand, as many services never render the page.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("beamwood.serve.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters["score"] = lambda value: "–" if value is None else f"{value:z.4f}"
    return made


def page_of(asked: FormFields, **shown: Any) -> bytes:
    """The page of one request."""

    def adding(item: Any) -> str:
        """The address of the same request with one more item in the history."""
        given = asdict(replace(asked, history=asked.adding(item), find=""))
        return "/?" + urlencode({name: value for name, value in given.items() if value})

    return _environment().get_template("page.html").render(asked=asked, adding=adding, **shown).encode()


@cache
def file_of(name: str) -> bytes:
    """A file of the templates, unchanged."""
    return (files("beamwood.serve.page") / "templates" / name).read_bytes()
