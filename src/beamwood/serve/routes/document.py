"""`/openapi.json`."""

from __future__ import annotations

import asyncio
from functools import cache

import msgspec

from beamwood.serve.http.openapi import openapi
from beamwood.serve.http.route import Call, Plain, Route
from beamwood.serve.service import Service

__all__ = ["routes"]


def routes(service: Service) -> list[Route]:
    """The description of all endpoints."""

    @cache
    def content() -> bytes:
        return msgspec.json.encode(openapi(service.routes))

    async def document(call: Call) -> Plain:  # noqa: ARG001
        return Plain(await asyncio.to_thread(content), "application/json")

    return [Route("GET", "/openapi.json", document, "recommend", "Get this OpenAPI document")]
