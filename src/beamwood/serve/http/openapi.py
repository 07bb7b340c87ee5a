"""The OpenAPI document of a service, generated from its endpoints; schemas come from the structs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from beamwood import __version__
from beamwood.serve.http.route import Route
from beamwood.serve.problems import STATUS, Failures

__all__ = ["openapi"]

_WITH_BODY = ("404", "408", "409", "413", "415", "422")
_WHEN = dict.fromkeys(("PUT", "PATCH"), _WITH_BODY) | {
    "GET": ("422",),
    "POST": (*_WITH_BODY, "410"),
    "DELETE": ("404", "422"),
}
# Of the headers, and of faults of the service.
_ALWAYS = ("400", "431", "500", "503")
_WITH_TOKEN = ("401", "403", "429", "504")


def openapi(routes: Sequence[Route]) -> dict[str, Any]:
    """The document (OpenAPI 3.1) of all endpoints for programs."""
    told = [route for route in routes if not route.hidden]
    structs = [each for route in told for each in (route.body, route.answer) if each is not None]
    schemas, components = msgspec.json.schema_components(
        [*structs, Failures], ref_template="#/components/schemas/{name}"
    )
    by_struct = dict(zip([*structs, Failures], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in told:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_struct)
    codes = ", ".join(f"{code} ({status})" for code, status in STATUS.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "beamwood serve",
            "version": __version__,
            "description": f"Recommendations over HTTP. Codes of errors: {codes}.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, by_struct: dict[Any, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "The answer"}
    if route.answer is not None:
        answer["content"] = {"application/json": {"schema": by_struct[route.answer]}}
    wrong = {"description": "An error", "content": {"application/json": {"schema": by_struct[Failures]}}}
    statuses = [*_WHEN[route.method], *_ALWAYS, *(_WITH_TOKEN if route.scope is not None else ())]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": re.sub(r"\W+", "_", f"{route.method} {route.path}").strip("_").lower(),
        "responses": {"200": answer} | dict.fromkeys(sorted(statuses), wrong),
    }
    if route.scope is not None:
        operation["security"] = [{"token": [route.scope]}]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_struct[route.body]}},
        }
    places = re.findall(r"\{(\w+)\}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in places] + [
        {"name": name, "in": "query", "required": False, "description": said, "schema": {"type": "string"}}
        for name, said in route.query.items()
    ]
    if parameters:
        operation["parameters"] = parameters
    return operation
