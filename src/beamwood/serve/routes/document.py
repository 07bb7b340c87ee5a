"""`/openapi.json`."""

from __future__ import annotations

import msgspec

from beamwood.serve.http.openapi import openapi
from beamwood.serve.http.route import Call, Plain, Route
from beamwood.serve.service import Service

__all__ = ["routes"]


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """The description of all endpoints."""
    return [Route("GET", "/openapi.json", _document, "recommend", "Get this OpenAPI document")]


async def _document(call: Call) -> Plain:
    return Plain(msgspec.json.encode(openapi(call.service.routes)), "application/json")
