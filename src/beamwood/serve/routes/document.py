"""`/openapi.json`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

import msgspec

from beamwood.serve.http.openapi import openapi
from beamwood.serve.http.route import Call, Plain, Route

__all__ = ["route"]


def route(routes: Sequence[Route]) -> Route:
    """The description of these endpoints, among which it will be."""

    @cache
    def content() -> bytes:
        return msgspec.json.encode(openapi(routes))

    async def document(call: Call) -> Plain:  # noqa: ARG001
        return Plain(await asyncio.to_thread(content), "application/json")

    return Route("GET", "/openapi.json", document, "recommend", "Get this OpenAPI document")
