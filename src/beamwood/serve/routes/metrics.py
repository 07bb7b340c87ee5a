"""`/metrics`."""

from __future__ import annotations

import asyncio

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from beamwood.serve.http.route import Call, Plain, Route
from beamwood.serve.service import Service

__all__ = ["routes"]


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """What Prometheus reads."""
    return [Route("GET", "/metrics", _metrics, "metrics", "Get metrics in the Prometheus format", quiet=True)]


async def _metrics(call: Call) -> Plain:
    return Plain(await asyncio.to_thread(call.service.metrics.text), CONTENT_TYPE_LATEST)
