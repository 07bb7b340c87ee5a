"""The application: every endpoint as a Starlette route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from beamwood.serve.http.endpoint import Endpoint, elsewhere
from beamwood.serve.http.route import Route
from beamwood.serve.problems import Problem
from beamwood.serve.routes import (
    document,
    events,
    experiments,
    health,
    items,
    lists,
    metrics,
    models,
    page,
    recommend,
    users,
)
from beamwood.serve.service import Service
from beamwood.serve.upkeep import close_in_time, upkeep

__all__ = ["Direct", "build_app", "largest_body", "routes_of"]

ROUTES: tuple[Callable[[Service], list[Route]], ...] = (
    recommend.routes,
    lists.routes,
    events.routes,
    users.routes,
    experiments.routes,
    items.routes,
    models.routes,
    health.routes,
    metrics.routes,
    page.routes,
)
"""Who brings endpoints."""


def routes_of(service: Service) -> list[Route]:
    """Every endpoint of a service."""
    routes = [route for brought in ROUTES for route in brought(service)]
    routes.append(document.route(routes))
    return routes


def largest_body(service: Service) -> int:
    """The bytes of the largest body that an endpoint takes."""
    return max(route.body_bytes or service.settings.limits.body_bytes for route in routes_of(service))


def build_app(service: Service) -> ASGIApp:
    """The ASGI application of a service, which closes the service when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:  # noqa: ARG001
        try:
            async with upkeep(service):
                yield
        finally:
            await close_in_time(service)

    endpoints = [(route, Endpoint(service, route)) for route in routes_of(service)]
    routes = [StarletteRoute(route.path, endpoint, methods=[route.method]) for route, endpoint in endpoints]
    other = elsewhere(service)
    named = service.settings.cors
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(named),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type", "x-request-id"],
    )
    whole = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(_AsSent), *([cors] if named else [])],
        exception_handlers={404: partial(_no_such_path, other), 405: partial(_wrong_method, other)},
    )
    # A superfluous slash is refused like any unknown path.
    whole.router.redirect_slashes = False
    plain = {(str(route.method), route.path): endpoint for route, endpoint in endpoints if "{" not in route.path}
    return whole if named else Direct(whole, plain)


class Direct:
    """Dispatches fixed paths straight to their endpoints, which handle all errors; others to the rest."""

    def __init__(self, rest: ASGIApp, plain: Mapping[tuple[str, str], Endpoint]) -> None:
        self._rest, self._plain = rest, plain

    @property
    def waited(self) -> Mapping[tuple[bytes, bytes], Endpoint]:
        """The interactive endpoints, by method and path."""
        return {
            (method.encode(), path.encode()): endpoint
            for (method, path), endpoint in self._plain.items()
            if endpoint.route.waits
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not scope.get("root_path"):
            endpoint = self._plain.get((scope["method"], scope["path"]))
            if endpoint is not None:
                scope["path_params"] = {}
                await endpoint(scope, receive, send)
                return
        await self._rest(scope, receive, send)


class _AsSent:
    """Paths are matched undecoded, so that an id may contain a slash; the endpoint decodes ids."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


async def _no_such_path(other: Endpoint, request: Request, error: Exception) -> Response:  # noqa: ARG001
    message = f"the path {request.scope['path']} does not exist; /openapi.json lists all paths"
    return _refused(other, request, Problem("not_found", message))


async def _wrong_method(other: Endpoint, request: Request, error: Any) -> Response:  # noqa: ARG001
    # Starlette tells the methods of the first endpoint of a path alone.
    path = request.scope["path"]
    there = [route for route in request.app.routes if route.path_regex.match(path)]
    allowed = ", ".join(sorted({method for route in there for method in route.methods}))
    answer = _refused(other, request, Problem("method_not_allowed", f"{path} takes {allowed}"))
    answer.headers["Allow"] = allowed
    return answer


def _refused(other: Endpoint, request: Request, problem: Problem) -> Response:
    refused = other.refused(request.scope["headers"], problem)
    answer = Response(refused.content, refused.status)
    answer.raw_headers = refused.headers
    return answer
