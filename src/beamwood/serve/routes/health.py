"""Is it alive, and may it be asked?"""

from __future__ import annotations

from msgspec import Struct

from beamwood.serve.http.route import Call, Route
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service

__all__ = ["Health", "routes"]


class Health(Struct):
    """The status of a probe."""

    status: str


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """`/livez` and `/readyz`."""
    return [
        Route("GET", "/livez", _alive, None, "Liveness probe", Health, quiet=True),
        Route("GET", "/readyz", _ready, None, "Readiness probe", Health, quiet=True),
    ]


async def _alive(call: Call) -> Health:  # noqa: ARG001
    return Health("alive")


async def _ready(call: Call) -> Health:
    reason = call.service.unready()
    if reason is not None:
        raise Problem("not_ready", reason, retry_after_ms=1000)
    return Health("ready")
