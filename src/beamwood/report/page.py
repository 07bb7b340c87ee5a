"""Renders one self-contained page: a template, the measurements, its charts and the scripts that draw them."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from beamwood import __version__
from beamwood.errors import NotInstalledError
from beamwood.evaluation import results
from beamwood.extras import install_command, is_installed

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["MARK", "VIEWS", "check_installed", "render_page"]

MARK = '<meta name="generator" content="beamwood">'
"""Marks a file as a page of beamwood, which another page may overwrite."""
VIEWS = {view: results.VIEWS[view] for view in ("removed", "kept")}
"""The views as pages show them, in words."""


def check_installed() -> None:
    """Errors: the extra that draws pages is missing. Call it before measuring anything."""
    if not is_installed("plots"):
        raise NotInstalledError(f"--html needs what draws pages; install it with: {install_command('plots')}")


def render_page(name: str, document: Mapping[str, Any], charts: Mapping[str, Any], **shown: Any) -> str:
    """The page of a template by its name, as "compare".

    `document` is the command's JSON output and is embedded in the page; `charts` are Vega-Lite specifications by name;
    `shown` are further template variables. Ids and titles are escaped, and the content security policy lets only the
    page's own two scripts run.
    """
    from beamwood.report.charts import LOOK

    environment = _environment()
    drawing, code = _drawing(), _source("page.js")
    return environment.get_template(f"{name}.html").render(
        command=name,
        mark=_safe(MARK),
        policy=_policy(drawing, code),
        style=_safe(_source("style.css")),
        drawing=_safe(drawing),
        code=_safe(code),
        version=__version__,
        look=LOOK,
        document=document,
        charts=charts,
        **shown,
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("beamwood.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number_text,
        "percent": percent,
        "whole": count_text,
        "signed": signed,
        "plain": plain,
        "broken": broken,
        "quoted": shlex.quote,
    }
    environment.globals |= {"titles": VIEWS, "views": tuple(VIEWS)}
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "default": str, "separators": (",", ":")}
    return environment


@cache
def _drawing() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    from vl_convert import javascript_bundle

    script = str(javascript_bundle())  # type: ignore[call-arg]
    assert "</script" not in script.lower(), "the script would end the element that holds it"
    return script.replace("\r\n", "\n")


def _source(name: str) -> str:
    """The text of a file in the template folder."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _policy(*scripts: str) -> str:
    """The content security policy: these scripts, inline styles, and nothing from elsewhere."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def _safe(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


def _data(value: float, text: str) -> Markup:
    """A number formatted for reading, with its exact value in a `data` element."""
    from markupsafe import Markup

    return Markup('<data value="{}">{}</data>').format(repr(value), text)


def number_text(value: float | None, digits: int = 4) -> Markup | str:
    """With `digits` decimals; a dash for what was not measured."""
    return "–" if value is None else _data(value, f"{value:z,.{digits}f}")


def signed(value: float, digits: int = 4) -> Markup:
    """With its sign."""
    return _data(value, f"{value:+z,.{digits}f}")


def percent(value: float | None, digits: int = 0) -> Markup | str:
    """A share as a percentage."""
    return "–" if value is None else _data(value, f"{100 * value:z.{digits}f} %")


def count_text(value: int | None) -> Markup | str:
    """A count."""
    return "–" if value is None else _data(value, f"{value:,}")


def plain(value: Any) -> Any:
    """A setting or a fact: a float with four significant digits and its exact value; lists joined with ";"."""
    if isinstance(value, list | tuple):
        return "; ".join(str(each) for each in value) or "–"
    return _data(value, f"{value:z.4g}") if isinstance(value, float) else "–" if value is None else value


def broken(text: str) -> Markup:
    """A name that may wrap after each +, as dtr+cooccurrence."""
    from markupsafe import Markup, escape

    return Markup("+<wbr>").join(escape(part) for part in text.split("+"))
