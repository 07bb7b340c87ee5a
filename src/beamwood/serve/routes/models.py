"""`/v1/models`: which model answers, another in its place, and back."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from beamwood.serve.http.route import Call, Route
from beamwood.serve.loading import Loaded, folders_of
from beamwood.serve.messages import Body
from beamwood.serve.service import Service

__all__ = ["Load", "Models", "routes"]


class Load(Body):
    """`path`: a folder below --models-dir."""

    path: str


class Models(Struct):
    """The active model, and earlier ones, the latest last."""

    model: str
    snapshot: int
    path: str
    age_seconds: float
    items: int
    users: int
    method: str
    searched_by: str
    earlier: list[str]
    available: list[str]


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """The endpoints of models."""
    return [
        Route("GET", "/v1/models", _models, "admin", "Get the active model", Models),
        Route("POST", "/v1/models/load", _load, "admin", "Activate another model", Loaded, Load),
        Route("POST", "/v1/models/rollback", _rollback, "admin", "Roll back to the previous model", Loaded),
    ]


async def _models(call: Call) -> Models:
    service, snapshot = call.service, call.snapshot
    root = service.settings.models_dir
    folders = [] if root is None else await asyncio.to_thread(folders_of, root)
    tree = snapshot.tree
    return Models(
        snapshot.model,
        snapshot.number,
        str(snapshot.folder),
        round(time.monotonic() - snapshot.opened, 3),
        snapshot.num_items,
        0 if snapshot.names.users is None else len(snapshot.names.users),
        str(snapshot.retriever.metadata.get("method", snapshot.searcher.kind)),
        "numpy" if tree is None else tree.searched_by,
        [str(path) for path in service.loader.earlier],
        [path.name for path in folders],
    )


async def _load(call: Call) -> Loaded:
    service = call.service
    return await service.loader.load(await asyncio.to_thread(service.models.resolved, call.body.path))


async def _rollback(call: Call) -> Loaded:
    return await call.service.loader.rollback()
