"""The optional extras of the package, and the error where one is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from beamwood.errors import NotInstalledError

__all__ = ["EXTRAS", "Extra", "asking_for", "install_command", "is_installed", "not_installed"]


@dataclass(frozen=True, slots=True)
class Extra:
    """`modules`: the package that installs each imported module; `gives`: what the extra enables."""

    modules: dict[str, str]
    gives: str


EXTRAS = {
    "train": Extra({"torch": "torch"}, "methods that train: trees, sequences, towers, rankers"),
    "ann": Extra({"faiss": "faiss-cpu"}, "index.kind=hnsw: a graph over item vectors"),
    "frames": Extra({"pyarrow": "pyarrow"}, "frames of pandas and tables of Arrow, in and out"),
    "plots": Extra(
        {"altair": "altair", "jinja2": "jinja2", "markupsafe": "markupsafe", "vl_convert": "vl-convert-python"},
        "--html: reports as pages",
    ),
    "tensorboard": Extra({"tensorboard": "tensorboard"}, "fit --tensorboard: curves of a training"),
    "docs": Extra(
        {"furo": "furo", "myst_parser": "myst-parser", "sphinx": "sphinx"}, "make docs: the documentation site"
    ),
    "serve": Extra(
        {
            "jinja2": "jinja2",
            "msgspec": "msgspec",
            "prometheus_client": "prometheus-client",
            "starlette": "starlette",
            "uvicorn": "uvicorn",
        },
        "beamwood serve: answers over HTTP",
    ),
    "redis": Extra({"redis": "redis"}, "serve --store redis://..: histories that several servers share"),
    "postgres": Extra({"psycopg": "psycopg"}, "serve --store postgresql://..: histories that several servers share"),
    "otel": Extra(
        {
            "opentelemetry": "opentelemetry-sdk",
            "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
        },
        "serve --otlp URL: spans of requests for a collector",
    ),
    "ray": Extra({"ray": "ray"}, "recommend --ray-address: many users on several machines"),
    "testing": Extra({"pytest": "pytest"}, "beamwood.testing: contract tests for parts of your own"),
}


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "beamwood[{extra}]"'


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be found; none is imported."""
    return all(_is_there(module) for module in EXTRAS[extra].modules)


def not_installed(what: str, module: str) -> NotInstalledError:
    """The error of a feature `what` that needs a module, with the command that installs it."""
    extra = next(name for name, extra in EXTRAS.items() if module in extra.modules)
    return NotInstalledError(f"{what}: {module} is not installed; install it with: {install_command(extra)}")


@contextmanager
def asking_for(what: str) -> Iterator[None]:
    """A context in which a missing module of an extra raises `NotInstalledError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if not any(missing in extra.modules for extra in EXTRAS.values()):
            raise
        raise not_installed(what, missing) from error


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    return find_spec(module) is not None
